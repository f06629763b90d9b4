#include "intarsia/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include "intarsia/base/crc32c.h"
#include "intarsia/base/error.h"

namespace intarsia::checkpoint {
namespace {

Manifest example() {
  Manifest manifest;
  manifest.progress = {
      .step = 12, .updates = 11, .data_position = 384, .tokens = 5000, .bad_steps = 1, .seed = 0xffffffffffffffffU};
  manifest.ranks = 2;
  manifest.stage = 3;
  manifest.compute_dtype = DType::kBF16;
  manifest.files = {{body_name(0), 100, {0xdeadbeef}}, {body_name(1), kBlockBytes + 1, {1, 2}}, {body_name(2), 0}};
  manifest.tensors = {{.name = "a \"name\"", .shape = {2, 3}, .pieces = {{0, {0, 4}}, {1, {4, 6}}}},
                      {.name = "none", .kind = TensorKind::kWeight, .dtype = DType::kBF16, .shape = {0, 3}}};
  manifest.config = "{\"key\": 1}\n";
  manifest.model_config = "{}";
  manifest.versions = {{"libtorch", "2"}};
  return manifest;
}

TEST(Manifest, ReadsWhatItWrites) {
  const Manifest read = parse_manifest(manifest_text(example()), "m");
  EXPECT_EQ(read.progress, example().progress);
  EXPECT_EQ(read.files[0].blocks, (std::vector<std::uint32_t>{0xdeadbeefU}));
  EXPECT_EQ(read.files[1].blocks.size(), 2U);
  EXPECT_EQ(read.tensors[0].stored_name(), "master.a \"name\"");
  EXPECT_EQ(read.tensors[0].pieces[1].elements.end, 6);
  EXPECT_EQ(read.config, example().config);
  EXPECT_EQ(manifest_text(read), manifest_text(example()));
}

TEST(Manifest, AnyFlippedBitAndAnyCutIsRefused) {
  const std::string good = manifest_text(example());
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    EXPECT_THROW(parse_manifest(bad, "m"), Error) << "byte " << at;
    EXPECT_THROW(parse_manifest(good.substr(0, at), "m"), Error) << "cut at " << at;
  }
}

// The message for a manifest in which `from` is replaced by `to` and the checksum fits again.
std::string refused(const std::string& from, const std::string& to) {
  std::string text = manifest_text(example());
  text.replace(text.find(from), from.size(), to);
  const std::string marker = ",\n\"crc32c\": \"";
  text.resize(text.rfind(marker));
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(text)));
  try {
    parse_manifest(text + marker + crc32c_text(crc) + "\"}\n", "m");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Manifest, WhatTheFormatDoesNotAllowIsRefused) {
  EXPECT_EQ(refused("\"step\": 12", "\"step\": 12"), "accepted");
  EXPECT_EQ(refused("\"step\": 12", "\"step\": -1"),
            "m: progress: \"step\" must be an integer that is not negative, not -1");
  EXPECT_EQ(refused("\"step\": 12", "\"step\": 1e3"),
            "m: progress: \"step\" must be an integer that is not negative, not 1000.0");
  EXPECT_EQ(refused("\"step\": 12", "\"step\": 12, \"new\": 0"), "m: progress has 7 members, this format has 6");
  EXPECT_EQ(refused("\"step\": 12, ", ""), "m: progress: \"step\" is missing");
  EXPECT_EQ(refused("\"format_version\": 2", "\"format_version\": 1"),
            "m has format version 1; this program reads version 2");
  EXPECT_EQ(refused("deadbeef", "deadbeef00000000"),
            "m: file 0: its checksums have 16 digits; 100 bytes need 8 for each of 1 blocks");
  EXPECT_EQ(refused("rank-00001", "../../x"),
            "m: file 1 is called \"../../x.safetensors\", not rank-00001.safetensors");
  EXPECT_EQ(refused("[1,4,6]", "[3,4,6]"), "m: tensor \"a \"name\"\": a piece lies in file 3 of 3");
  EXPECT_EQ(refused("[1,4,6]", "[1,3,6]"),
            "m: tensor \"a \"name\"\": a piece has the elements 3 to 6, the next must begin at 4 and not be empty");
  EXPECT_EQ(refused(",[1,4,6]", ""), "m: tensor \"a \"name\"\": its pieces have 4 of its 6 elements");
  EXPECT_EQ(refused("[2,3]", "[4611686018427387904,4]"),
            "m: tensor \"a \"name\"\": its shape has more bytes than a file can");
  EXPECT_EQ(refused("\"name\": \"none\", \"kind\": \"weight\"", "\"name\": \"a \\\"name\\\"\", \"kind\": \"master\""),
            "m: \"master.a \"name\"\" stands there twice");
  EXPECT_EQ(refused("\"kind\": \"master\"", "\"kind\": \"grad\""), "m: tensor 0: unknown kind \"grad\"");
  EXPECT_NE(refused("\"config\": ", "\"config\": [[[[[[[[]]]]]]]], \"x\": ").find("nested deeper"), std::string::npos);
}

}  // namespace
}  // namespace intarsia::checkpoint
