// One flipped byte anywhere in a checkpoint is reported with the file and the range of bytes, and every rank takes the
// step before.
#include <fstream>
#include <random>
#include <sstream>

#include "durability_case.h"

namespace intarsia::checkpoint {
namespace {

class BitRot : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    save(10);
    save(20);
  }

  // The reason for which step 20 is passed over when byte `at` of `file` is another.
  std::string reason(const std::string& file, std::size_t at) {
    const std::string path = step(20) + "/" + file;
    const std::string good = io::read_text_file(path, 1 << 20);
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    std::ofstream(path) << bad;
    const Found found = find_checkpoint(root());
    EXPECT_EQ(found.path, step(10)) << file << ", byte " << at;
    std::string text = found.passed_over.size() == 1 ? found.passed_over[0].reason : "";
    const std::string start = concat(path, " is damaged: its bytes ");
    if (text.starts_with(start)) {
      std::istringstream range(text.substr(start.size()));
      std::size_t begin = 0, end = 0;
      std::string to;
      range >> begin >> to >> end;
      EXPECT_TRUE(begin <= at && at < end && end <= good.size()) << text << ", byte " << at;
    } else {
      ADD_FAILURE() << file << ", byte " << at << ": " << text;
    }
    if (++flips_ % 50 == 0) fall_back_together();
    std::ofstream(path) << good;
    return text;
  }

  // All of 3 ranks load step 10, though only some of them need the damaged bytes.
  void fall_back_together() {
    comm::run_ranks(3, [&](comm::Communicator& axis) {
      TestRun run(run_plan(odd_model(), 3, 3), axis, 2);
      const Found found = load_newest(root(), run.engine, *run.optimizer);
      EXPECT_EQ(found.path, step(10));
      EXPECT_EQ(found.passed_over.size(), 1U);
      EXPECT_EQ(run.optimizer->updates(), 10);
      run.expect_known_values(DType::kF32);
    });
  }

  void flip_all(std::size_t manifest_stride, int bodies) {
    const std::size_t size = fs::file_size(step(20) + "/manifest.json");
    for (std::size_t at = 0; at < size && !HasFailure(); at += manifest_stride) reason("manifest.json", at);
    std::mt19937_64 random(11);
    for (int flip = 0; flip < bodies && !HasFailure(); ++flip) {
      const std::string body = body_name(static_cast<int>(random() % 2));
      reason(body, random() % fs::file_size(step(20) + "/" + body));
    }
    if (!HasFailure())
      std::cout << flips_ << " bytes flipped one at a time (" << bodies << " of them in body files), all reported\n";
  }

  int flips_ = 0;
};

TEST_F(BitRot, AFewFlippedBytesAreReportedAndTheStepBeforeIsTaken) { flip_all(37, 60); }

TEST_F(BitRot, SlowEveryByteOfAManifestAnd2000OfBodies) { flip_all(1, 2000); }

}  // namespace
}  // namespace intarsia::checkpoint
