// Writes Python pickles of protocol 2, the one that torch.save writes: plain values, and objects by the names of their
// classes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "intarsia/base/dtype.h"

namespace intarsia::formats {

// Every call appends one value, or one operation on the values that were appended before it. Containers take a function
// that appends what is in them. No value is shared: what is appended twice is written twice. Texts are UTF-8.
class PickleWriter {
 public:
  using Fill = std::function<void()>;

  PickleWriter();

  void none();
  void boolean(bool value);
  void integer(std::int64_t value);
  void number(double value);
  void text(std::string_view value);
  void tuple(const Fill& items);
  void list(const Fill& items);
  void dict(const Fill& keys_and_values);
  // Entries of the dict, or OrderedDict, that was appended last.
  void set_items(const Fill& keys_and_values);
  // A tuple of integers.
  void integers(const std::vector<std::int64_t>& values);
  // A class or function.
  void global(std::string_view module, std::string_view name);
  // What MODULE.NAME gives when it is called with `arguments`.
  void call(std::string_view module, std::string_view name, const Fill& arguments);
  // An object of MODULE.NAME, made without arguments, whose state is the one value that `state` appends.
  void object(std::string_view module, std::string_view name, const Fill& state);
  // What the reader finds under the id that is appended.
  void persistent(const Fill& id);

  // The pickle. The writer is empty afterwards.
  std::string take();

 private:
  std::string bytes_;
};

// The class of torch that stores elements of `dtype`: "FloatStorage". Errors: kUnsupported.
std::string_view storage_class(DType dtype);

// A tensor of torch.save, row-major, whose elements are the record data/`key` of the archive.
void put_tensor(PickleWriter& pickle, std::string_view key, DType dtype, const std::vector<std::int64_t>& shape);

}  // namespace intarsia::formats
