#include "intarsia/formats/yaml.h"

#include <gtest/gtest.h>

#include "intarsia/formats/test_folder.h"

namespace intarsia::formats {
namespace {

using Kind = JsonValue::Kind;

TEST(Yaml, MappingsListsAndScalarsHaveTheirMeaningAndPlace) {
  const JsonValue root = parse_yaml(
      "---\n"
      "# a comment\n"
      "plain: a word  # and another\n"
      "quoted: 'no'\n"
      "bare: no\n"
      "rate: 2e-5\n"
      "count: -3\n"
      "nothing:\n"
      "inner:\n"
      "  deeper:\n"
      "      x: \"a # b\"\n"
      "  y: [1, 'two', true]\n"
      "list:\n"
      "- a\n"
      "- b\n"
      "empty: []\n"
      "url: http://host:80/x\r\n",
      "f.yaml");
  ASSERT_EQ(root.kind, Kind::kObject);
  EXPECT_EQ(root.find("plain")->value.text, "a word");
  EXPECT_EQ(root.find("quoted")->value.kind, Kind::kString);
  EXPECT_EQ(root.find("bare")->value.kind, Kind::kBool);
  EXPECT_EQ(root.find("bare")->value.text, "no");
  EXPECT_FALSE(root.find("bare")->value.boolean);
  EXPECT_EQ(root.find("rate")->value.as_number(), 2e-5);
  EXPECT_EQ(root.find("count")->value.as_integer(), -3);
  EXPECT_EQ(root.find("nothing")->value.kind, Kind::kNull);
  const JsonValue& inner = root.find("inner")->value;
  EXPECT_EQ(inner.find("deeper")->value.find("x")->value.text, "a # b");
  EXPECT_EQ(inner.find("deeper")->value.find("x")->place.line, 11);
  EXPECT_EQ(inner.find("deeper")->value.find("x")->value.place.column, 10);
  ASSERT_EQ(inner.find("y")->value.items.size(), 3u);
  EXPECT_EQ(inner.find("y")->value.items[1].text, "two");
  EXPECT_EQ(inner.find("y")->value.items[2].kind, Kind::kBool);
  EXPECT_EQ(root.find("list")->value.items.size(), 2u);
  EXPECT_EQ(root.find("empty")->value.kind, Kind::kArray);
  EXPECT_EQ(root.find("url")->value.text, "http://host:80/x");
}

TEST(Yaml, WhatItDoesNotReadIsRefusedWithItsPlace) {
  const auto refusal = [](const std::string& text) { return format_error([&] { parse_yaml(text, "f.yaml"); }); };
  for (const auto& [text, place] :
       std::initializer_list<std::pair<const char*, const char*>>{{"a:\n\tb: 1\n", "f.yaml:2:2"},
                                                                  {"a: 1\na: 2\n", "f.yaml:2:1"},
                                                                  {"a: &x 1\n", "f.yaml:1:4"},
                                                                  {"a: |\n  text\n", "f.yaml:1:4"},
                                                                  {"a: {b: 1}\n", "f.yaml:1:4"},
                                                                  {"a: 1\n  b: 2\n", "f.yaml:2:3"},
                                                                  {"a:\n    b: 1\n  c: 2\n", "f.yaml:3:3"},
                                                                  {"a: 'open\n", "f.yaml:1:4"},
                                                                  {"just words\n", "f.yaml:1:1"},
                                                                  {"a: 1\n---\nb: 2\n", "f.yaml:2:1"},
                                                                  {"a:\n  - b: 1\n", "f.yaml:2:5"},
                                                                  {"a: b: c\n", "f.yaml:1:4"}})
    EXPECT_NE(refusal(text).find(place), std::string::npos) << text << refusal(text);
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  EXPECT_NE(refusal(deep).find("levels"), std::string::npos);
}

TEST(Yaml, QuotedTextIsReadAsTheText) {
  for (const char* text : {"no", "bf16", "a: b", "", "5", "it's", "null", "FULL_SHARD", "# x", "a,b"}) {
    const JsonValue root = parse_yaml("k: " + yaml_quote(text) + "\n", "f");
    EXPECT_EQ(root.find("k")->value.kind, Kind::kString) << text;
    EXPECT_EQ(root.find("k")->value.text, text);
  }
  EXPECT_EQ(yaml_quote("bf16"), "bf16");
  EXPECT_EQ(yaml_quote("no"), "'no'");
}

}  // namespace
}  // namespace intarsia::formats
