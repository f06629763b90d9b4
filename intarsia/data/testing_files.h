// Small data files for tests. Internal to data's tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace intarsia::data {

// A path in the test's temporary folder that no other test uses.
inline std::string temporary(const std::string& name) {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  return testing::TempDir() + "data_" + info->test_suite_name() + "_" + info->name() + "_" + name;
}

inline std::string write_file(const std::string& name, const std::string& content) {
  const std::string path = temporary(name);
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

struct TestTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> values;
  bool wide = false;  // I64, else I32
};

inline std::string write_samples(const std::string& name, const std::vector<TestTensor>& tensors) {
  std::string header = "{", body;
  for (const TestTensor& tensor : tensors) {
    const std::size_t begin = body.size();
    for (const std::int64_t value : tensor.values) {
      for (int byte = 0; byte < (tensor.wide ? 8 : 4); ++byte) body += static_cast<char>(value >> (8 * byte) & 0xFF);
    }
    std::string shape;
    for (const std::int64_t size : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(size);
    header += (header.size() == 1 ? "\"" : ",\"") + tensor.name + "\":{\"dtype\":\"" + (tensor.wide ? "I64" : "I32") +
              "\",\"shape\":[" + shape + "],\"data_offsets\":[" + std::to_string(begin) + "," +
              std::to_string(body.size()) + "]}";
  }
  header += "}";
  std::string length;
  for (int byte = 0; byte < 8; ++byte) length += static_cast<char>(header.size() >> (8 * byte) & 0xFF);
  return write_file(name, length + header + body);
}

}  // namespace intarsia::data
