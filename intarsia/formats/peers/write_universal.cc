#include "intarsia/formats/peers/write_universal.h"

#include <filesystem>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/pickle/pickle_writer.h"
#include "intarsia/formats/pickle/torch_writer.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;

// The version that DeepSpeed compares its own rules for old checkpoints with: that of the layout written here.
constexpr const char* kVersion = "0.19.8";
constexpr double kUniversalVersion = 0.4;

using Put = std::function<void(PickleWriter&)>;

void put_order(PickleWriter& out, const std::function<void()>& keys_and_values) {
  out.call("collections", "OrderedDict", [] {});
  out.set_items(keys_and_values);
}

// A file of torch.save that holds one value, which may name tensors.
class TorchFile {
 public:
  TorchFile(std::string path, const Put& value) : path_(std::move(path)), fd_(io::create_exclusive(path_)) {
    PickleWriter pickle;
    value(pickle);
    archive_.emplace(fd_, path_, 0, pickle.take());
  }

  void add(const std::string& key, const LogicalTensor& tensor, TensorCopier& copier) {
    archive_->storage(key, static_cast<std::uint64_t>(tensor.numel()) * sizeof(float));
    copier.copy(tensor, DType::kF32, [&](std::span<const std::byte> bytes) { archive_->append(bytes); });
  }

  void add(const std::string& key, float value) {
    archive_->storage(key, sizeof value);
    archive_->append(std::as_bytes(std::span(&value, 1)));
  }

  void finish() {
    archive_->finish();
    io::fsync_file(fd_, path_);
  }

 private:
  std::string path_;
  io::Fd fd_;
  std::optional<TorchArchiveWriter> archive_;
};

class UniversalWriter {
 public:
  UniversalWriter(const LogicalCheckpoint& checkpoint, const std::string& directory, const PeerState& state,
                  const WriteProgress& progress)
      : directory_(directory),
        tag_(concat("global_step", state.step, "_universal")),
        folder_(fs::path(directory) / tag_),
        state_(state),
        copier_(checkpoint, progress) {}

  void run() {
    std::error_code error;
    INTARSIA_CHECK(kUsage, !fs::exists(folder_, error) && !fs::exists(fs::path(directory_) / "latest_universal", error),
                   printable(directory_), " has a universal checkpoint already; name a folder that is new");
    make_folder(folder_ / "zero");
    // The model's file is written under two names.
    std::int64_t elements = num_elements(state_);
    for (const PeerParam& param : state_.params)
      if (param.states.empty()) elements += param.weight->numel();
    copier_.expect(elements * static_cast<std::int64_t>(sizeof(float)));
    for (const PeerParam& param : state_.params)
      if (!param.states.empty()) write_parameter(param);
    write_value(folder_ / "zero" / "optimizer_state.pt", [&](PickleWriter& out) { put_optimizer(out); });
    for (const char* name : {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt"})
      write_model(folder_ / name);
    io::fsync_directory((folder_ / "zero").string());
    io::fsync_directory(folder_.string());
    io::write_file_atomic((fs::path(directory_) / "latest_universal").string(), tag_);
  }

 private:
  static void make_folder(const fs::path& path) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) io::fail_io("create the folder", path.string(), error.value());
  }

  // DeepSpeed's own optimizers count in a Python int, torch's in a tensor.
  void put_step(PickleWriter& out) const {
    if (!state_.torch_adam) return out.integer(state_.updates);
    put_tensor(out, "step", DType::kF32, {});
  }

  // A file of a value that put_step() is a part of.
  void write_value(const fs::path& path, const Put& value) const {
    TorchFile file(path.string(), value);
    if (state_.torch_adam) file.add("step", static_cast<float>(state_.updates));
    file.finish();
  }

  void write_parameter(const PeerParam& param) {
    INTARSIA_CHECK(kUnsupported, param.name.find('/') == std::string::npos, "the parameter ", printable(param.name),
                   " cannot be the name of a folder");
    const fs::path folder = folder_ / "zero" / param.name;
    make_folder(folder);
    const auto tensor = [&](const std::string& name, const LogicalTensor& values) {
      TorchFile file((folder / (name + ".pt")).string(), [&](PickleWriter& out) {
        out.dict([&] {
          out.text("param");
          put_tensor(out, "0", DType::kF32, param.shape);
        });
      });
      file.add("0", values, copier_);
      file.finish();
    };
    tensor("fp32", *param.weight);
    for (const auto& [kind, values] : param.states) tensor(kind, *values);
    write_value(folder / "step.pt", [&](PickleWriter& out) { put_step(out); });
    io::fsync_directory(folder.string());
  }

  void put_groups(PickleWriter& out) const {
    out.list([&] {
      for (std::size_t index = 0; index < state_.groups.size(); ++index) {
        const PeerGroup& group = state_.groups[index];
        out.dict([&] {
          for (const auto& [name, value] : {std::pair("weight_decay", group.weight_decay), std::pair("lr", group.lr),
                                            std::pair("initial_lr", group.initial_lr), std::pair("eps", group.eps)}) {
            out.text(name);
            out.number(value);
          }
          out.text("betas");
          out.tuple([&] {
            out.number(group.beta1);
            out.number(group.beta2);
          });
          out.text("params");
          out.list([&] { out.integer(static_cast<std::int64_t>(index)); });
        });
      }
    });
  }

