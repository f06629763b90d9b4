#include "intarsia/data/batch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "intarsia/data/sample_files.h"
#include "intarsia/data/testing_files.h"
#include "intarsia/formats/tokenizer.h"

namespace intarsia::data {
namespace {

at::Tensor matrix(std::vector<std::int64_t> values, std::int64_t columns) {
  return at::tensor(values, at::kLong).view({-1, columns});
}

TEST(Batch, HoldsTheSamplesAskedForInTheirOrder) {
  const auto path = write_samples("a.safetensors", {{"input_ids", {3, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8}},
                                                    {"labels", {3, 3}, {0, 1, 2, 3, -100, 5, -100, -100, -100}}});
  const auto dataset = open_sample_files({path}, 0);
  const Batch batch = make_batch(*dataset, std::vector<std::int64_t>{2, 1});
  EXPECT_TRUE(at::equal(batch.input_ids, matrix({6, 7, 8, 3, 4, 5}, 3)));
  EXPECT_TRUE(at::equal(batch.labels, matrix({-100, -100, -100, 3, -100, 5}, 3)));
  EXPECT_EQ(batch.num_targets, 1);  // labels[:, 0] is no target
}

TEST(Batch, MayBeEmpty) {
  const auto path = write_samples("a.safetensors", {{"input_ids", {1, 3}, {0, 1, 2}}});
  const Batch batch = make_batch(*open_sample_files({path}, 0), {});
  EXPECT_EQ(batch.input_ids.sizes(), (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(batch.labels.sizes(), (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(batch.num_targets, 0);
}

TEST(TargetBytes, CountsTextOfCountedTargetsOnly) {
  const auto tokenizer = formats::Tokenizer::load("tests/fixtures/hf/gpt2/model");
  const auto ids = tokenizer.encode("Hello", false);
  ASSERT_GE(ids.size(), 1U);
  std::vector<std::int64_t> labels{ids[0]};  // column 0 is never a target
  for (const std::int32_t id : ids) labels.push_back(id);
  labels.push_back(*tokenizer.end_of_text());
  labels.push_back(kNotCounted);
  const auto columns = static_cast<std::int64_t>(labels.size());
  EXPECT_EQ(target_bytes(matrix(labels, columns), tokenizer), 5);
  EXPECT_EQ(target_bytes(at::empty({0, columns}, at::kLong), tokenizer), 0);
}

}  // namespace
}  // namespace intarsia::data
