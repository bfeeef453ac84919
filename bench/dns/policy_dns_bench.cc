// The policy resolver with true addresses beside what one would run without it, in one run: dnsmasq, unbound, dnsdist and a bare
// responder for names that a cache answers, and the same as forwarders for names that none does. The server has one core and the
// load generator the other, with 64 lookups under way. Rounds are interleaved and medians compared, in lookups a second and in
// CPU time of the server for each.
//
//   policy_dns_bench [SECONDS_PER_ROUND] [ROUNDS] [alone]
//
// "alone" leaves the others out, for a profiler.
//
// "withheld" is the same resolver with a Publish that keeps the core busy for as long as a batch of set elements takes (measured
// on Linux 6.18: 5 µs, and half a microsecond for each element). The kernel's own part is in the fence's benchmark.
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
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
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>

#include "dns/io/server.h"
#include "dns/message.h"
#include "policy/io/load.h"

namespace {

using namespace sluice;  // NOLINT: a program of one file
using std::chrono::duration;
using std::chrono::steady_clock;

constexpr size_t kOutstanding = 64;
constexpr int kServerCore = 1;  ///< of two; the load and the upstream have the other
constexpr std::chrono::microseconds kCommit{5};
constexpr std::chrono::nanoseconds kCommitElement{500};  ///< requirements: 5.3 µs for one, 11.7 for ten
const char* const kHit = "api.bench.test";

[[noreturn]] void Die(const std::string& what) {
  std::perror(what.c_str());
  std::exit(1);
}

void Pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  (void)sched_setaffinity(0, sizeof set, &set);
}

UniqueFd BoundUdp(uint16_t* port) {
  UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  auto length = static_cast<socklen_t>(Endpoint{IpAddress::FromV4(0x7f000001), 0}.ToSockaddr(&address));
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd.get(), generic, length) != 0 || getsockname(fd.get(), generic, &length) != 0) Die("bind");
  const int room = 4 << 20;
  if (setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0)
    (void)setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
  *port = Endpoint::FromSockaddr(generic, length)->port;
  return fd;
}

