#include "intarsia/formats/json.h"

#include <gtest/gtest.h>

#include <string>

namespace intarsia::formats {
namespace {

JsonError error_of(std::string_view text) {
  try {
    parse_json(text, "t.json");
  } catch (const JsonError& error) {
    return error;
  }
  ADD_FAILURE() << "no error for " << text;
  return {"", {}, "", "", ""};
}

TEST(Json, ReadsWhatPeopleWrite) {
  const JsonValue root = parse_json(
      "\xEF\xBB\xBF{ // note\r\n  # another\r\n bare: 1\r\n /* block\n */ 'single': [1, 2,],\n \"t\": "
      "\"a\\u00e4\\n\",}\n",
      "t");
  ASSERT_EQ(root.members.size(), 3U);
  EXPECT_EQ(root.find("bare")->value.as_integer(), 1);
  EXPECT_EQ(root.find("single")->value.items.size(), 2U);
  EXPECT_EQ(root.find("t")->value.text, "a\xC3\xA4\n");
}

TEST(Json, KnowsThePlaceOfKeysAndValues) {
  const JsonValue root = parse_json("{\n  \"\xC3\xA4\": {\"b\":   7}\n}", "t");
  const JsonMember* outer = root.find("\xC3\xA4");
  EXPECT_EQ(outer->place.line, 2);
  EXPECT_EQ(outer->place.column, 3);
  EXPECT_EQ(outer->value.find("b")->place.column, 9);
  EXPECT_EQ(outer->value.find("b")->value.place.column, 16);
}

TEST(Json, IntegralFloatsAreIntegers) {
  const JsonValue root =
      parse_json("[5e8, 4.0, 5.5, 1e999, 9223372036854775807, 9223372036854775808, NaN, -1e2, 1e-999]", "t");
  EXPECT_EQ(root.items[0].as_integer(), 500000000);
  EXPECT_EQ(root.items[1].as_integer(), 4);
  EXPECT_FALSE(root.items[2].as_integer());
  EXPECT_FALSE(root.items[3].as_integer());
  EXPECT_EQ(root.items[3].as_number(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(root.items[4].as_integer(), 9223372036854775807);
  EXPECT_FALSE(root.items[5].as_integer());
  EXPECT_FALSE(root.items[6].as_integer());
  EXPECT_EQ(root.items[7].as_integer(), -100);
  EXPECT_EQ(root.items[8].as_number(), 0.0);
  EXPECT_EQ(root.items[3].show(), "1e999");
}

TEST(Json, NamesTheDuplicate) {
  const JsonError error = error_of("{\"a\": {\"b\": 2,\n \"b\": 3}}");
  EXPECT_EQ(error.path(), "a.b");
  EXPECT_EQ(error.place().line, 2);
  EXPECT_EQ(error.place().column, 2);
  EXPECT_NE(std::string(error.what()).find("2 and 3"), std::string::npos);
}

TEST(Json, RefusesDepthWithoutRecursing) {
  EXPECT_NE(error_of(std::string(100000, '[')).detail().find("nested too deep"), std::string::npos);
  EXPECT_NO_THROW(parse_json(std::string(32, '[') + std::string(32, ']'), "t"));
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text :
       {"", "{", "{\"a\"", "{\"a\":", "{\"a\": 1", "[1 2]", "{\"a\": True}", "{\"a\": word}", "{\"a\": \"x", "{} x",
        "/*", "{\"a\": 01}", "{\"a\": \"\\ud800\"}", "{\"a\": \"\\q\"}", "{,}", "{\"a\": -}"}) {
    EXPECT_GT(error_of(text).place().line, 0) << text;
  }
  EXPECT_EQ(error_of("{\n\"a\": \"\xFF\"}").place().line, 2);
  EXPECT_EQ(error_of("{\"a\": \"\xC0\x80\"}").kind(), ErrorKind::kFormat);
}

TEST(Json, EveryCutOfAFileIsRefused) {
  const std::string text = "{\"a\": [1, {\"b\": \"c\"}], // x\n \"d\": true}";
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_THROW(parse_json(text.substr(0, length), "t"), JsonError) << length;
  }
}

TEST(Json, LimitsTheSizeOfAFile) { EXPECT_THROW(parse_json(std::string((1 << 20) + 1, ' '), "t"), Error); }

TEST(Json, ShowsAValueOnOneLine) {
  EXPECT_EQ(parse_json("{a: [1, \"x\\\"\"],\n b: null}", "t").show(), R"({"a": [1, "x\""], "b": null})");
  EXPECT_EQ(parse_json("[1,2,3,4,5,6,7,8,9]", "t").show(6), "[1, 2,...");
}

}  // namespace
}  // namespace intarsia::formats
