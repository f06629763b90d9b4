#include "intarsia/formats/pickle/pickle.h"

#include <algorithm>
#include <bit>

#include "intarsia/formats/pickle/pickle_machine.h"

namespace intarsia::formats {

// False after STOP.
bool PickleMachine::step() {
  const auto opcode = take_number<std::uint8_t>();
  switch (opcode) {
    case '.':
      return false;
    case 0x80:  // PROTO
      if (const auto protocol = take_number<std::uint8_t>(); protocol > 5)
        fail(ErrorKind::kUnsupported, printable(name_), ": a pickle of protocol ", int{protocol}, ", known are 0 to 5");
      return true;
    case 0x95:  // FRAME
      take_number<std::uint64_t>();
      return true;
    case '(':
      return push(kMark), true;
    case 'N':
      return push(none_), true;
    case 0x88:
    case 0x89:
      return push(booleans_[opcode == 0x88 ? 1 : 0]), true;
    case 'K':
      return push(integer(take_number<std::uint8_t>())), true;
    case 'M':
      return push(integer(take_number<std::uint16_t>())), true;
    case 'J':
      return push(integer(take_number<std::int32_t>())), true;
    case 0x8a:
      return push_long(take_number<std::uint8_t>()), true;
    case 'G': {  // big endian
      const auto view = take(8);
      std::uint64_t bits = 0;
      for (const std::byte byte : view) bits = bits << 8 | std::to_integer<std::uint64_t>(byte);
      return push(floating(std::bit_cast<double>(bits))), true;
    }
    case 0x8c:
      return push(text(PickleKind::kText, take_text(take_number<std::uint8_t>()))), true;
    case 'X':
      return push(text(PickleKind::kText, take_text(take_number<std::uint32_t>()))), true;
    case 'C':
      return push(text(PickleKind::kBytes, take_text(take_number<std::uint8_t>()))), true;
    case 'B':
      return push(text(PickleKind::kBytes, take_text(take_number<std::uint32_t>()))), true;
    case ']':
      return push(add(PickleKind::kList)), true;
    case '}':
      return push(add(PickleKind::kDict)), true;
    case ')':
      return push(empty_tuple_), true;
    case 'a': {
      const std::uint32_t item = pop();
      return append_items(top(), PickleKind::kList, {item}), true;
    }
    case 'e': {
      const auto items = pop_to_mark();
      return append_items(top(), PickleKind::kList, items), true;
    }
    case 't':
      return push(container(PickleKind::kTuple, pop_to_mark())), true;
    case 0x85:
    case 0x86:
    case 0x87:
      return tuple(opcode - 0x84u), true;
    case 's': {
      const std::uint32_t value = pop(), key = pop();
      return set_items(top(), {key, value}), true;
    }
    case 'u': {
      const auto items = pop_to_mark();
      return set_items(top(), items), true;
    }
    case 'c': {
      const std::string_view module = take_line();
      return push_class(module, take_line()), true;
    }
    case 0x93: {  // STACK_GLOBAL
      const std::uint32_t name = pop(), module = pop();
      if (node(name).kind != PickleKind::kText || node(module).kind != PickleKind::kText)
        refuse("a class whose name is no text");
      return push_class(node(module).text, node(name).text), true;
    }
    case 'R':
    case 0x81: {  // REDUCE, NEWOBJ
      const std::uint32_t arguments = pop(), callable = pop();
      return build_object(arguments, callable), true;
    }
    case 'b':
      return build(), true;
    case 'Q':
      return push(container(PickleKind::kPersistent, {pop()})), true;
    case 0x94:
      return store(memo_.size()), true;
    case 'q':
      return store(take_number<std::uint8_t>()), true;
    case 'r':
      return store(take_number<std::uint32_t>()), true;
    case 'h':
      return load(take_number<std::uint8_t>()), true;
    case 'j':
      return load(take_number<std::uint32_t>()), true;
    default:
      return step_rare(opcode);
  }
}

bool PickleMachine::step_rare(std::uint8_t opcode) {
  switch (opcode) {
    case '0':
      if (!stack_.empty() && stack_.back() == kMark) {
        stack_.pop_back();
      } else {
        pop();
      }
      return true;
    case '1':
      return pop_to_mark(), true;
    case '2':
      return push(top()), true;
    case 'I':
    case 'L':
      return push_decimal(take_line()), true;
    case 0x8b:
      return push_long(take_number<std::uint32_t>()), true;
    case 'F': {
      const std::string_view line = take_line();
      double value = 0;
      if (std::from_chars(line.data(), line.data() + line.size(), value).ptr != line.data() + line.size())
        refuse("\"", printable(line), "\" is no number");
      return push(floating(value)), true;
    }
    case 0x8d:
      return push(text(PickleKind::kText, take_text(take_number<std::uint64_t>()))), true;
    case 0x8e:
    case 0x96:
      return push(text(PickleKind::kBytes, take_text(take_number<std::uint64_t>()))), true;
    case 'T':
      return push(text(PickleKind::kBytes, take_text(take_number<std::uint32_t>()))), true;
    case 'U':
      return push(text(PickleKind::kBytes, take_text(take_number<std::uint8_t>()))), true;
    case 'l':
      return push(container(PickleKind::kList, pop_to_mark())), true;
    case 'd': {
      const std::uint32_t dict = add(PickleKind::kDict);
      set_items(dict, pop_to_mark());
      return push(dict), true;
    }
    case 0x8f:
      return push(add(PickleKind::kSet)), true;
    case 0x90: {
      const auto items = pop_to_mark();
      return append_items(top(), PickleKind::kSet, items), true;
    }
    case 0x91:
      return push(container(PickleKind::kSet, pop_to_mark())), true;
    case 'g':
      return load(take_slot()), true;
    case 'p':
      return store(take_slot()), true;
    default:
      break;
  }
  constexpr std::string_view kHex = "0123456789ABCDEF";
  fail(ErrorKind::kUnsupported, printable(name_), ": the pickle has the opcode 0x", kHex[opcode >> 4],
       kHex[opcode & 15], " at byte ", at_ - 1, ", which is not one of the known ones");
}

// Depth of every value that the root holds, by a walk with its own stack: a value that contains itself has none.
void PickleMachine::check_nesting() {
  enum : std::int16_t { kUnseen = 0, kOpen = -1 };
  std::vector<std::int16_t> depth(out_.nodes_.size(), kUnseen);
  struct Visit {
    std::uint32_t node;
    std::size_t next;
  };
  std::vector<Visit> path = {{out_.root_, 0}};
  depth[out_.root_] = kOpen;
  while (!path.empty()) {
    Visit& visit = path.back();
    const std::vector<std::uint32_t>& items = node(visit.node).items;
    if (visit.next < items.size()) {
      const std::uint32_t item = items[visit.next++];
      if (depth[item] == kOpen) refuse("a value that contains itself");
      if (depth[item] != kUnseen) continue;
      if (path.size() > kMaxPickleNesting) refuse("values nested more than ", kMaxPickleNesting, " deep");
      depth[item] = kOpen;
      path.push_back({item, 0});
      continue;
    }
    std::int16_t deepest = 0;
    for (const std::uint32_t item : items) deepest = std::max(deepest, depth[item]);
    if (deepest >= kMaxPickleNesting) refuse("values nested more than ", kMaxPickleNesting, " deep");
    depth[visit.node] = static_cast<std::int16_t>(deepest + 1);
    path.pop_back();
  }
}

Pickle Pickle::read(std::span<const std::byte> bytes, const std::string& name) {
  return PickleMachine(bytes, name).run();
}

}  // namespace intarsia::formats
