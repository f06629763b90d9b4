// TensorBoard's event files: scalars that TensorBoard's own reader reads. Written by hand, since the protobuf library
// clashes with torch's headers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "intarsia/io/file.h"

namespace intarsia::formats {

struct ScalarValue {
  std::string tag;  // "train/loss"; what stands before the last slash groups the charts
  float value = 0;
};

// The protobuf bytes of Event: `wall_time` in seconds since 1970. Source: tensorflow/core/util/event.proto and
// tensorflow/core/framework/summary.proto.
std::string version_event(double wall_time);
std::string scalars_event(double wall_time, std::int64_t step, std::span<const ScalarValue> values);
// Readers forget what earlier files say of `step` and the steps after it.
std::string restart_event(double wall_time, std::int64_t step);

// One record of a TFRecord file around `bytes`: length, its masked CRC-32C, bytes, their masked CRC-32C; little-endian.
// Source: tensorflow/core/lib/io/record_writer.h.
std::string tf_record(std::string_view bytes);

// One process's events of a run, in a file of its own in `folder`, which is created. TensorBoard reads the files of a
// folder in the order of their names; the new name comes after all that are there.
// Errors: kIo.
class EventFile {
 public:
  // `restart_step` above 0: what the folder's earlier files say of it and later steps is void.
  EventFile(const std::string& folder, double wall_time, std::int64_t restart_step);
  void write(double wall_time, std::int64_t step, std::span<const ScalarValue> values);
  const std::string& path() const { return path_; }

 private:
  void put(const std::string& event);

  std::string path_;
  io::Fd file_;
};

}  // namespace intarsia::formats
