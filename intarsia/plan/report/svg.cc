#include "intarsia/plan/report/svg.h"

#include <cmath>
#include <iomanip>
#include <sstream>

namespace intarsia::plan {

std::string xml_escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

namespace svg {
namespace {

// Colours that differ in lightness too, so that they can be told apart in grey print.
constexpr const char* kStyle =
    "<style>text{font:12px system-ui,sans-serif;fill:#222}.t{font-size:14px;font-weight:600}.m{fill:#555}"
    ".a{stroke:#999;stroke-width:1}.g{stroke:#8884;stroke-width:1}.l{stroke:#c00;stroke-width:2;stroke-dasharray:6 4}"
    ".lt{fill:#c00}.c0{fill:#1f4e9c}.c1{fill:#6f9fe8}.c2{fill:#e07b39}.c3{fill:#7a3fa0}.c4{fill:#b7d3f7}"
    ".c5{fill:#f5c396}.c6{fill:#2f8f5b}.c7{fill:#9bd3b0}.c8{fill:#b58900}.c9{fill:#9a9a9a}"
    ".c10{fill:#5b4636}";
constexpr const char* kDark =
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.m{fill:#aaa}.a{stroke:#777}.lt{fill:#ff7b72}.l{stroke:#ff7b72}}"
    "@media print{text{fill:#000}.m{fill:#333}}";

}  // namespace

std::string number(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  std::string text = out.str();
  if (text.find('.') != std::string::npos) {
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
  }
  return text == "-0" ? "0" : text;
}

std::string opened(int width, int height, const std::string& title, const Ground& ground) {
  std::ostringstream out;
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << width << " " << height
      << "\" role=\"img\" aria-label=\"" << xml_escape(title) << "\">" << kStyle << ground.more_style
      << (ground.opaque ? "" : kDark) << "</style>"
      << (ground.opaque ? "<rect fill=\"#fff\" width=\"100%\" height=\"100%\"/>" : "")
      << "<text class=\"t\" x=\"8\" y=\"20\">" << xml_escape(title) << "</text>\n";
  return out.str();
}

std::string text_at(double x, double y, const std::string& text, const char* anchor, const char* cls) {
  std::ostringstream out;
  out << "<text x=\"" << number(x) << "\" y=\"" << number(y) << "\" text-anchor=\"" << anchor << "\"";
  if (*cls != 0) out << " class=\"" << cls << "\"";
  out << ">" << xml_escape(text) << "</text>\n";
  return out.str();
}

std::string rect(double x, double y, double width, double height, std::size_t colour, const std::string& hint) {
  std::ostringstream out;
  out << "<rect class=\"c" << colour % kColours << "\" x=\"" << number(x) << "\" y=\"" << number(y) << "\" width=\""
      << number(width) << "\" height=\"" << number(height) << "\"><title>" << xml_escape(hint) << "</title></rect>\n";
  return out.str();
}

std::string line(double x1, double y1, double x2, double y2, const char* cls) {
  std::ostringstream out;
  out << "<line class=\"" << cls << "\" x1=\"" << number(x1) << "\" y1=\"" << number(y1) << "\" x2=\"" << number(x2)
      << "\" y2=\"" << number(y2) << "\"/>\n";
  return out.str();
}

double tick_of(double top) {
  const double rough = top / 5, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double times : {1.0, 2.0, 5.0})
    if (rough <= times * power) return times * power;
  return 10 * power;
}

const char* const kPageStyle =
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:900px;margin:2rem auto;padding:0 "
    "1rem}pre{overflow-x:auto;font-size:12.5px;background:#8881;padding:.8rem;border-radius:6px}svg{width:100%;"
    "height:auto;margin:.6rem "
    "0}.wide{overflow-x:auto}table{border-collapse:collapse;font-size:12.5px}th,td{padding:.3rem "
    ".5rem;border-bottom:1px solid #8886;text-align:left;white-space:nowrap}th{cursor:pointer}@media "
    "print{body{max-width:none;margin:0}pre{white-space:pre-wrap}section{break-inside:avoid}}";

}  // namespace svg
}  // namespace intarsia::plan
