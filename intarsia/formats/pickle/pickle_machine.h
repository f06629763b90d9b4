// What a pickle's opcodes do. Internal to formats.
#pragma once

#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/pickle/pickle.h"

namespace intarsia::formats {

inline constexpr std::size_t kMaxPickleNodes = 8'000'000, kMaxPickleStack = 4'000'000, kMaxPickleItems = 64'000'000;
inline constexpr int kMaxPickleNesting = 200;

// The stack machine that a pickle is a program for.
class PickleMachine {
 public:
  PickleMachine(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {
    none_ = add(PickleKind::kNone);
    for (int i = 0; i < 2; ++i) booleans_[i] = add_integer(PickleKind::kBool, i);
    for (int i = 0; i < 256; ++i) small_[i] = add_integer(PickleKind::kInteger, i);
    empty_tuple_ = add(PickleKind::kTuple);
  }

  Pickle run() {
    while (step()) continue;
    out_.root_ = pop();
    if (!stack_.empty()) refuse("values are left when it ends");
    check_nesting();
    return std::move(out_);
  }

 private:
  using Node = Pickle::Node;
  static constexpr std::uint32_t kMark = 0xFFFFFFFF;

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorKind::kFormat, printable(name_), ": damaged pickle at byte ", at_, ": ", parts...);
  }

