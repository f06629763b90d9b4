#include "intarsia/formats/chat_template/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "intarsia/formats/test_folder.h"

namespace intarsia::formats {
namespace {

using Json = nlohmann::ordered_json;

const std::string kFolder = "tests/fixtures/chat_templates/";

std::string file_text(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

const Json& expected() {
  static const Json json = Json::parse(file_text(kFolder + "expected.json"));
  return json;
}

Json variables_of(const Json& conversation) {
  Json out = expected()["special"];
  out["messages"] = conversation["messages"];
  out["tools"] = conversation.value("tools", Json());
  out["documents"] = nullptr;
  out["add_generation_prompt"] = conversation.value("add_generation_prompt", false);
  return out;
}

std::vector<std::string> template_names() {
  std::vector<std::string> names;
  for (const auto& [name, unused] : expected()["templates"].items()) names.push_back(name);
  return names;
}

std::string rendered(const std::string& source, const Json& variables = Json::object()) {
  return ChatTemplate(source, "t").render(variables).text;
}

std::string refusal(const std::string& source, ErrorKind kind = ErrorKind::kData) {
  return error_of(kind, [&] { rendered(source); });
}

class ChatTemplates : public testing::TestWithParam<std::string> {};

TEST_P(ChatTemplates, RenderAsTheReference) {
  const ChatTemplate chat(file_text(kFolder + GetParam()), GetParam());
  for (const auto& [name, wanted] : expected()["templates"][GetParam()].items()) {
    const Json variables = variables_of(expected()["conversations"][name]);
    if (wanted.contains("error")) {
      const std::string message = error_of(ErrorKind::kData, [&] { chat.render(variables); });
      EXPECT_NE(message.find(GetParam() + ", line "), std::string::npos) << message;
      const auto raised = wanted["error"].get<std::string>();
      if (raised.starts_with("TemplateError: ")) {
        EXPECT_NE(message.find(raised.substr(15)), std::string::npos) << message;
      }
      continue;
    }
    try {
      const RenderedChat out = chat.render(variables);
      EXPECT_EQ(out.text, wanted["text"].get<std::string>()) << name;
      std::vector<TextSpan> spans;
      for (const Json& span : wanted.value("generated", Json::array())) spans.push_back({span[0], span[1]});
      EXPECT_EQ(out.generated, spans) << name;
    } catch (const Error& error) {
      ADD_FAILURE() << name << ": " << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, ChatTemplates, testing::ValuesIn(template_names()),
                         [](const auto& name) { return name.param.substr(0, name.param.find('.')); });

TEST(ChatTemplate, RefusesWhatIsNotBuiltWithItsLine) {
  const auto unsupported = [](const std::string& source) { return refusal("\n\n" + source, ErrorKind::kUnsupported); };
  EXPECT_NE(unsupported("{% include 'x' %}").find("t, line 3: the template uses the statement include"),
            std::string::npos);
  EXPECT_NE(unsupported("{{ x | groupby('a') }}").find("line 3: the template uses the filter groupby"),
            std::string::npos);
  EXPECT_NE(unsupported("{{ x is sameas 1 }}").find("the test sameas"), std::string::npos);
  EXPECT_NE(unsupported("{{ cycler(1) }}").find("there is no function cycler"), std::string::npos);
  EXPECT_NE(unsupported("{{ [1].append(2) }}").find("there is no function append"), std::string::npos);
  EXPECT_NE(unsupported("{{ 'x'.zfill(2) }}").find("there is no function zfill"), std::string::npos);
  EXPECT_NE(unsupported("{{ 'x'.__class__() }}").find("__class__"), std::string::npos);
  EXPECT_NE(unsupported("{% for x in y recursive %}{% endfor %}").find("recursive"), std::string::npos);
  EXPECT_NE(unsupported("{{ 2 ** 3 }}").find("**"), std::string::npos);
}

TEST(ChatTemplate, RefusesWhatIsNoTemplate) {
  for (const char* source : {"{% if x %}",
                             "{% endif %}",
                             "{{ x",
                             "{{ 'x }}",
                             "{# x",
                             "{% for x %}{% endfor %}",
                             "{{ }}",
                             "{{ (1 }}",
                             "{{ 1) }}",
                             "{% if x %}{% endfor %}",
                             "{% set 1 = 2 %}",
                             "{{ a b }}",
                             "{{ 'a'[1:2:3:4] }}",
                             "{% break %}",
                             "{{ f(a=1, 2) }}",
                             "{% macro m %}{% endmacro %}",
                             "{{ 1 $ 2 }}",
                             "{%",
                             "{{ \"\\u12\" }}",
                             "{{ 99999999999999999999 }}"}) {
    try {
      rendered(source);
      ADD_FAILURE() << source << " was accepted";
    } catch (const Error& error) {
      EXPECT_TRUE(error.kind() == ErrorKind::kFormat || error.kind() == ErrorKind::kUnsupported) << source;
      EXPECT_NE(std::string(error.what()).find("t, line 1"), std::string::npos) << error.what();
    }
  }
}

TEST(ChatTemplate, NamesTheLineOfWhatGoesWrong) {
  EXPECT_NE(refusal("a\nb{{ x.y.z }}").find("t, line 2: \"x\" is not defined"), std::string::npos);
  EXPECT_NE(refusal("{% set a = 1 %}\n\n{{ a + 'b' }}").find("line 3: the operator +"), std::string::npos);
  EXPECT_NE(refusal("\n{{ raise_exception('no ' ~ 1) }}").find("line 2: the template refuses the conversation: no 1"),
            std::string::npos);
  EXPECT_NE(refusal("{{ [1].strip() }}").find("a list has no function strip"), std::string::npos);
  EXPECT_NE(refusal("{{ 1 // 0 }}").find("division by zero"), std::string::npos);
  EXPECT_NE(refusal("{{ 9223372036854775807 + 1 }}").find("beyond 64 bits"), std::string::npos);
  EXPECT_NE(refusal("{% for a, b in [1] %}{% endfor %}").find("2 names"), std::string::npos);
}

TEST(ChatTemplate, LimitsWhatATemplateMayUse) {
  EXPECT_NE(refusal("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}").find("steps"),
            std::string::npos);
  EXPECT_NE(
      refusal("{% set n = namespace(x='0123456789') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}")
          .find("512 MiB"),
      std::string::npos);
  EXPECT_NE(refusal("{{ 'x' * 999999999999 }}").find("512 MiB"), std::string::npos);
  EXPECT_NE(refusal("{{ range(1000000) }}").find("100000"), std::string::npos);
  EXPECT_NE(
      refusal("{% set n = namespace(x=[]) %}{% for i in range(999) %}{% set n.x = [n.x] %}{% endfor %}").find("nested"),
      std::string::npos);
  EXPECT_NE(refusal("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").find("macros call each other"),
            std::string::npos);
  EXPECT_NE(refusal("{{ " + std::string(100'000, '(') + "1" + std::string(100'000, ')') + "}}", ErrorKind::kFormat)
                .find("nested more than"),
            std::string::npos);
  EXPECT_NE(refusal("{{ " + std::string(100'000, '-') + "1 }}", ErrorKind::kFormat).find("nested more than"),
            std::string::npos);
  std::string blocks, chain = "{{ 1";
  for (int i = 0; i < 10'000; ++i) {
    blocks += "{% if x %}";
    chain += " + 1";
  }
  EXPECT_NE(refusal(blocks, ErrorKind::kFormat).find("nested more than"), std::string::npos);
  EXPECT_NE(refusal(chain + " }}", ErrorKind::kFormat).find("in a row"), std::string::npos);
}

// Whatever bytes a template is cut or changed to, it ends in a text or an Error.
TEST(ChatTemplate, SurvivesDamage) {
  const Json variables = variables_of(expected()["conversations"]["tools"]);
  for (const char* name : {"qwen3.jinja", "hermes.jinja", "features.jinja", "deepseek.jinja"}) {
    const std::string good = file_text(kFolder + name);
    std::uint32_t state = 12345;
    for (int round = 0; round < 400; ++round) {
      std::string bad = good;
      const auto draw = [&] { return (state = state * 1664525 + 1013904223) >> 8; };
      if (round % 4 == 0) bad.resize(draw() % bad.size());
      for (std::uint32_t i = draw() % 4; i > 0 && !bad.empty(); --i)
        bad[draw() % bad.size()] = "{}%#()[]|.'\"\n =,:~-+xif0"[draw() % 24];
      try {
        rendered(bad, variables);
      } catch (const Error&) {
      }
    }
  }
}

}  // namespace
}  // namespace intarsia::formats
