// Cache hits by UDP on loopback, 64 outstanding: a responder that only turns datagrams round (the floor), the policy resolver
// without and with audit records, and dnsmasq answering from its own data. Rounds are interleaved and medians compared, in
// lookups a second and in CPU time of the server for each.
//
//   resolver_bench [SECONDS_PER_ROUND] [ROUNDS]
#include <fmt/format.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/post.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "audit/audit.h"
#include "dns/io/server.h"
#include "dns/message.h"
#include "policy/io/load.h"

namespace {

using namespace sluice;  // NOLINT: a program of one file
using std::chrono::duration;
using std::chrono::steady_clock;

constexpr int kOutstanding = 64;
const char* const kName = "api.example.test";

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

UniqueFd BoundUdp(uint16_t* port) {
  UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  auto length = static_cast<socklen_t>(Endpoint{IpAddress::FromV4(0x7f000001), 0}.ToSockaddr(&address));
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd.get(), generic, length) != 0 || getsockname(fd.get(), generic, &length) != 0) Die("bind");
  *port = Endpoint::FromSockaddr(generic, length)->port;
  return fd;
}

double ThreadCpu(std::thread& thread) {
  clockid_t clock{};
  timespec now{};
  if (pthread_getcpuclockid(thread.native_handle(), &clock) != 0 || clock_gettime(clock, &now) != 0) Die("thread clock");
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Subject {
  std::string name;
  uint16_t port = 0;
  std::function<double()> cpu;  ///< seconds used by its serving thread so far
  std::vector<double> qps{};
  std::vector<double> cpu_us{};
};

// Keeps kOutstanding queries under way for `seconds`; returns the answers counted. A lost datagram is made up for.
uint64_t Drive(uint16_t port, double seconds) {
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage server{};
  const auto length = static_cast<socklen_t>(Endpoint{IpAddress::FromV4(0x7f000001), port}.ToSockaddr(&server));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&server), length) != 0) Die("connect");
  const timeval limit{0, 200000};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  dns::Message question;
  question.header.recursion_desired = true;
  question.questions.push_back({*dns::Name::FromText(kName), dns::Type::kA, dns::kClassIn});
  const auto wire = dns::Encode(question);
  const auto send_one = [&] { [[maybe_unused]] const ssize_t sent = send(fd.get(), wire.data(), wire.size(), 0); };
  std::array<uint8_t, 1500> answer{};
  uint64_t count = 0;
  for (int i = 0; i < kOutstanding; ++i) send_one();
  const auto end = steady_clock::now() + duration<double>(seconds);
  while ((count & 63) != 0 || steady_clock::now() < end) {
    if (recv(fd.get(), answer.data(), answer.size(), 0) > 0) ++count;
    send_one();
  }
  return count;
}

// Turns each query round with QR set.
class Floor {
 public:
  Floor() : fd_(BoundUdp(&port)), thread([this] { Run(); }) {
    const timeval limit{0, 100000};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~Floor() {
    stop_ = true;
    thread.join();
  }

 private:
  void Run() {
    std::array<uint8_t, 1500> bytes{};
    while (!stop_) {
      sockaddr_storage peer{};
      socklen_t length = sizeof peer;
      const ssize_t size = recvfrom(fd_.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&peer), &length);
      if (size <= 0) continue;
      bytes[2] |= 0x80;
      sendto(fd_.get(), bytes.data(), static_cast<size_t>(size), 0, reinterpret_cast<sockaddr*>(&peer), length);
    }
  }

 public:
  uint16_t port = 0;

 private:
  UniqueFd fd_;
  std::atomic<bool> stop_{false};

 public:
  std::thread thread;
};

class CountOnly final : public policy::EventSink {
 public:
  bool Record(policy::DecisionEvent) noexcept override { return ++count_ != 0; }
  bool Record(policy::ExchangeEvent) noexcept override { return true; }
  std::string NextDenialId() override { return "d-0"; }

 private:
  std::atomic<uint64_t> count_{0};
};

class Resolver {
 public:
  Resolver(Endpoint upstream, policy::EventSink& sink) : policy_(Policy()) {
    upstream_ = std::move(
        *dns::UpstreamClient::Create(context_, {.servers = {{.endpoint = upstream}}, .timeout = std::chrono::seconds(2)}));
    dns::ServerOptions options;
    options.udp = BoundUdp(&port);
    options.flood.reset();  // one socket asks all there is to ask
    server_ = std::move(*dns::Server::Start(context_, std::move(options), *upstream_, pool_, policy_, sink));
    thread = std::thread([this] { context_.run(); });
  }
  ~Resolver() {
    boost::asio::post(context_, [this] {
      server_.reset();
      upstream_.reset();
    });
    thread.join();
  }