  // Reading.
  std::span<const std::byte> take(std::uint64_t count) {
    if (count > bytes_.size() - at_) refuse("it ends where ", count, " bytes more are expected");
    const auto out = bytes_.subspan(at_, count);
    at_ += count;
    return out;
  }
  template <typename T>
  T take_number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view take_text(std::uint64_t size) {
    const auto view = take(size);
    return {reinterpret_cast<const char*>(view.data()), view.size()};
  }
  std::string_view take_line() {
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + at_, bytes_.size() - at_);
    const std::size_t end = rest.find('\n');
    if (end == rest.npos) refuse("it ends inside a line");
    at_ += end + 1;
    return rest.substr(0, end);
  }

  // Values.
  std::uint32_t add(PickleKind kind) {
    if (out_.nodes_.size() >= kMaxPickleNodes) refuse("more than ", kMaxPickleNodes, " values");
    out_.nodes_.push_back({.kind = kind});
    return static_cast<std::uint32_t>(out_.nodes_.size() - 1);
  }
  std::uint32_t add_integer(PickleKind kind, std::int64_t value) {
    const std::uint32_t id = add(kind);
    out_.nodes_[id].integer = value;
    return id;
  }
  std::uint32_t integer(std::int64_t value) {
    return value >= 0 && value < 256 ? small_[value] : add_integer(PickleKind::kInteger, value);
  }
  std::uint32_t text(PickleKind kind, std::string_view value) {
    const std::uint32_t id = add(kind);
    out_.nodes_[id].text = value;
    return id;
  }
  std::uint32_t floating(double value) {
    const std::uint32_t id = add(PickleKind::kFloat);
    out_.nodes_[id].number = value;
    return id;
  }
  std::uint32_t container(PickleKind kind, std::vector<std::uint32_t> items) {
    const std::uint32_t id = add(kind);
    append(id, items);
    return id;
  }
  Node& node(std::uint32_t id) { return out_.nodes_[id]; }
  void append(std::uint32_t id, const std::vector<std::uint32_t>& items) {
    if ((num_items_ += items.size()) > kMaxPickleItems) refuse("more than ", kMaxPickleItems, " items");
    node(id).items.insert(node(id).items.end(), items.begin(), items.end());
  }

  // The stack.
  void push(std::uint32_t id) {
    if (stack_.size() >= kMaxPickleStack) refuse("more than ", kMaxPickleStack, " values on its stack");
    stack_.push_back(id);
  }
  std::uint32_t pop() {
    if (stack_.empty() || stack_.back() == kMark) refuse("it takes a value from an empty stack");
    const std::uint32_t id = stack_.back();
    stack_.pop_back();
    return id;
  }
  std::uint32_t top() {
    const std::uint32_t id = pop();
    stack_.push_back(id);
    return id;
  }
  std::vector<std::uint32_t> pop_to_mark() {
    std::size_t begin = stack_.size();
    while (begin > 0 && stack_[begin - 1] != kMark) --begin;
    if (begin == 0) refuse("it goes back to a mark that was not set");
    std::vector<std::uint32_t> out(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin - 1);
    return out;
  }
  void store(std::uint64_t slot) { memo_[slot] = top(); }
  void load(std::uint64_t slot) {
    const auto found = memo_.find(slot);
    if (found == memo_.end()) refuse("it reads memo ", slot, ", which was never written");
    push(found->second);
  }
  std::uint64_t take_slot() {
    const std::string_view line = take_line();
    std::uint64_t slot = 0;
    if (std::from_chars(line.data(), line.data() + line.size(), slot).ptr != line.data() + line.size())
      refuse("\"", printable(line), "\" is no place in its memo");
    return slot;
  }

  // Two's complement, little endian.
  void push_long(std::uint64_t size) {
    const auto view = take(size);
    if (size > 8) {
      fail(ErrorKind::kUnsupported, printable(name_), ": the pickle has an integer of ", size,
           " bytes, which is not supported");
    }
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < view.size(); ++i) value |= std::to_integer<std::uint64_t>(view[i]) << (8 * i);
    if (size > 0 && size < 8 && (std::to_integer<int>(view.back()) & 0x80) != 0)
      value |= ~std::uint64_t{0} << (8 * size);
    push(integer(static_cast<std::int64_t>(value)));
  }

  void push_decimal(std::string_view line) {
    if (line == "00" || line == "01") return push(booleans_[line == "01" ? 1 : 0]);
    if (line.ends_with('L')) line.remove_suffix(1);
    std::int64_t value = 0;
    if (std::from_chars(line.data(), line.data() + line.size(), value).ptr != line.data() + line.size())
      refuse("\"", printable(line), "\" is no integer");
    push(integer(value));
  }

  void push_class(std::string_view module, std::string_view name) {
    const std::string full = concat(module, ".", name);
    INTARSIA_CHECK(kUnsupported, is_known_pickle_class(full), printable(name_), ": the pickle names ", printable(full),
                   ", which is not one of the known classes; nothing was executed");
    // The name must live as long as the pickle's bytes; one copy of each is enough.
    const auto [known, is_new] = classes_.try_emplace(full, 0);
    if (is_new) {
      known->second = add(PickleKind::kClass);
      out_.class_names_.push_back(std::make_unique<const std::string>(full));
      node(known->second).text = *out_.class_names_.back();
    }
    push(known->second);
  }

  void build_object(std::uint32_t arguments, std::uint32_t callable) {
    if (node(callable).kind != PickleKind::kClass) refuse("it calls what is no class");
    if (node(arguments).kind != PickleKind::kTuple) refuse("it calls with arguments that are no tuple");
    if (node(callable).text != "collections.OrderedDict")
      return push(container(PickleKind::kObject, {callable, arguments}));
    if (!node(arguments).items.empty()) refuse("an OrderedDict with arguments");
    push(add(PickleKind::kDict));
  }

  void set_items(std::uint32_t dict, const std::vector<std::uint32_t>& items) {
    if (node(dict).kind != PickleKind::kDict) refuse("it sets items of what is no dict");
    if (items.size() % 2 != 0) refuse("a key without a value");
    append(dict, items);
  }

  void append_items(std::uint32_t list, PickleKind kind, const std::vector<std::uint32_t>& items) {
    if (node(list).kind != kind) refuse("it appends to what is no ", kind == PickleKind::kList ? "list" : "set");
    append(list, items);
  }

  void build() {
    const std::uint32_t state = pop(), object = top();
    if (node(object).kind == PickleKind::kDict) return;  // attributes of an OrderedDict are no data
    if (node(object).kind != PickleKind::kObject || node(object).items.size() != 2)
      refuse("it sets the state of what has none");
    append(object, {state});
  }

  void tuple(std::size_t count) {
    std::vector<std::uint32_t> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    push(container(PickleKind::kTuple, std::move(items)));
  }

  bool step();
  bool step_rare(std::uint8_t opcode);
  void check_nesting();

  std::span<const std::byte> bytes_;
  const std::string& name_;
  std::size_t at_ = 0, num_items_ = 0;
  Pickle out_;
  std::vector<std::uint32_t> stack_;
  std::unordered_map<std::uint64_t, std::uint32_t> memo_;
  std::unordered_map<std::string, std::uint32_t> classes_;
  std::uint32_t none_ = 0, empty_tuple_ = 0;
  std::array<std::uint32_t, 2> booleans_{};
  std::array<std::uint32_t, 256> small_{};
};

}  // namespace intarsia::formats
