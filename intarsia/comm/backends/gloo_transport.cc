#include "intarsia/comm/backends/gloo_transport.h"

#include <signal.h>

#include <cstdlib>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/comm/backends/listen.h"

namespace intarsia::comm {
namespace {

using std::chrono::milliseconds;

constexpr const char* kReasonKey = "stop";
constexpr const char* kLeftKey = "left";
// How long the rank that serves the store stays for the others.
constexpr milliseconds kLinger{1500};

milliseconds to_milliseconds(double seconds) { return milliseconds(static_cast<std::int64_t>(seconds * 1000)); }

std::string first_line(std::string_view text) { return printable(text.substr(0, text.find('\n'))); }

class C10dMessage final : public GlooTransport::Message {
 public:
  C10dMessage(at::Tensor tensor, c10::intrusive_ptr<c10d::Work> work)
      : tensor_(std::move(tensor)), work_(std::move(work)) {}
  void wait(milliseconds timeout) override { work_->wait(timeout); }

 private:
  at::Tensor tensor_;
  c10::intrusive_ptr<c10d::Work> work_;
};

c10::intrusive_ptr<c10d::TCPStore> open_store(const GlooOptions& options) {
  c10d::TCPStoreOptions store;
  store.isServer = options.rank == 0 && !options.store_served;
  store.port = static_cast<std::uint16_t>(options.port);
  store.numWorkers = static_cast<std::size_t>(options.size);
  store.waitWorkers = false;
  store.timeout = to_milliseconds(options.timeout_seconds);
  if (store.isServer) {
    // Our own socket: bound to one interface, where c10d would listen on all.
    store.masterListenFd = options.listen_fd >= 0 ? options.listen_fd : listen_on(options.address, options.port).fd;
  }
  try {
    return c10::make_intrusive<c10d::TCPStore>(options.address, store);
  } catch (const std::exception& error) {
    fail(ErrorKind::kComm, "rank ", options.rank, " of ", options.size, " cannot meet rank 0 at ",
         printable(options.address), ":", options.port, " (", shortest(options.timeout_seconds),
         " s allowed): ", first_line(error.what()));
  }
}

class C10dTransport final : public GlooTransport {
 public:
  explicit C10dTransport(const GlooOptions& options)
      : rank_(options.rank), size_(options.size), serves_(options.rank == 0 && !options.store_served) {
    const auto tcp = open_store(options);
    tcp->setTimeout(to_milliseconds(options.timeout_seconds));
    store_ = c10::make_intrusive<c10d::PrefixStore>(options.store_prefix + "intarsia/", tcp);
    auto group = c10d::ProcessGroupGloo::Options::create(to_milliseconds(options.timeout_seconds));
    const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
    try {
      group->devices.push_back(
          interface != nullptr && *interface != '\0'
              ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
              : c10d::ProcessGroupGloo::createDeviceForHostname(local_address_towards(options.address, options.port)));
      group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store_, rank_, size_, group);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      fail(ErrorKind::kComm, "rank ", rank_, " of ", size_, " cannot connect to all ranks (",
           shortest(options.timeout_seconds), " s allowed): ", first_line(error.what()));
    }
  }

  std::unique_ptr<Message> send(const at::Tensor& tensor, int to, int tag) override {
    std::vector<at::Tensor> tensors{tensor};
    return std::make_unique<C10dMessage>(tensor, group_->send(tensors, to, tag));
  }

  std::unique_ptr<Message> recv(const at::Tensor& tensor, int from, int tag) override {
    std::vector<at::Tensor> tensors{tensor};
    return std::make_unique<C10dMessage>(tensor, group_->recv(tensors, from, tag));
  }

  std::optional<Settled> settle_reason(const std::string& reason) noexcept override {
    try {
      // The rank in front tells who was first, should several have the same reason.
      const std::string mine = concat(rank_, ":", reason);
      const std::string holds = store_->compareSet(kReasonKey, std::string(), mine);
      return Settled{holds == mine, holds.substr(holds.find(':') + 1)};
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }

  void disconnect() noexcept override { group_.reset(); }

  void leave() noexcept override {
    try {
      std::int64_t left = store_->add(kLeftKey, 1);
      const auto until = std::chrono::steady_clock::now() + kLinger;
      while (serves_ && left < size_ && std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(milliseconds(5));
        left = store_->add(kLeftKey, 0);
      }
    } catch (const std::exception&) {
      // The serving rank is gone: there is nobody left to tell.
    }
  }

 private:
  int rank_;
  int size_;
  bool serves_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

std::unique_ptr<GlooTransport> GlooTransport::connect(const GlooOptions& options) {
  // gloo writes to its sockets without MSG_NOSIGNAL: a rank whose peer has just died would die of it, and say nothing.
  struct sigaction now = {};
  ::sigaction(SIGPIPE, nullptr, &now);
  if (now.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
  return std::make_unique<C10dTransport>(options);
}

}  // namespace intarsia::comm