 private:
  static policy::SnapshotPtr Policy() {
    auto loaded = policy::LoadRules({.extra_allows = {std::string("GET ") + kName + "/**"}, .check_executables = false});
    if (!loaded) Die("policy");
    return *loaded;
  }

  boost::asio::io_context context_{1};
  policy::CurrentPolicy policy_;
  dns::SyntheticPool pool_;
  std::unique_ptr<dns::UpstreamClient> upstream_;
  std::unique_ptr<dns::Server> server_;

 public:
  uint16_t port = 0;
  std::thread thread;
};

class Dnsmasq {
 public:
  Dnsmasq() {
    {
      const UniqueFd probe = BoundUdp(&port);
    }
    std::vector<std::string> words = {"dnsmasq",
                                      "--keep-in-foreground",
                                      "--conf-file=/dev/null",
                                      "--pid-file",
                                      "--no-resolv",
                                      "--no-hosts",
                                      "--port=" + std::to_string(port),
                                      "--listen-address=127.0.0.1",
                                      "--bind-interfaces",
                                      "--user=",
                                      "--local-ttl=300",
                                      "--local=/test/",
                                      std::string("--host-record=") + kName + ",192.0.2.1,2001:db8::1"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    if (posix_spawn(&pid_, "/usr/sbin/dnsmasq", nullptr, nullptr, argv.data(), environ) != 0)
      Die("dnsmasq (Debian's dnsmasq-base)");
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  ~Dnsmasq() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] double Cpu() const {
    std::ifstream stat("/proc/" + std::to_string(pid_) + "/stat");
    std::string word;
    uint64_t ticks = 0;
    for (int field = 1; stat >> word && field <= 15; ++field)
      if (field >= 14) ticks += std::stoull(word);
    return static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }

  uint16_t port = 0;

 private:
  pid_t pid_ = 0;
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  const auto file = std::filesystem::temp_directory_path() / ("sluice-resolver-bench-" + std::to_string(getpid()));
  {
    Dnsmasq dnsmasq;
    Floor floor;
    CountOnly count;
    auto writer =
        audit::Writer::Start({.file = file.string(), .console = false, .sandbox = "bench", .labels = {}, .queue = 1 << 16});
    if (!writer) Die("audit file");
    const Endpoint upstream{IpAddress::FromV4(0x7f000001), dnsmasq.port};
    Resolver plain(upstream, count);
    Resolver audited(upstream, **writer);
    Subject subjects[] = {{"floor", floor.port, [&] { return ThreadCpu(floor.thread); }},
                          {"resolver", plain.port, [&] { return ThreadCpu(plain.thread); }},
                          {"resolver+audit", audited.port, [&] { return ThreadCpu(audited.thread); }},
                          {"dnsmasq", dnsmasq.port, [&] { return dnsmasq.Cpu(); }}};
    for (Subject& subject : subjects) Drive(subject.port, 0.2);
    for (int round = 0; round < rounds; ++round) {
      for (Subject& subject : subjects) {
        const double before = subject.cpu();
        const auto start = steady_clock::now();
        const auto answers = static_cast<double>(Drive(subject.port, seconds));
        subject.qps.push_back(answers / duration<double>(steady_clock::now() - start).count());
        subject.cpu_us.push_back((subject.cpu() - before) * 1e6 / answers);
      }
    }
    fmt::print("{:<16}{:>12}{:>10}{:>14}{:>10}\n", "", "lookups/s", "/floor", "CPU us each", "/floor");
    for (const Subject& s : subjects)
      fmt::print("{:<16}{:>12.0f}{:>10.2f}{:>14.2f}{:>10.2f}\n", s.name, Median(s.qps), Median(s.qps) / Median(subjects[0].qps),
                 Median(s.cpu_us), Median(s.cpu_us) / Median(subjects[0].cpu_us));
    fmt::print("resolver / dnsmasq: {:.2f} in lookups/s, {:.2f} in CPU\n", Median(subjects[1].qps) / Median(subjects[3].qps),
               Median(subjects[1].cpu_us) / Median(subjects[3].cpu_us));
  }
  std::filesystem::remove(file);
  return 0;
}
