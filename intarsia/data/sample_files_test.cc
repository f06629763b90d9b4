#include "intarsia/data/sample_files.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/data/testing_files.h"

namespace intarsia::data {
namespace {

using Ids = std::vector<std::int64_t>;

std::pair<Ids, Ids> sample(const Dataset& dataset, std::int64_t index) {
  Ids ids(static_cast<std::size_t>(dataset.seq_len())), labels(ids.size());
  dataset.fill(index, ids.data(), labels.data());
  return {ids, labels};
}

void expect_error(const std::vector<std::string>& paths, std::int64_t vocab, ErrorKind kind, const std::string& part) {
  try {
    open_sample_files(paths, vocab);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(SampleFiles, ReadsIdsAndLabelsAsTheyStand) {
  const auto path = write_samples(
      "a.safetensors", {{"input_ids", {2, 3}, {1, 2, 3, 4, 5, 6}}, {"labels", {2, 3}, {-100, 2, 3, 4, -100, 6}, true}});
  const auto dataset = open_sample_files({path}, 7);
  EXPECT_EQ(dataset->num_samples(), 2);
  EXPECT_EQ(dataset->seq_len(), 3);
  EXPECT_EQ(sample(*dataset, 1), (std::pair<Ids, Ids>{{4, 5, 6}, {4, -100, 6}}));
}

TEST(SampleFiles, EveryTokenIsATargetWithoutLabels) {
  const auto path = write_samples("a.safetensors", {{"input_ids", {1, 3}, {1, 2, 3}, true}});
  EXPECT_EQ(sample(*open_sample_files({path}, 0), 0), (std::pair<Ids, Ids>{{1, 2, 3}, {1, 2, 3}}));
}

TEST(SampleFiles, JoinsFilesInOrder) {
  const auto a = write_samples("a.safetensors", {{"input_ids", {2, 2}, {0, 1, 2, 3}}});
  const auto empty = write_samples("e.safetensors", {{"input_ids", {0, 2}, {}}});
  const auto b = write_samples("b.safetensors", {{"input_ids", {1, 2}, {4, 5}, true}});
  const auto dataset = open_sample_files({a, empty, b}, 0);
  EXPECT_EQ(dataset->num_samples(), 3);
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(sample(*dataset, i).first, (Ids{2 * i, 2 * i + 1}));
}

TEST(SampleFiles, RefusesOtherShapesWithTheShape) {
  expect_error({write_samples("four.safetensors", {{"input_ids", {1, 2, 1, 2}, {1, 2, 3, 4}}})}, 0, ErrorKind::kFormat,
               "[1, 2, 1, 2]");
  expect_error(
      {write_samples("labels.safetensors", {{"input_ids", {1, 4}, {1, 2, 3, 4}}, {"labels", {2, 2}, {1, 2, 3, 4}}})}, 0,
      ErrorKind::kFormat, "[2, 2]");
  expect_error({write_samples("one.safetensors", {{"input_ids", {3, 1}, {1, 2, 3}}})}, 0, ErrorKind::kData, "[3, 1]");
}

TEST(SampleFiles, RefusesFilesOfTwoLengths) {
  const auto a = write_samples("a.safetensors", {{"input_ids", {1, 2}, {0, 1}}});
  const auto b = write_samples("b.safetensors", {{"input_ids", {1, 3}, {0, 1, 2}}});
  expect_error({a, b}, 0, ErrorKind::kConfig, "3 tokens");
}

TEST(SampleFiles, RefusesIdsOutsideTheVocabularyWithPlaceAndValue) {
  const auto path = write_samples("a.safetensors", {{"input_ids", {2, 2}, {0, 1, 2, 9}}});
  expect_error({path}, 9, ErrorKind::kData, "input_ids[1, 1] is 9");
  expect_error({path}, 9, ErrorKind::kData, "vocabulary of 9");
  expect_error({write_samples("n.safetensors", {{"input_ids", {1, 2}, {0, -1}}})}, 0, ErrorKind::kData, "is -1");
  expect_error({write_samples("l.safetensors", {{"input_ids", {1, 2}, {0, 1}}, {"labels", {1, 2}, {0, -1}}})}, 0,
               ErrorKind::kData, "labels[0, 1] is -1");
}

TEST(SampleFiles, RefusesEmptyDataAndMissingTensors) {
  expect_error({write_samples("a.safetensors", {{"input_ids", {0, 4}, {}}})}, 0, ErrorKind::kData, "no samples");
  expect_error({write_samples("b.safetensors", {{"tokens", {1, 2}, {1, 2}}})}, 0, ErrorKind::kFormat, "input_ids");
}

}  // namespace
}  // namespace intarsia::data
