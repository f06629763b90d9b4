// A restricted reader of Python pickles: builds plain data, executes nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace intarsia::formats {

// What one pickled value is.
enum class PickleKind : std::uint8_t {
  kNone,
  kBool,
  kInteger,
  kFloat,
  kText,
  kBytes,
  kList,
  kTuple,
  kDict,  // items: key and value in turn; also OrderedDict
  kSet,
  kClass,       // text: "module.name" of a known class or function
  kObject,      // items: its class, the tuple of its arguments and, where it was set, its state
  kPersistent,  // items: the id by which the pickle names something outside, such as a tensor's storage
};

class Pickle;

// One value of a Pickle, which must outlive it.
class PickleValue {
 public:
  PickleValue(const Pickle& pickle, std::uint32_t node) : pickle_(&pickle), node_(node) {}

  PickleKind kind() const;
  std::uint32_t node() const { return node_; }
  // Of kBool and kInteger; of others nothing.
  std::optional<std::int64_t> integer() const;
  // Of kFloat, kBool and kInteger; of others nothing.
  std::optional<double> number() const;
  // Of kText, kBytes and kClass; of others nothing.
  std::optional<std::string_view> text() const;
  // Of lists, tuples, sets and dicts (key and value in turn), and of an object; of others none.
  std::size_t size() const;
  PickleValue operator[](std::size_t i) const;
  // The value of a text key of a dict.
  std::optional<PickleValue> find(std::string_view key) const;
  // "module.name" of an object's class, or nothing.
  std::string_view class_name() const;
  // An object's arguments (a tuple) and its state.
  PickleValue arguments() const { return (*this)[1]; }
  std::optional<PickleValue> state() const;
  // "a dict", "an object of torch.Size": for messages.
  std::string describe() const;

 private:
  const Pickle* pickle_;
  std::uint32_t node_;
};

// Threads: const members may be called at once.
class Pickle {
 public:
  // Reads one pickle, of protocol 0 to 5. Known are the opcodes that build plain data, and a short list of classes
  // (pickle_classes.cc), of which only names and arguments are kept; every other opcode and class is refused by name.
  // No value contains itself and none nests more than 200 deep, so walks over it end. `bytes` must outlive the object;
  // `name` is for messages. Memory: up to some 60 bytes a value, at most 8 million values. Errors: kFormat,
  // kUnsupported, with name and byte. Source: CPython, Lib/pickletools.py.
  static Pickle read(std::span<const std::byte> bytes, const std::string& name);

  PickleValue root() const { return {*this, root_}; }

 private:
  friend class PickleValue;
  friend class PickleMachine;
  struct Node {
    PickleKind kind = PickleKind::kNone;
    std::int64_t integer = 0;
    double number = 0;
    std::string_view text{};
    std::vector<std::uint32_t> items{};
  };

  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<const std::string>> class_names_;  // that nodes point to
  std::uint32_t root_ = 0;
};

// Whether a pickle may name this class or function.
bool is_known_pickle_class(std::string_view full_name);

}  // namespace intarsia::formats
