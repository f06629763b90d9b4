#include "intarsia/plan/time/cluster.h"

#include <filesystem>
#include <functional>
#include <map>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/json.h"

namespace intarsia::plan {
namespace {

// Every number of a cluster with its key, so that reading and writing cannot differ.
struct Field {
  const char* key;
  std::function<double&(ClusterSpec&)> value;
};

const std::vector<Field>& fields() {
  const auto type = [](MatrixType t) { return static_cast<std::size_t>(t); };
  static const std::vector<Field> kFields = {
      {"device_memory_bytes", [](ClusterSpec& c) -> double& { return c.device.memory_bytes; }},
      {"peak_flops_fp32", [=](ClusterSpec& c) -> double& { return c.device.peak_flops[type(MatrixType::kFp32)]; }},
      {"peak_flops_16bit", [=](ClusterSpec& c) -> double& { return c.device.peak_flops[type(MatrixType::kHalf)]; }},
      {"peak_flops_fp8", [=](ClusterSpec& c) -> double& { return c.device.peak_flops[type(MatrixType::kFp8)]; }},
      {"matrix_efficiency_fp32",
       [=](ClusterSpec& c) -> double& { return c.device.matrix_efficiency[type(MatrixType::kFp32)]; }},
      {"matrix_efficiency_16bit",
       [=](ClusterSpec& c) -> double& { return c.device.matrix_efficiency[type(MatrixType::kHalf)]; }},
      {"matrix_efficiency_fp8",
       [=](ClusterSpec& c) -> double& { return c.device.matrix_efficiency[type(MatrixType::kFp8)]; }},
      {"half_efficiency_flops", [](ClusterSpec& c) -> double& { return c.device.half_flops; }},
      {"attention_efficiency", [](ClusterSpec& c) -> double& { return c.device.attention_efficiency; }},
      {"memory_bytes_per_second", [](ClusterSpec& c) -> double& { return c.device.memory_bandwidth; }},
      {"memory_efficiency", [](ClusterSpec& c) -> double& { return c.device.memory_efficiency; }},
      {"pass_bytes_per_second_fp32",
       [=](ClusterSpec& c) -> double& { return c.device.pass_bandwidth[type(MatrixType::kFp32)]; }},
      {"pass_bytes_per_second_16bit",
       [=](ClusterSpec& c) -> double& { return c.device.pass_bandwidth[type(MatrixType::kHalf)]; }},
      {"update_bytes_per_second", [](ClusterSpec& c) -> double& { return c.device.update_bandwidth; }},
      {"operation_seconds", [](ClusterSpec& c) -> double& { return c.device.operation_seconds; }},
      {"alone_matrix_ratio", [](ClusterSpec& c) -> double& { return c.device.alone_matrix; }},
      {"alone_memory_ratio", [](ClusterSpec& c) -> double& { return c.device.alone_memory; }},
      {"contention", [](ClusterSpec& c) -> double& { return c.device.contention; }},
      {"allocator_slack", [](ClusterSpec& c) -> double& { return c.device.allocator_slack; }},
      {"base_bytes", [](ClusterSpec& c) -> double& { return c.device.base_bytes; }},
      {"intra_bytes_per_second", [](ClusterSpec& c) -> double& { return c.intra.bandwidth; }},
      {"intra_efficiency", [](ClusterSpec& c) -> double& { return c.intra.efficiency; }},
      {"intra_latency_seconds", [](ClusterSpec& c) -> double& { return c.intra.latency; }},
      {"inter_bytes_per_second", [](ClusterSpec& c) -> double& { return c.inter.bandwidth; }},
      {"inter_efficiency", [](ClusterSpec& c) -> double& { return c.inter.efficiency; }},
      {"inter_latency_seconds", [](ClusterSpec& c) -> double& { return c.inter.latency; }},
      {"host_link_bytes_per_second", [](ClusterSpec& c) -> double& { return c.host_link.bandwidth; }},
      {"host_link_efficiency", [](ClusterSpec& c) -> double& { return c.host_link.efficiency; }},
      {"host_memory_bytes", [](ClusterSpec& c) -> double& { return c.host_memory_bytes; }},
      {"host_memory_bytes_per_second", [](ClusterSpec& c) -> double& { return c.host_memory_bandwidth; }},
      {"nvme_read_bytes_per_second", [](ClusterSpec& c) -> double& { return c.nvme_read; }},
      {"nvme_write_bytes_per_second", [](ClusterSpec& c) -> double& { return c.nvme_write; }},
      {"hours_between_failures", [](ClusterSpec& c) -> double& { return c.hours_between_failures; }},
  };
  return kFields;
}

struct Text {
  const char* key;
  std::function<std::string&(ClusterSpec&)> value;
};

const std::vector<Text>& texts() {
  static const std::vector<Text> kTexts = {
      {"name", [](ClusterSpec& c) -> std::string& { return c.name; }},
      {"calibration", [](ClusterSpec& c) -> std::string& { return c.calibration; }},
      {"device", [](ClusterSpec& c) -> std::string& { return c.device.name; }},
      {"intra_link", [](ClusterSpec& c) -> std::string& { return c.intra.name; }},
      {"inter_link", [](ClusterSpec& c) -> std::string& { return c.inter.name; }},
      {"host_link", [](ClusterSpec& c) -> std::string& { return c.host_link.name; }},
  };
  return kTexts;
}

ClusterSpec read_cluster(const std::string& file) {
  const formats::JsonValue json = formats::read_json_file(file);
  INTARSIA_CHECK(kFormat, json.kind == formats::JsonValue::Kind::kObject, file, ": an object is expected");
  ClusterSpec cluster = cluster_presets().front();
  for (const formats::JsonMember& member : json.members) {
    const std::string where = concat(file, ":", member.place.line, ": ", printable(member.key));
    std::vector<std::string> known = {"devices_per_host"};
    bool found = false;
    for (const Text& text : texts()) {
      known.emplace_back(text.key);
      if (member.key != text.key) continue;
      INTARSIA_CHECK(kConfig, member.value.kind == formats::JsonValue::Kind::kString, where, ": a text is expected");
      text.value(cluster) = printable(member.value.text);
      found = true;
    }
    const std::optional<double> number = member.value.as_number();
    for (const Field& field : fields()) {
      known.emplace_back(field.key);
      if (member.key != field.key) continue;
      INTARSIA_CHECK(kConfig, number && *number >= 0, where, ": ", member.value.show(),
                     "; a number of at least 0 is expected");
      field.value(cluster) = *number;
      found = true;
    }
    if (member.key == "devices_per_host") {
      INTARSIA_CHECK(kConfig, number && *number >= 1, where, ": ", member.value.show(), "; at least 1 is expected");
      cluster.devices_per_host = static_cast<int>(*number);
      found = true;
    }
    const std::optional<std::string> close = nearest(member.key, known);
    INTARSIA_CHECK(kConfig, found, where, ": unknown key", close ? concat("; did you mean ", *close, "?") : "");
  }
  return cluster;
}

}  // namespace

std::string cluster_json(const ClusterSpec& from) {
  ClusterSpec cluster = from;
  std::string out = "{\n";
  for (const Text& text : texts())
    out += concat("  \"", text.key, "\": ", formats::json_quote(text.value(cluster)), ",\n");
  out += concat("  \"devices_per_host\": ", cluster.devices_per_host);
  for (const Field& field : fields()) out += concat(",\n  \"", field.key, "\": ", shortest(field.value(cluster)));
  return out + "\n}\n";
}

ClusterSpec find_cluster(const std::string& name_or_file) {
  std::vector<std::string> names;
  for (const ClusterSpec& cluster : cluster_presets()) {
    if (cluster.name == name_or_file) return cluster;
    names.push_back(cluster.name);
  }
  INTARSIA_CHECK(kUsage, std::filesystem::exists(name_or_file), "--cluster ", printable(name_or_file),
                 ": no such file and no cluster of that name; ready ones: ", join(names),
                 "; `intarsia plan --show-cluster NAME` prints one to start from");
  return read_cluster(name_or_file);
}

}  // namespace intarsia::plan
