#include <fstream>

#include "intarsia/checkpoint/testing_run.h"

namespace intarsia::checkpoint {
namespace {

namespace fs = std::filesystem;

// Saves of steps 10 and 20, of which the second is then damaged.
class Find : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    save(10);
    save(20);
  }
  // Expects that step 10 is found, by one process and by ranks together, and returns why step 20 is not.
  std::string reason() {
    const Found alone = find_checkpoint(root());
    EXPECT_EQ(alone.path, step(10));
    EXPECT_EQ(alone.manifest->progress.step, 10);
    comm::run_ranks(3, [&](comm::Communicator& axis) {
      TestRun run(run_plan(odd_model(), 3, 3), axis, 2);
      const Found together = load_newest(root(), run.engine, *run.optimizer);
      EXPECT_EQ(together.path, step(10));
      EXPECT_EQ(together.passed_over.size(), alone.passed_over.size());
      run.expect_known_values(DType::kF32);
      EXPECT_EQ(run.optimizer->updates(), 10);
    });
    return alone.passed_over.empty() ? "" : alone.passed_over[0].reason;
  }
  void expect_reason(const std::string& part) {
    const std::string found = reason();
    EXPECT_NE(found.find(part), std::string::npos) << found;
  }
  std::string body() const { return step(20) + "/" + body_name(1); }
};

TEST_F(Find, TheNewestCompleteOneIsFound) {
  const Found found = find_checkpoint(root());
  EXPECT_EQ(found.path, step(20));
  EXPECT_TRUE(found.passed_over.empty());
  EXPECT_FALSE(find_checkpoint(folder_ + "/nothing here").path.has_value());
}

TEST_F(Find, LatestIsOnlyAHint) {
  io::write_file_atomic(root() + "/latest", "step-10\n");
  EXPECT_EQ(find_checkpoint(root()).path, step(20));
  fs::remove(root() + "/latest");
  EXPECT_EQ(find_checkpoint(root()).path, step(20));
}

TEST_F(Find, ATruncatedBodyIsPassedOver) {
  fs::resize_file(body(), fs::file_size(body()) - 5);
  expect_reason("rank-00001.safetensors has ");
}

TEST_F(Find, AnyFlippedByteIsPassedOver) {
  const std::string good = io::read_text_file(body(), 1 << 20);
  for (std::size_t at = 0; at < good.size(); at += 1 + good.size() / 7) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    io::write_file_atomic(body(), bad);
    expect_reason("rank-00001.safetensors is damaged: its bytes 0 to ");
  }
}

TEST_F(Find, AMissingFileIsPassedOver) {
  fs::remove(body());
  expect_reason("cannot open " + body());
}

TEST_F(Find, AMissingManifestIsPassedOver) {
  fs::remove(step(20) + "/manifest.json");
  expect_reason("manifest.json: No such file");
}

TEST_F(Find, AnUnfinishedSaveIsPassedOver) {
  fs::rename(step(20), step(20) + ".wip-0123");
  expect_reason("its save did not finish");
}

// To train from the beginning would be to lose the run without a word.
TEST_F(Find, DamageOfAllIsAnErrorAndNoFreshStart) {
  for (const int number : {10, 20}) fs::resize_file(step(number) + "/" + body_name(1), 5);
  comm::run_ranks(2, [&](comm::Communicator& axis) {
    TestRun run(run_plan(odd_model(), 2, 3), axis);
    const std::string message = error_of(ErrorKind::kFormat, [&] { load_newest(root(), run.engine, *run.optimizer); });
    EXPECT_NE(message.find("no checkpoint in " + root() + " can be used; "), std::string::npos) << message;
    EXPECT_NE(message.find("step-10/rank-00001.safetensors has 5 bytes"), std::string::npos) << message;
    EXPECT_NE(message.find("--overwrite"), std::string::npos) << message;
  });
}

// What no save has completed is nothing that could be lost.
TEST_F(Find, AnUnfinishedFirstSaveIsAFreshStart) {
  fs::remove_all(step(10));
  fs::rename(step(20), step(20) + ".wip-0123");
  comm::run_ranks(2, [&](comm::Communicator& axis) {
    TestRun run(run_plan(odd_model(), 2, 3), axis);
    const Found found = load_newest(root(), run.engine, *run.optimizer);
    EXPECT_FALSE(found.path.has_value());
    EXPECT_EQ(found.passed_over.size(), 1U);
  });
}

// An undamaged checkpoint of another model is no reason to take an older one.
TEST_F(Find, AnotherModelIsNoDamage) {
  comm::run_ranks(2, [&](comm::Communicator& axis) {
    plan::ModelSpec model = odd_model();
    model.params[5].name = "head.other";
    TestRun run(run_plan(model, 2, 3), axis);
    const std::string message = error_of(ErrorKind::kFormat, [&] { load_newest(root(), run.engine, *run.optimizer); });
    EXPECT_NE(message.find("step-20 lacks \"master.head.other\""), std::string::npos) << message;
  });
}

TEST_F(Find, OtherNamesAreNoCheckpoints) {
  for (const char* name : {"step-30x", "step-", "step-030", "step--3", "step-99999999999999999999", "other"})
    fs::create_directory(root() + "/" + name);
  std::ofstream(root() + "/step-40") << "a file";
  const Found found = find_checkpoint(root());
  EXPECT_EQ(found.path, step(20));
  EXPECT_TRUE(found.passed_over.empty());
}

}  // namespace
}  // namespace intarsia::checkpoint
