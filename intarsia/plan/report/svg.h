// Pieces that every chart is made of, and the style of the pages that hold them. Internal to the drawing of charts.
#pragma once

#include <cstddef>
#include <string>

namespace intarsia::plan {

// `text` inside XML.
std::string xml_escape(const std::string& text);

namespace svg {

inline constexpr int kWidth = 760, kHeight = 392, kLeft = 64, kTop = 52, kBottom = 44, kLegend = 170;

inline constexpr std::size_t kColours = 11;

// At most `digits` digits behind the point.
std::string number(double value, int digits = 2);

// The beginning of a picture: size, style, title. Opaque: on white ground whatever the reader prefers, as files that
// are shown outside a page need.
struct Ground {
  bool opaque = false;
  std::string more_style = {};
};
std::string opened(int width, int height, const std::string& title, const Ground& ground = {});

std::string text_at(double x, double y, const std::string& text, const char* anchor = "start", const char* cls = "");
std::string rect(double x, double y, double width, double height, std::size_t colour, const std::string& hint);
std::string line(double x1, double y1, double x2, double y2, const char* cls);

// 1, 2 or 5 times a power of ten, about a fifth of `top`.
double tick_of(double top);

// CSS of a page around charts, light and dark and in print.
extern const char* const kPageStyle;

}  // namespace svg
}  // namespace intarsia::plan
