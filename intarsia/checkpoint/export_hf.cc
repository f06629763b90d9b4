#include "intarsia/checkpoint/export_hf.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/base/text.h"
#include "intarsia/checkpoint/agree.h"
#include "intarsia/checkpoint/export_folder.h"
#include "intarsia/formats/adapter_config.h"
#include "intarsia/formats/hf_shards.h"
#include "intarsia/formats/safetensors_writer.h"
#include "intarsia/io/file.h"
#include "intarsia/tensor/dtype_map.h"

namespace intarsia::checkpoint {
namespace {

namespace fs = std::filesystem;
using formats::SafetensorsWriter;
using formats::TensorDecl;
using shard::Engine;

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// The parameters in the order in which flat buffers are gathered.
std::vector<TensorDecl> declarations(const plan::RunPlan& plan, DType dtype, bool only_trainable) {
  std::vector<TensorDecl> tensors;
  for (const plan::FlatLayout& layout : plan.flats) {
    if (only_trainable && !layout.trainable) continue;
    for (const plan::ParamSlot& slot : layout.slots) {
      const plan::ParamSpec& param = plan.model.params[static_cast<std::size_t>(slot.param)];
      tensors.push_back({.name = param.name, .dtype = dtype, .shape = param.shape});
    }
  }
  return tensors;
}

// Writes tensors, in the order of their declaration, to one file or to several of limited size.
class WeightFiles {
 public:
  WeightFiles(std::string directory, const std::vector<TensorDecl>& tensors, std::int64_t max_bytes)
      : directory_(std::move(directory)), shards_(tensors, max_bytes) {}

  void add(const std::string& name, const at::Tensor& values) {
    if (!writer_) {
      writer_ = std::make_unique<SafetensorsWriter>(SafetensorsWriter::create(
          concat(directory_, "/", shards_.file_name(shard_)), formats::layout_safetensors(shards_[shard_])));
    }
    writer_->write_at(writer_->layout().index_of(name), 0, bytes_of(values));
    if (++written_ < shards_[shard_].size()) return;
    writer_->finish();
    writer_.reset();
    written_ = 0;
    ++shard_;
  }

  void finish() const {
    INTARSIA_INVARIANT(shard_ == shards_.size() && !writer_, "tensors are missing in the export");
    if (const std::string index = shards_.index_text(); !index.empty())
      io::write_file_atomic(concat(directory_, "/", formats::kHfIndexName), index);
  }