double ThreadCpu(std::thread& thread) {
  clockid_t clock{};
  timespec now{};
  if (pthread_getcpuclockid(thread.native_handle(), &clock) != 0 || clock_gettime(clock, &now) != 0) Die("thread clock");
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Datagrams received and sent many at a time.
struct Batch {
  static constexpr size_t kMost = 32;
  std::array<std::array<uint8_t, 512>, kMost> bytes{};
  std::array<sockaddr_storage, kMost> peers{};
  std::array<iovec, kMost> vectors{};
  std::array<mmsghdr, kMost> headers{};

  int Receive(int fd, int flags) {
    for (size_t i = 0; i < kMost; ++i) {
      vectors[i] = {bytes[i].data(), bytes[i].size()};
      headers[i] = {};
      headers[i].msg_hdr = {&peers[i], sizeof peers[i], &vectors[i], 1, nullptr, 0, 0};
    }
    return recvmmsg(fd, headers.data(), kMost, flags, nullptr);
  }
  void Send(int fd, int count) {
    for (int i = 0; i < count; ++i) vectors[static_cast<size_t>(i)].iov_len = headers[static_cast<size_t>(i)].msg_len;
    for (int sent = 0; sent < count;) {
      const int n = sendmmsg(fd, &headers[static_cast<size_t>(sent)], static_cast<unsigned>(count - sent), 0);
      sent += n > 0 ? n : 1;
    }
  }
};

// A responder on a thread of its own. kTurn: the query with QR set, the least that a server can do. kAnswer: one address to every
// A.
class Responder {
 public:
  enum class Kind : uint8_t { kTurn, kAnswer };
  Responder(Kind kind, int core) : fd_(BoundUdp(&port)), thread([this, kind, core] { Run(kind, core); }) {
    const timeval limit{0, 100000};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~Responder() {
    stop_ = true;
    thread.join();
  }

 private:
  void Run(Kind kind, int core) {
    Pin(core);
    if (kind == Kind::kTurn) return Turn();
    auto batch = std::make_unique<Batch>();
    while (!stop_) {
      const int count = batch->Receive(fd_.get(), MSG_WAITFORONE);
      for (int i = 0; i < count; ++i) Answer(batch.get(), static_cast<size_t>(i));
      if (count > 0) batch->Send(fd_.get(), count);
    }
  }
  void Turn() {
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
  // The question as it came, without what follows it, and one A record that points to it.
  static void Answer(Batch* batch, size_t i) {
    auto& bytes = batch->bytes[i];
    size_t end = 12;
    while (end < 400 && bytes[end] != 0) end += bytes[end] + 1u;
    end += 5;
    static constexpr uint8_t kRecord[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 93, 184, 216, 34};
    bytes[2] = 0x85;
    bytes[3] = 0x80;
    bytes[7] = 1;
    bytes[9] = bytes[11] = 0;
    std::memcpy(&bytes[end], kRecord, sizeof kRecord);
    batch->headers[i].msg_len = static_cast<unsigned>(end + sizeof kRecord);
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

enum class Withholding : uint8_t { kNo, kYes };

class Resolver {
 public:
  Resolver(Endpoint upstream, policy::EventSink& sink, Withholding withholding) : policy_(Policy()) {
    upstream_ = std::move(
        *dns::UpstreamClient::Create(context_, {.servers = {{.endpoint = upstream}}, .timeout = std::chrono::seconds(2)}));
    dns::ServerOptions options;
    options.udp = BoundUdp(&port);
    options.flood.reset();  // one socket asks all there is to ask
    options.limits = {.new_names_per_minute = 1e12,
                      .client_per_second = 1e9,
                      .client_burst = 1e9,
                      .upstream_per_second = 1e9,
                      .upstream_burst = 1e9};
    options.history = std::make_shared<dns::NameHistory>();
    if (withholding == Withholding::kYes)
      options.publish = [](std::span<const dns::Lease> leases, std::chrono::seconds) -> Result<void> {
        const auto end = steady_clock::now() + kCommit + kCommitElement * leases.size();
        while (steady_clock::now() < end) {
        }
        return {};
      };
    server_ = std::move(*dns::Server::Start(context_, std::move(options), *upstream_, pool_, policy_, sink));
    thread = std::thread([this] {
      Pin(kServerCore);
      context_.run();
    });
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
    auto loaded = policy::LoadText("version: 1\nsettings: { dns: real }\nrules:\n  - allow: tcp **.bench.test:443\n", "bench");
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

// Another resolver, with the same core to itself.
class Peer {
 public:
  Peer(std::string name, const char* program, const std::function<std::vector<std::string>(const Peer&)>& words) {
    folder = (std::filesystem::temp_directory_path() / "sluice-dns-bench-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) Die("mkdtemp");
    {
      const UniqueFd probe = BoundUdp(&port);
    }
    for (const char* place : {"/usr/sbin/", "/usr/bin/"})
      if (std::filesystem::exists(std::string(place) + program)) path = std::string(place) + program;
    if (path.empty()) {
      fmt::print("{} is not installed\n", name);
      return;
    }
    std::vector<std::string> all = {"/usr/bin/taskset", "-c", std::to_string(kServerCore), path};
    for (std::string& word : words(*this)) all.push_back(std::move(word));
    std::vector<char*> argv;
    for (std::string& word : all) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, (folder + "/out").c_str(), O_WRONLY | O_CREAT, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    if (posix_spawn(&pid_, all[0].c_str(), &actions, nullptr, argv.data(), environ) != 0) Die(name);
    posix_spawn_file_actions_destroy(&actions);
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  }
  ~Peer() {
    if (pid_ > 0) {
      kill(pid_, SIGTERM);
      waitpid(pid_, nullptr, 0);
    }
    std::filesystem::remove_all(folder);
  }
  [[nodiscard]] bool running() const { return pid_ > 0; }
  [[nodiscard]] double Cpu() const {
    std::ifstream stat("/proc/" + std::to_string(pid_) + "/stat");
    std::string word;
    uint64_t ticks = 0;
    for (int field = 1; stat >> word && field <= 15; ++field)
      if (field >= 14) ticks += std::stoull(word);
    return static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder + "/" + name) << text;
    return folder + "/" + name;
  }

  std::string folder;
  std::string path;
  uint16_t port = 0;

 private:
  pid_t pid_ = 0;
};

std::vector<std::string> DnsmasqWords(const Peer& peer, uint16_t upstream) {
  return {"--keep-in-foreground",
          "--conf-file=/dev/null",
          "--pid-file",
          "--no-resolv",
          "--no-hosts",
          fmt::format("--port={}", peer.port),
          "--listen-address=127.0.0.1",
          "--bind-interfaces",
          "--user=",
          "--cache-size=10000",
          "--dns-forward-max=1000",
          fmt::format("--server=127.0.0.1#{}", upstream)};
}

std::vector<std::string> UnboundWords(const Peer& peer, uint16_t upstream) {
  const std::string conf = peer.Write(
      "unbound.conf",
      fmt::format("server:\n  do-daemonize: no\n  chroot: \"\"\n  username: \"\"\n  directory: \"{0}\"\n  pidfile: \"\"\n"
                  "  use-syslog: no\n  logfile: \"{0}/log\"\n  num-threads: 1\n  interface: 127.0.0.1@{1}\n"
                  "  access-control: 127.0.0.0/8 allow\n  do-not-query-localhost: no\n  module-config: \"iterator\"\n  "
                  "local-zone: \"test.\" transparent\n"
                  "  num-queries-per-thread: 4096\n  outgoing-range: 4096\n  so-rcvbuf: 4m\n"
                  "forward-zone:\n  name: \".\"\n  forward-addr: 127.0.0.1@{2}\nremote-control:\n  control-enable: no\n",
                  peer.folder, peer.port, upstream));
  return {"-d", "-p", "-c", conf};
}

std::vector<std::string> DnsdistWords(const Peer& peer, uint16_t upstream) {
  const std::string conf =
      peer.Write("dnsdist.conf", fmt::format("setSecurityPollSuffix('')\nsetLocal('127.0.0.1:{}')\nnewServer{{address='127.0.0.1:"
                                             "{}', sockets=16, healthCheckMode='up'}}\n"
                                             "pc = newPacketCache(100000)\ngetPool(''):setCache(pc)\n",
                                             peer.port, upstream));
  return {"--supervised", "--disable-syslog", "-C", conf};
}

struct Subject {
  std::string name;
  uint16_t port = 0;
  std::function<double()> cpu;  ///< seconds used by its serving thread so far
  std::vector<double> qps{};
  std::vector<double> cpu_us{};
};

enum class Names : uint8_t { kOne, kFresh, kDenied };

// Keeps kOutstanding queries under way for `seconds`; returns the answers counted. A lost datagram is made up for.
class Load {
 public:
  uint64_t Drive(uint16_t port, Names names, double seconds) {
    fd_.Reset(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const auto length = static_cast<socklen_t>(Endpoint{IpAddress::FromV4(0x7f000001), port}.ToSockaddr(&server_));
    if (connect(fd_.get(), reinterpret_cast<sockaddr*>(&server_), length) != 0) Die("connect");
    const timeval limit{0, 200000};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    for (size_t i = 0; i < kOutstanding; i += Batch::kMost) Send(names, Batch::kMost);
    uint64_t count = 0;
    failed = 0;
    const auto end = steady_clock::now() + duration<double>(seconds);
    while (steady_clock::now() < end) {
      const int got = answers_->Receive(fd_.get(), MSG_WAITFORONE);
      for (int i = 0; i < got; ++i) failed += (answers_->bytes[static_cast<size_t>(i)][3] & 0x0f) != 0 ? 1 : 0;
      if (got > 0) count += static_cast<uint64_t>(got);
      Send(names, got > 0 ? static_cast<size_t>(got) : kOutstanding);
    }
    return count;
  }
  uint64_t failed = 0;

 private:
  void Send(Names names, size_t count) {
    for (size_t done = 0; done < count;) {
      const size_t some = std::min(count - done, Batch::kMost);
      for (size_t i = 0; i < some; ++i) {
        const std::string name = names == Names::kOne     ? kHit
                                 : names == Names::kFresh ? fmt::format("n{:08x}.bench.test", next_++)
                                                          : "api.bench.test.ns.svc.cluster.local";
        auto& bytes = questions_->bytes[i];
        bytes.fill(0);
        bytes[1] = static_cast<uint8_t>(next_);
        bytes[2] = 1;
        bytes[5] = 1;
        size_t at = 12;
        for (size_t from = 0; from < name.size();) {
          const size_t dot = std::min(name.find('.', from), name.size());
          bytes[at++] = static_cast<uint8_t>(dot - from);
          std::memcpy(&bytes[at], name.data() + from, dot - from);
          at += dot - from;
          from = dot + 1;
        }
        bytes[at + 2] = bytes[at + 4] = 1;
        questions_->vectors[i] = {bytes.data(), at + 5};
        questions_->headers[i] = {};
        questions_->headers[i].msg_hdr = {nullptr, 0, &questions_->vectors[i], 1, nullptr, 0, 0};
      }
      [[maybe_unused]] const int sent = sendmmsg(fd_.get(), questions_->headers.data(), static_cast<unsigned>(some), 0);
      done += some;
    }
  }

  UniqueFd fd_;
  sockaddr_storage server_{};
  uint32_t next_ = 0;
  std::unique_ptr<Batch> answers_ = std::make_unique<Batch>();
  std::unique_ptr<Batch> questions_ = std::make_unique<Batch>();
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void Measure(const char* what, std::vector<Subject> subjects, Names names, double seconds, int rounds) {
  Load load;
  for (Subject& subject : subjects) load.Drive(subject.port, names, 0.3);
  for (int round = 0; round < rounds; ++round) {
    for (Subject& subject : subjects) {
      const double before = subject.cpu();
      const auto start = steady_clock::now();
      const auto answers = static_cast<double>(load.Drive(subject.port, names, seconds));
      subject.qps.push_back(answers / duration<double>(steady_clock::now() - start).count());
      subject.cpu_us.push_back((subject.cpu() - before) * 1e6 / std::max(answers, 1.0));
      if (names != Names::kDenied && load.failed * 100 > static_cast<uint64_t>(answers))
        fmt::print("{}: {} of {:.0f} answers are failures\n", subject.name, load.failed, answers);
    }
  }
  fmt::print("-- {}\n", what);
  for (const Subject& s : subjects)
    fmt::print("{:<20}{:>12.0f} lookups/s{:>9.2f} us CPU each   sluice / this: {:.2f}\n", s.name, Median(s.qps), Median(s.cpu_us),
               Median(subjects[0].qps) / Median(s.qps));
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  Pin(0);
  Responder upstream(Responder::Kind::kAnswer, 0);
  Responder floor(Responder::Kind::kTurn, kServerCore);
  CountOnly sink;
  const Endpoint asked{IpAddress::FromV4(0x7f000001), upstream.port};
  Resolver plain(asked, sink, Withholding::kNo);
  Resolver withheld(asked, sink, Withholding::kYes);
  Measure("a denial", {{"sluice", plain.port, [&] { return ThreadCpu(plain.thread); }}}, Names::kDenied, seconds, rounds);
  if (argc > 3) {
    Measure("a cache answers", {{"sluice", plain.port, [&] { return ThreadCpu(plain.thread); }}}, Names::kOne, seconds, rounds);
    Measure("no cache answers", {{"sluice", plain.port, [&] { return ThreadCpu(plain.thread); }}}, Names::kFresh, seconds,
            rounds);
    return 0;
  }
  const Peer dnsmasq("dnsmasq", "dnsmasq", [&](const Peer& peer) { return DnsmasqWords(peer, upstream.port); });
  const Peer unbound("unbound", "unbound", [&](const Peer& peer) { return UnboundWords(peer, upstream.port); });
  const Peer dnsdist("dnsdist", "dnsdist", [&](const Peer& peer) { return DnsdistWords(peer, upstream.port); });
  const Subject ours{"sluice", plain.port, [&] { return ThreadCpu(plain.thread); }};
  const Subject ours_withheld{"sluice, withheld", withheld.port, [&] { return ThreadCpu(withheld.thread); }};
  std::vector<Subject> others;
  for (const auto& [name, peer] :
       {std::pair("dnsmasq", &dnsmasq), std::pair("unbound", &unbound), std::pair("dnsdist", &dnsdist)})
    if (peer->running()) others.push_back({name, peer->port, [peer] { return peer->Cpu(); }});
  std::vector<Subject> hit = {ours, {"floor", floor.port, [&] { return ThreadCpu(floor.thread); }}};
  hit.insert(hit.end(), others.begin(), others.end());
  Measure("a cache answers", std::move(hit), Names::kOne, seconds, rounds);
  std::vector<Subject> miss = {ours, ours_withheld};
  miss.insert(miss.end(), others.begin(), others.end());
  Measure("no cache answers", std::move(miss), Names::kFresh, seconds, rounds);
  return 0;
}
