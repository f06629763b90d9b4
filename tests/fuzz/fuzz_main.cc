// fuzz_driver [--inputs N] [--seed S] [--target NAME] [--input FILE]: feeds N changed inputs to the readers of
// untrusted bytes, the same ones for the same S. A crash, a hang, an exception that is no intarsia::Error, or memory
// beyond kMostPerByte times the input and kConstant ends it with a message and the input in a file. Run in the
// repository's root.
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <new>

#include "intarsia/base/error.h"
#include "intarsia/formats/pickle/zip_file.h"
#include "intarsia/io/file.h"
#include "mutate.h"
#include "targets.h"

namespace {

constexpr std::size_t kMostBytes = 64 << 10;  // of one input
constexpr std::size_t kMostPerByte = 128;     // of memory: the tree of a JSON text is many times as large as the text
constexpr std::size_t kConstant = 4 << 20;    // bytes
constexpr int kHangSeconds = 20;

std::size_t live = 0, peak = 0;  // bytes from operator new; the driver has one thread

}  // namespace

#if !defined(__SANITIZE_ADDRESS__)
// NOLINTBEGIN
void* operator new(std::size_t bytes) {
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  live += malloc_usable_size(memory);
  peak = std::max(peak, live);
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  live -= malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
// NOLINTEND
#endif

namespace intarsia::fuzz {
namespace {

namespace fs = std::filesystem;

const std::string* current = nullptr;  // the input under way
const char* current_target = "";

// Async-signal-safe: the input goes to a file whatever has happened.
void die(int signal) {
  static char name[300];
  ::snprintf(name, sizeof name, "fuzz-%s.input", current_target);
  const int fd = ::open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (current != nullptr && ::write(fd, current->data(), current->size()) < 0) ::_exit(2);
  const char* const what = signal == SIGALRM ? "fuzz: a hang; the input is in " : "fuzz: a crash; the input is in ";
  (void)!::write(STDERR_FILENO, what, ::strlen(what));
  (void)!::write(STDERR_FILENO, name, ::strlen(name));
  (void)!::write(STDERR_FILENO, "\n", 1);
  ::_exit(1);
}

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The pickle in a file of torch.save; empty when there is none.
std::string pickle_of(const std::string& bytes) {
  try {
    for (const auto& record : formats::read_zip_directory(io::as_bytes(bytes), "seed"))
      if (record.name.ends_with("data.pkl")) return bytes.substr(record.begin, record.size);
  } catch (const Error&) {
  }
  return "";
}

void add_file(const fs::path& path, const Target& target, std::vector<std::string>& seeds) {
  for (const std::string& ending : target.endings) {
    const bool inner = ending.ends_with("#pickle");
    if (!path.string().ends_with(inner ? ending.substr(0, ending.size() - 7) : ending)) continue;
    std::string bytes = read_all(path);
    if (inner) bytes = pickle_of(bytes);
    if (!bytes.empty() && bytes.size() <= kMostBytes / 2) seeds.push_back(std::move(bytes));
  }
}

// In one order on every machine.
std::vector<std::string> seeds_of(const Target& target) {
  std::vector<std::string> seeds = target.seeds;
  std::vector<fs::path> paths;
  for (const std::string& place : target.files)
    for (const auto& entry : fs::recursive_directory_iterator(place))
      if (entry.is_regular_file()) paths.push_back(entry.path());
  std::ranges::sort(paths);
  for (const fs::path& path : paths) add_file(path, target, seeds);
  // Inputs that a reader once did wrong.
  const fs::path found = fs::path("tests/fuzz/found") / target.name;
  paths.clear();
  if (fs::exists(found))
    for (const auto& entry : fs::directory_iterator(found)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  for (const fs::path& path : paths) seeds.push_back(read_all(path));
  return seeds;
}

struct Tally {
  long accepted = 0, refused = 0;
  double most_per_byte = 0;
};

void run_one(const Target& target, const std::string& bytes, Tally& tally) {
  current = &bytes;
  const std::size_t before = live;
  peak = live;
  try {
    target.run(bytes);
    ++tally.accepted;
  } catch (const Error& error) {
    ++tally.refused;
    if (error.kind() == ErrorKind::kInternal) {
      std::cerr << "fuzz: " << target.name << ": " << error.what() << "\n";
      die(0);
    }
  } catch (const std::exception& error) {
    std::cerr << "fuzz: " << target.name << ": another exception: " << error.what() << "\n";
    die(0);
  }
  const std::size_t used = peak - before;
  if (used > kMostPerByte * bytes.size() + kConstant) {
    std::cerr << "fuzz: " << target.name << ": " << used << " bytes of memory for an input of " << bytes.size() << "\n";
    die(0);
  }
  if (used > kConstant / 4)
    tally.most_per_byte =
        std::max(tally.most_per_byte, static_cast<double>(used) / static_cast<double>(bytes.size() + 1));
}

void run_target(const Target& target, long inputs, std::uint64_t seed) {
  const std::vector<std::string> seeds = seeds_of(target);
  if (seeds.empty()) {
    std::cerr << "fuzz: " << target.name << " has no seeds; run it in the repository's root\n";
    std::exit(1);
  }
  current_target = target.name.c_str();
  Random random(seed);
  Tally tally;
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& bytes : seeds) run_one(target, bytes, tally);
  for (long n = 0; n < inputs; ++n) {
    if (n % 256 == 0) ::alarm(kHangSeconds);
    run_one(target, mutated(seeds, target.words, kMostBytes, random), tally);
  }
  ::alarm(0);
  current = nullptr;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%-12s %9ld inputs (%zu seeds), %ld accepted, %ld refused, %.0f a second", target.name.c_str(),
              tally.accepted + tally.refused, seeds.size(), tally.accepted, tally.refused,
              static_cast<double>(inputs) / seconds);
  if (tally.most_per_byte > 0) std::printf(", at most %.0f bytes of memory a byte", tally.most_per_byte);
  std::printf("\n");
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  long inputs = 100'000;
  std::uint64_t seed = 1;
  std::string only, file;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--inputs")
      inputs = std::atol(argv[i + 1]);
    else if (flag == "--seed")
      seed = std::strtoull(argv[i + 1], nullptr, 10);
    else if (flag == "--target")
      only = argv[i + 1];
    else if (flag == "--input")
      file = argv[i + 1];
    else
      return std::cerr << "fuzz: unknown flag " << flag << "\n", 2;
  }
  if (argc % 2 == 0)
    return std::cerr << "usage: fuzz_driver [--inputs N] [--seed S] [--target NAME [--input FILE]]\n", 2;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM}) ::signal(signal, die);
  const std::vector<Target> targets = make_targets();
  double shares = 0;
  for (const Target& target : targets) shares += only.empty() || only == target.name ? target.share : 0;
  if (shares == 0) return std::cerr << "fuzz: no target is called " << only << "\n", 2;
  for (const Target& target : targets) {
    if (!only.empty() && only != target.name) continue;
    if (file.empty()) {
      run_target(target, static_cast<long>(static_cast<double>(inputs) * target.share / shares) + 1, seed);
    } else {
      current_target = target.name.c_str();
      Tally tally;
      run_one(target, read_all(file), tally);
      std::cout << target.name << (tally.accepted > 0 ? ": accepted\n" : ": refused\n");
    }
  }
  return 0;
}

}  // namespace
}  // namespace intarsia::fuzz

int main(int argc, char** argv) { return intarsia::fuzz::run(argc, argv); }
