#include "crash_replay.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "file_shim.h"

namespace intarsia::testing {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// "a/b" -> "a/", "b" -> "".
std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

bool has_children(const Tree& tree, const std::string& folder) {
  const auto next = tree.upper_bound(folder);
  return next != tree.end() && next->first.starts_with(folder);
}

bool there(const Tree& tree, const std::string& folder) { return folder.empty() || tree.contains(folder); }

// What the system would refuse in this state is left out.
void rename_in(Tree& tree, std::map<std::uint64_t, std::string>& place, const std::string& from,
               const std::string& to) {
  if (tree.contains(from)) {
    tree[to] = tree[from];
    tree.erase(from);
    for (auto& [object, path] : place)
      if (path == from) path = to;
    return;
  }
  const std::string old_folder = from + "/", new_folder = to + "/";
  if (!tree.contains(old_folder) || (tree.contains(new_folder) && has_children(tree, new_folder))) return;
  Tree moved;
  for (auto at = tree.begin(); at != tree.end();) {
    if (!at->first.starts_with(old_folder)) {
      ++at;
      continue;
    }
    moved[new_folder + at->first.substr(old_folder.size())] = at->second;
    at = tree.erase(at);
  }
  tree.merge(moved);
  for (auto& [object, path] : place)
    if (path.starts_with(old_folder)) path = new_folder + path.substr(old_folder.size());
}

void resize(std::string& bytes, std::uint64_t size, bool exact) {
  if (exact || size > bytes.size()) bytes.resize(size);
}

void write_part(std::string& bytes, std::uint64_t offset, const std::string& data) {
  resize(bytes, offset + data.size(), false);
  bytes.replace(offset, data.size(), data);
}

bool is_name(unsigned kind) {
  return kind == SHIM_CREATE || kind == SHIM_MKDIR || kind == SHIM_RENAME || kind == SHIM_REMOVE;
}

}  // namespace

std::vector<FileOperation> read_operations(const std::string& log_path) {
  std::ifstream log(log_path, std::ios::binary);
  std::vector<FileOperation> operations;
  shim_record head{};
  while (log.read(reinterpret_cast<char*>(&head), sizeof head)) {
    FileOperation& operation = operations.emplace_back();
    operation.kind = head.kind;
    operation.object = head.object;
    operation.offset = head.offset;
    operation.exact = head.exact != 0;
    for (const auto& [text, bytes] : {std::pair{&operation.path, std::size_t{head.path_bytes}},
                                      {&operation.target, std::size_t{head.target_bytes}},
                                      {&operation.data, std::size_t{head.data_bytes}}}) {
      text->resize(bytes);
      if (!log.read(text->data(), static_cast<std::streamsize>(bytes))) throw std::runtime_error("the log is cut off");
    }
  }
  return operations;
}

Tree read_tree(const std::string& root) {
  Tree tree;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string name = entry.path().lexically_relative(root).string();
    if (entry.is_directory()) {
      tree[name + "/"];
    } else {
      tree[name] = read_file(entry.path());
    }
  }
  return tree;
}

void write_tree(const Tree& tree, const std::string& root) {
  fs::remove_all(root);
  fs::create_directories(root);
  for (const auto& [path, bytes] : tree) {
    if (path.ends_with('/')) {
      fs::create_directory(root + "/" + path);
    } else {
      std::ofstream(root + "/" + path, std::ios::binary) << bytes;
    }
  }
}

CrashReplay::CrashReplay(Tree before, std::map<std::uint64_t, std::string> objects, const std::string& root,
                         std::vector<FileOperation> operations)
    : before_(std::move(before)), operations_(std::move(operations)) {
  // Numbers of inodes are used again, so each making of a file or folder draws a new one; folders are found by path.
  std::uint64_t next = 1;
  std::map<std::uint64_t, std::uint64_t> drawn;
  std::map<std::string, std::uint64_t> folders;
  for (const auto& [inode, path] : objects) folders[path] = drawn[inode] = next++;
  root_object_ = folders.at("");
  for (FileOperation& operation : operations_) {
    for (std::string* path : {&operation.path, &operation.target})
      if (!path->empty()) *path = path->substr(root.size() + 1);
    if (operation.kind == SHIM_CREATE || operation.kind == SHIM_MKDIR) drawn[operation.object] = next++;
    operation.object = drawn.contains(operation.object) ? drawn[operation.object] : 0;
    if (operation.kind == SHIM_MKDIR) folders[operation.path + "/"] = operation.object;
    if (is_name(operation.kind)) {
      owner_.push_back(folders.at(folder_of(operation.path)));
    } else {
      owner_.push_back(operation.object);
    }
    if (operation.kind == SHIM_RENAME && folders.contains(operation.path + "/")) {
      folders[operation.target + "/"] = folders[operation.path + "/"];
      folders.erase(operation.path + "/");
    }
  }
}

bool CrashReplay::syncs_root(std::size_t at) const {
  return operations_[at].kind == SHIM_FSYNC && operations_[at].object == root_object_;
}

bool CrashReplay::is_durable(std::size_t at, std::size_t count) const {
  for (std::size_t later = at + 1; later < count; ++later)
    if (operations_[later].kind == SHIM_FSYNC && operations_[later].object == owner_[at]) return true;
  return false;
}

Tree CrashReplay::state(std::size_t count, Names names, Data data, std::mt19937_64& random) const {
  const auto coin = [&] { return random() % 2 == 0; };
  const std::size_t names_until = names == Names::kPrefix ? random() % (count + 1) : count;
  Tree tree = before_;
  std::map<std::uint64_t, std::string> place;  // where each object made since lies
  for (std::size_t at = 0; at < count; ++at) {
    const FileOperation& operation = operations_[at];
    const bool durable = is_durable(at, count);
    if (is_name(operation.kind)) {
      if (!durable && (at >= names_until || (names == Names::kAny && coin()))) continue;
      if (!there(tree, folder_of(operation.path))) continue;
      if (operation.kind == SHIM_CREATE) {
        tree[operation.path];
        place[operation.object] = operation.path;
      } else if (operation.kind == SHIM_MKDIR) {
        tree[operation.path + "/"];
        place[operation.object] = operation.path + "/";
      } else if (operation.kind == SHIM_RENAME) {
        rename_in(tree, place, operation.path, operation.target);
      } else if (tree.erase(operation.path) == 0 && !has_children(tree, operation.path + "/")) {
        tree.erase(operation.path + "/");
      }
      continue;
    }
    const auto found = place.find(operation.object);
    if (operation.kind == SHIM_FSYNC || found == place.end() || !tree.contains(found->second)) continue;
    std::string& bytes = tree[found->second];
    if (!durable && (data == Data::kDropped || (data == Data::kAny && coin()))) continue;
    if (operation.kind == SHIM_RESIZE) {
      resize(bytes, operation.offset, operation.exact);
    } else if (!durable && data == Data::kAny && coin()) {  // torn
      write_part(bytes, operation.offset, operation.data.substr(0, random() % (operation.data.size() / 512 + 1) * 512));
    } else {
      write_part(bytes, operation.offset, operation.data);
    }
  }
  return tree;
}

}  // namespace intarsia::testing