 private:
  std::string directory_;
  formats::HfShards shards_;
  std::size_t shard_ = 0;    // that is being written
  std::size_t written_ = 0;  // tensors of it
  std::unique_ptr<SafetensorsWriter> writer_;
};

// Gathers the flat buffers one after another; rank 0 passes each parameter's values to `use`. Collective.
template <typename Use>
void for_each_parameter(Engine& engine, Engine::What what, const optim::Optimizer* average, const std::string& failure,
                        bool only_trainable, const Use& use) {
  const at::NoGradGuard no_grad;
  for (std::size_t flat = 0; flat < engine.states().size(); ++flat) {
    const plan::FlatLayout& layout = *engine.states()[flat].layout;
    if (only_trainable && !layout.trainable) continue;
    const at::Tensor values =
        average != nullptr && layout.trainable ? average->gather_average(flat) : engine.gather(flat, what);
    all_or_none(engine.world(), failure, [&] {
      if (engine.world().rank() != 0) return;
      for (const plan::ParamSlot& slot : layout.slots)
        use(engine.plan().model.params[static_cast<std::size_t>(slot.param)].name,
            values.narrow(0, slot.offset, slot.numel));
    });
  }
}

void check_dtype(DType dtype) {
  INTARSIA_CHECK(kUnsupported, dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16, "export as ",
                 short_name(dtype), "; fp32, bf16 and fp16 are possible");
}

}  // namespace

void export_hf(Engine& engine, const formats::HfConfig& config, const std::string& directory,
               const ExportOptions& options) {
  comm::Communicator& axis = engine.world();
  const std::string failure = concat("the model was not exported to ", printable(directory));
  std::unique_ptr<ExportFolder> folder;
  std::optional<WeightFiles> files;
  all_or_none(axis, failure, [&] {
    check_dtype(options.dtype);
    if (axis.rank() != 0) return;
    folder = std::make_unique<ExportFolder>(directory, options.copy_from);
    files.emplace(folder->path(), declarations(engine.plan(), options.dtype, false), options.max_shard_bytes);
  });
  const at::ScalarType type = tensor::scalar_type(options.dtype);
  for_each_parameter(engine, Engine::What::kMaster, options.average, failure, false,
                     [&](const std::string& name, const at::Tensor& values) { files->add(name, values.to(type)); });
  all_or_none(axis, failure, [&] {
    if (axis.rank() != 0) return;
    files->finish();
    formats::HfConfig written = config;
    written.dtype = options.dtype;
    formats::write_hf_config(folder->path(), written);
    folder->commit();
  });
}

void export_adapter(Engine& engine, const plan::LoraPlan& lora, const std::string& base, const std::string& directory,
                    const ExportOptions& options) {
  comm::Communicator& axis = engine.world();
  const plan::ModelSpec& model = engine.plan().model;
  const std::string failure = concat("the adapter was not exported to ", printable(directory));
  std::unique_ptr<ExportFolder> folder;
  std::unique_ptr<SafetensorsWriter> writer;
  all_or_none(axis, failure, [&] {
    check_dtype(options.dtype);
    if (axis.rank() != 0) return;
    folder = std::make_unique<ExportFolder>(directory, options.copy_from);
    std::vector<TensorDecl> tensors = declarations(engine.plan(), options.dtype, true);
    for (TensorDecl& tensor : tensors) tensor.name = plan::peft_name(model, tensor.name);
    writer = std::make_unique<SafetensorsWriter>(SafetensorsWriter::create(
        concat(folder->path(), "/", formats::kAdapterWeightsName), formats::layout_safetensors(std::move(tensors))));
  });
  const at::ScalarType type = tensor::scalar_type(options.dtype);
  for_each_parameter(engine, Engine::What::kMaster, options.average, failure, true,
                     [&](const std::string& name, const at::Tensor& values) {
                       writer->write_at(writer->layout().index_of(plan::peft_name(model, name)), 0,
                                        bytes_of(values.to(type)));
                     });
  all_or_none(axis, failure, [&] {
    if (axis.rank() != 0) return;
    writer->finish();
    io::write_file_atomic(concat(folder->path(), "/", formats::kAdapterConfigName),
                          formats::adapter_config_text({.r = lora.r,
                                                        .alpha = lora.alpha,
                                                        .scale = lora.scale(),
                                                        .dropout = lora.dropout,
                                                        .targets = lora.targets,
                                                        .base_model = base,
                                                        .transposed = model.family == "gpt2"}));
    folder->commit();
  });
}

void dump_gradients(Engine& engine, double factor, const std::string& path) {
  comm::Communicator& axis = engine.world();
  const std::string failure = concat("the gradients were not written to ", printable(path));
  std::unique_ptr<SafetensorsWriter> writer;
  all_or_none(axis, failure, [&] {
    if (axis.rank() == 0)
      writer = std::make_unique<SafetensorsWriter>(
          SafetensorsWriter::create(path, formats::layout_safetensors(declarations(engine.plan(), DType::kF32, true))));
  });
  for_each_parameter(engine, Engine::What::kGradient, nullptr, failure, true,
                     [&](const std::string& name, const at::Tensor& values) {
                       writer->write_at(writer->layout().index_of(name), 0, bytes_of(values.mul(factor)));
                     });
  all_or_none(axis, failure, [&] {
    if (axis.rank() == 0) writer->finish();
  });
}

}  // namespace intarsia::checkpoint