  // The object that takes the place of the engine's own.
  void put_scaler(PickleWriter& out) const {
    const LossScaleRecord& scale = *state_.loss_scale;
    constexpr const char* kModule = "deepspeed.runtime.fp16.loss_scaler";
    const auto number = [&](const char* name, double value) {
      out.text(name);
      out.number(value);
    };
    const auto integer = [&](const char* name, std::int64_t value) {
      out.text(name);
      out.integer(value);
    };
    const auto flag = [&](const char* name, bool value) {
      out.text(name);
      out.boolean(value);
    };
    out.object(kModule, scale.dynamic ? "DynamicLossScaler" : "LossScaler", [&] {
      out.dict([&] {
        number("cur_scale", scale.scale);
        flag("dynamic", scale.dynamic);
        if (!scale.dynamic) return;
        integer("cur_iter", scale.iteration);
        integer("last_overflow_iter", scale.last_overflow);
        integer("cur_hysteresis", scale.hysteresis_left);
        number("scale_factor", 2);
        integer("scale_window", scale.window);
        integer("delayed_shift", scale.hysteresis);
        number("min_scale", scale.min);
        flag("consecutive_hysteresis", scale.consecutive_hysteresis);
        flag("raise_error_at_min_scale", true);
        out.text("dtype");
        out.global("torch", "float16");
      });
    });
  }

  // Stages 1 and 2 look at the top, stage 3 under optimizer_state_dict.
  void put_optimizer(PickleWriter& out) const {
    out.dict([&] {
      if (state_.loss_scale) {
        out.text("loss_scaler");
        put_scaler(out);
        out.text("dynamic_loss_scale");
        out.boolean(state_.loss_scale->dynamic);
      }
      out.text("overflow");
      out.boolean(false);
      out.text("ds_version");
      out.text(kVersion);
      out.text("param_groups");
      put_groups(out);
      out.text("optimizer_state_dict");
      out.dict([&] {
        out.text("state");
        out.dict([&] {
          out.integer(0);
          out.dict([&] {
            out.text("step");
            put_step(out);
          });
        });
        out.text("param_groups");
        put_groups(out);
      });
    });
  }

  static void put_shape(PickleWriter& out, const PeerParam& param) {
    out.text(param.name);
    out.call("torch", "Size", [&] { out.integers(param.shape); });
  }

  // What DeepSpeed's schedules read, and what those of torch do.
  void put_schedule(PickleWriter& out) const {
    const auto list = [&](const char* name, const std::function<void(const PeerGroup&)>& item) {
      out.text(name);
      out.list([&] {
        for (const PeerGroup& group : state_.groups) item(group);
      });
    };
    out.text("lr_scheduler");
    out.dict([&] {
      out.text("last_batch_iteration");
      out.integer(state_.updates - 1);
      out.text("last_epoch");
      out.integer(state_.updates);
      out.text("_step_count");
      out.integer(state_.updates + 1);
      list("base_lrs", [&](const PeerGroup& group) { out.number(group.initial_lr); });
      list("_last_lr", [&](const PeerGroup& group) { out.number(group.lr); });
      list("lr_lambdas", [&](const PeerGroup&) { out.none(); });
    });
  }

  void put_model(PickleWriter& out) const {
    const auto integer = [&](const char* name, std::int64_t value) {
      out.text(name);
      out.integer(value);
    };
    out.dict([&] {
      out.text("module");  // DeepSpeed takes trained weights from zero/
      put_order(out, [&] {
        for (std::size_t i = 0; i < state_.params.size(); ++i) {
          if (!state_.params[i].states.empty()) continue;
          out.text(state_.params[i].name);
          put_tensor(out, std::to_string(i), DType::kF32, state_.params[i].shape);
        }
      });
      out.text("buffer_names");
      out.list([] {});
      out.text("optimizer");
      out.none();
      out.text("param_shapes");
      out.list([&] {
        for (const PeerGroup& group : state_.groups)
          put_order(out, [&] {
            for (const std::size_t param : group.params) put_shape(out, state_.params[param]);
          });
      });
      out.text("frozen_param_shapes");
      put_order(out, [&] {
        for (const PeerParam& param : state_.params)
          if (param.states.empty()) put_shape(out, param);
      });
      out.text("shared_params");
      out.dict([&] {
        for (const PeerParam& param : state_.params)
          for (const std::string& other : param.tied_names) {
            out.text(other);
            out.text(param.name);
          }
      });
      put_schedule(out);
      integer("skipped_steps", state_.step - state_.updates);
      integer("global_steps", state_.step);
      integer("global_samples", state_.samples);
      integer("dp_world_size", 1);
      integer("mp_world_size", 1);
      out.text("universal_checkpoint_info");
      out.dict([&] {
        out.text("universal_checkpoint_version");
        out.number(kUniversalVersion);
      });
      out.text("ds_version");
      out.text(kVersion);
    });
  }

  void write_model(const fs::path& path) {
    TorchFile file(path.string(), [&](PickleWriter& out) { put_model(out); });
    for (std::size_t i = 0; i < state_.params.size(); ++i)
      if (state_.params[i].states.empty()) file.add(std::to_string(i), *state_.params[i].weight, copier_);
    file.finish();
  }

  std::string directory_, tag_;
  fs::path folder_;
  const PeerState& state_;
  TensorCopier copier_;
};

}  // namespace

void write_universal(const LogicalCheckpoint& checkpoint, const std::string& directory, const PeerState& state,
                     const WriteProgress& progress) {
  INTARSIA_CHECK(kUsage, !state.groups.empty(), printable(checkpoint.path()),
                 " has no state of the optimizer, which a universal checkpoint of DeepSpeed must have: ",
                 checkpoint.state().no_optimizer_state, "; write its weights with --to hf");
  UniversalWriter(checkpoint, directory, state, progress).run();
}

}  // namespace intarsia::formats
