#pragma once

// What the benchmarks of lookups run beside each other: a bare responder, the policy resolver as the sidecar and as `sluice run`
// set it up, and other people's resolvers as processes. Each on the core it is given. Failures end the program.

#include <sys/socket.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "dns/io/server.h"
#include "dns/synthetic.h"
#include "policy/event.h"
#include "supervisor/io/fence.h"

namespace sluice::bench {

[[noreturn]] void Die(const std::string& what);
template <class T>
T Need(Result<T> result) {
  if (!result) Die(result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// The calling thread; a machine with fewer cores leaves it where it is.
void Pin(int core);
/// A network namespace of this program's own, its `lo` up; a user namespace too where it is not root. Before any thread.
void EnterNamespace();
/// With ip(8), nft(8) and their like on its path.
void Shell(const std::string& command);
/// On 127.0.0.1, with room for some thousands of datagrams.
[[nodiscard]] UniqueFd BoundUdp(uint16_t* port);
/// Seconds of CPU that it has used.
[[nodiscard]] double CpuOf(std::thread& thread);

/// Datagrams received and sent many at a time.
struct Batch {
  static constexpr size_t kMost = 32;
  std::array<std::array<uint8_t, 512>, kMost> bytes{};
  std::array<sockaddr_storage, kMost> peers{};
  std::array<iovec, kMost> vectors{};
  std::array<mmsghdr, kMost> headers{};

  int Receive(int fd, int flags);
  /// Back to where they came from, as long as msg_len says.
  void Send(int fd, int count);
};

/// Writes a question of type A into `at`, at most 512 octets; returns its length.
size_t WriteQuestion(uint8_t* at, uint16_t id, std::string_view name);

/// Answers on a thread of its own, from a socket that the caller made.
class Responder {
 public:
  enum class Kind : uint8_t {
    kTurn,    ///< the query with QR set, one system call for each: the least that a server can do
    kAnswer,  ///< one address to every A: kFirstAddress and what the first label, "n" and hexadecimal digits, says
  };
  static constexpr uint32_t kFirstAddress = 0x97400000;  ///< 151.64.0.0
  Responder(Kind kind, UniqueFd socket, int core);
  ~Responder();

  std::thread thread;  // declared first, started last

 private:
  void Run(Kind kind);
  void Turn();

  UniqueFd fd_;
  std::atomic<bool> stop_{false};
};

class CountOnly final : public policy::EventSink {
 public:
  bool Record(policy::DecisionEvent) noexcept override { return ++count_ != 0; }
  bool Record(policy::ExchangeEvent) noexcept override { return true; }
  std::string NextDenialId() override { return "d-0"; }

 private:
  std::atomic<uint64_t> count_{0};
};

/// The policy resolver on a thread and a core of its own, without bounds on who asks how much.
struct ResolverPlan {
  std::string policy;
  dns::UpstreamOptions upstream;
  policy::EventSink* sink = nullptr;
  int core = 0;
  dns::Publish publish{};
};
class Resolver {
 public:
  Resolver(ResolverPlan plan, UniqueFd udp);
  ~Resolver();

  std::thread thread;

 private:
  boost::asio::io_context context_{1};
  policy::CurrentPolicy policy_;
  dns::SyntheticPool pool_;
  std::unique_ptr<dns::UpstreamClient> upstream_;
  std::unique_ptr<dns::Server> server_;
};

/// A fence in a namespace of its own, where nothing flows: what the kernel's part of an answer costs.
[[nodiscard]] std::unique_ptr<supervisor::Fence> FenceElsewhere();
/// As the sidecar publishes.
[[nodiscard]] dns::Publish PublishTo(supervisor::Fence* fence);

/// Another resolver, a process on a core of its own; `words` are its command, told its folder and port.
class Peer {
 public:
  using Words = std::function<std::vector<std::string>(const Peer&)>;
  /// `program` is looked for in /usr/sbin and /usr/bin; where it is not, running() is false.
  Peer(const char* program, int core, const Words& words);
  ~Peer();
  [[nodiscard]] bool running() const { return pid_ > 0; }
  [[nodiscard]] double Cpu() const;  ///< seconds
  /// A file in its folder; returns the path.
  [[nodiscard]] std::string Write(const std::string& name, const std::string& text) const;

  std::string folder;
  uint16_t port = 0;

 private:
  pid_t pid_ = 0;
};

/// Forwarders to 127.0.0.1:`upstream` with a cache.
[[nodiscard]] Peer::Words Dnsmasq(uint16_t upstream, const std::vector<std::string>& more = {});
[[nodiscard]] Peer::Words Unbound(uint16_t upstream);
/// It asks from `sockets` ports, which it keeps.
[[nodiscard]] Peer::Words Dnsdist(uint16_t upstream, int sockets = 16);

}  // namespace sluice::bench
