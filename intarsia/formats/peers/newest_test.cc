// Folders of runs: the newest checkpoint in them; and what Accelerate and Trainer write beside.
#include <gtest/gtest.h>

#include <fstream>

#include "intarsia/formats/peers/open_checkpoint.h"
#include "intarsia/formats/pickle/pickle_writer.h"
#include "intarsia/formats/pickle/torch_writer.h"
#include "intarsia/formats/test_folder.h"

namespace intarsia::formats {
namespace {

namespace fs = std::filesystem;

const std::string kAccelerate = "tests/fixtures/checkpoints/dcp/accelerate-fsdp2-w2/ckpt";
const std::string kDeepSpeed = "tests/fixtures/checkpoints/deepspeed/z1-w2-fp32/ckpt";

class Newest : public TestFolder {
 protected:
  void copy(const std::string& from, const std::string& name) {
    fs::create_directories(fs::path(path(name)).parent_path());
    fs::copy(from, path(name), fs::copy_options::recursive);
  }
};

TEST_F(Newest, OfTrainersRunIsTheHighestCheckpoint) {
  for (const char* name : {"checkpoint-9", "checkpoint-10", "checkpoint-1"}) copy(kAccelerate, name);
  fs::create_directory(path("checkpoint-11"));  // its save never began
  EXPECT_EQ(find_peer_checkpoint(folder_), path("checkpoint-10"));
  EXPECT_TRUE(is_peer_checkpoint(folder_));
  EXPECT_EQ(open_checkpoint(folder_).path(), path("checkpoint-10"));
}

TEST_F(Newest, OfAcceleratesProjectIsInItsFolderOfCheckpoints) {
  for (const char* name : {"checkpoints/checkpoint_0", "checkpoints/checkpoint_2"}) copy(kAccelerate, name);
  EXPECT_EQ(find_peer_checkpoint(folder_), path("checkpoints/checkpoint_2"));
}

TEST_F(Newest, OfDeepSpeedIsWhatLatestNamesOrElseTheHighestStep) {
  copy(kDeepSpeed + "/global_step3", "global_step3");
  copy(kDeepSpeed + "/global_step3", "global_step20");
  EXPECT_EQ(open_checkpoint(folder_).path(), path("global_step20"));
  std::ofstream(path("latest")) << "global_step3";
  EXPECT_EQ(find_peer_checkpoint(folder_), folder_);
  EXPECT_NE(open_checkpoint(folder_).files().at(0).path.find("global_step3/"), std::string::npos);
}

TEST_F(Newest, AFolderThatHasNoneIsItself) {
  EXPECT_EQ(find_peer_checkpoint(folder_), folder_);
  EXPECT_FALSE(is_peer_checkpoint(folder_));
  EXPECT_EQ(find_peer_checkpoint(path("nowhere")), path("nowhere"));
}

TEST_F(Newest, AFolderThatCannotBeListedIsAnErrorOfTheFile) {
  // Root may list any folder; a link to itself nobody can.
  fs::create_symlink("loop", path("loop"));
  EXPECT_NE(error_of(ErrorKind::kIo, [&] { io::list_directory(path("loop")); }).find("loop"), std::string::npos);
  std::ofstream(path("file")) << "x";
  error_of(ErrorKind::kIo, [&] { io::list_directory(path("file")); });
}

TEST_F(Newest, TrainersStepAndGradScalersScaleAreRead) {
  copy(kAccelerate, "ckpt");
  std::ofstream(path("ckpt/trainer_state.json"))
      << R"({"epoch": 0.5, "global_step": 5, "log_history": [{"loss": NaN}]})";
  PickleWriter pickle;
  pickle.dict([&] {
    for (const auto& [key, value] :
         {std::pair("scale", 4096.0), std::pair("growth_factor", 2.0), std::pair("backoff_factor", 0.5)}) {
      pickle.text(key);
      pickle.number(value);
    }
    pickle.text("growth_interval");
    pickle.integer(2000);
    pickle.text("_growth_tracker");
    pickle.integer(7);
  });
  {
    const io::Fd fd = io::create_exclusive(path("ckpt/scaler.pt"));
    TorchArchiveWriter(fd, path("ckpt/scaler.pt"), 0, pickle.take()).finish();
  }
  const LogicalCheckpoint checkpoint = open_checkpoint(path("ckpt"));
  EXPECT_EQ(checkpoint.state().step, 5);
  EXPECT_EQ(checkpoint.state().updates, 3) << "two steps were skipped";
  ASSERT_TRUE(checkpoint.state().loss_scale.has_value());
  EXPECT_EQ(checkpoint.state().loss_scale->scale, 4096);
  EXPECT_TRUE(checkpoint.state().loss_scale->dynamic);
  // At the next good step, the 8th in a row, stable steps = iteration - last_overflow - 1 are 8 as well.
  EXPECT_EQ(checkpoint.state().loss_scale->iteration - checkpoint.state().loss_scale->last_overflow - 1, 8);
  std::ofstream(path("ckpt/trainer_state.json")) << R"({"global_step": "five"})";
  EXPECT_NE(format_error([&] { open_checkpoint(path("ckpt")); }).find("global_step is \"five\""), std::string::npos);
}

}  // namespace
}  // namespace intarsia::formats
