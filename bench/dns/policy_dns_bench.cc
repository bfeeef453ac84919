// The policy resolver beside what one would run without it, in one run: dnsmasq, unbound, dnsdist and a bare responder for names
// that a cache answers; the same as forwarders for names that none does, and there too what it costs to have each answer's
// addresses in a kernel set first: the fence's own way, dnsmasq's --nftset, and nft(8) run for each answer. The server has one
// core and the load generator the other, with 64 lookups under way. Rounds are interleaved and medians compared, in lookups a
// second and in CPU time of the server for each. In namespaces of its own; needs root or user namespaces.
//
//   policy_dns_bench [SECONDS_PER_ROUND] [ROUNDS] [alone]
//
// "alone" leaves the others out, for a profiler.
#include <fmt/format.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "audit/audit.h"
#include "bench/dns/servers.h"

namespace {

using namespace sluice;         // NOLINT: a program of one file
using namespace sluice::bench;  // NOLINT
using std::chrono::duration;
using std::chrono::steady_clock;

constexpr size_t kUnderWay = 64;
constexpr size_t kUnderWayOfExec = 4;  ///< each answer waits for those before it, and none may take 50 ms
constexpr int kManyPorts = 500;        ///< for a server that otherwise asks from 16; ours has a port for each question under way
constexpr int kServerCore = 1;         ///< of two; the load and the upstream have the other
constexpr std::string_view kHit = "api.bench.test";
constexpr std::string_view kDenied = "api.bench.test.ns.svc.cluster.local";
const std::string kReal = "version: 1\nsettings: { dns: real }\nrules:\n  - allow: tcp **.bench.test:443\n";
const std::string kSynthetic = "version: 1\nrules:\n  - allow: GET api.bench.test/**\n";
const std::string kTable =
    "nft 'add table inet bench; add set inet bench dyn {type ipv4_addr . inet_proto . inet_service; size 1000000; flags "
    "timeout;}; "
    "add set inet bench plain {type ipv4_addr; size 1000000; flags timeout; timeout 3m;}'";

struct Subject {
  std::string name;
  uint16_t port = 0;
  std::function<double()> cpu;  ///< seconds used by its serving thread so far
  size_t under_way = kUnderWay;
  std::vector<double> qps{};
  std::vector<double> cpu_us{};
};

enum class Names : uint8_t { kOne, kFresh, kDenied };

// Keeps some queries under way for `seconds`; returns the answers counted. A lost datagram is made up for.
class Load {
 public:
  uint64_t Drive(const Subject& subject, Names names, double seconds) {
    fd_.Reset(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage server{};
    const auto length = static_cast<socklen_t>(Endpoint{IpAddress::FromV4(INADDR_LOOPBACK), subject.port}.ToSockaddr(&server));
    if (connect(fd_.get(), reinterpret_cast<sockaddr*>(&server), length) != 0) Die("connect");
    const timeval limit{0, 200000};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    Send(names, subject.under_way);
    uint64_t count = 0;
    failed = 0;
    const auto end = steady_clock::now() + duration<double>(seconds);
    while (steady_clock::now() < end) {
      const int got = answers_->Receive(fd_.get(), MSG_WAITFORONE);
      for (int i = 0; i < got; ++i) failed += (answers_->bytes[static_cast<size_t>(i)][3] & 0x0f) != 0 ? 1 : 0;
      if (got > 0) count += static_cast<uint64_t>(got);
      Send(names, got > 0 ? static_cast<size_t>(got) : subject.under_way);
    }
    return count;
  }
  uint64_t failed = 0;

 private:
  [[nodiscard]] std::string NextName(Names names) {
    ++next_;
    if (names == Names::kFresh) return fmt::format("n{:08x}.bench.test", next_);
    return std::string(names == Names::kOne ? kHit : kDenied);
  }
  void Send(Names names, size_t count) {
    for (size_t done = 0; done < count;) {
      const size_t some = std::min(count - done, Batch::kMost);
      for (size_t i = 0; i < some; ++i) {
        auto& bytes = questions_->bytes[i];
        const size_t size = WriteQuestion(bytes.data(), static_cast<uint16_t>(next_ & 0xff), NextName(names));
        questions_->vectors[i] = {bytes.data(), size};
        questions_->headers[i] = {};
        questions_->headers[i].msg_hdr = {nullptr, 0, &questions_->vectors[i], 1, nullptr, 0, 0};
      }
      [[maybe_unused]] const int sent = sendmmsg(fd_.get(), questions_->headers.data(), static_cast<unsigned>(some), 0);
      done += some;
    }
  }

  UniqueFd fd_;
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
  for (Subject& subject : subjects) load.Drive(subject, names, 0.3);
  for (int round = 0; round < rounds; ++round) {
    for (Subject& subject : subjects) {
      const double before = subject.cpu();
      const auto start = steady_clock::now();
      const auto answers = static_cast<double>(load.Drive(subject, names, seconds));
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

// What a script beside a resolver would do.
Result<steady_clock::duration> PublishByNft(std::span<const dns::Lease> leases, std::chrono::milliseconds lifetime) {
  for (const dns::Lease& lease : leases) {
    std::string element = fmt::format("add element inet bench dyn {{ {} . tcp . {} timeout {}ms }}", lease.address.ToString(),
                                      lease.port, lifetime.count());
    std::string nft = "nft";
    char* words[] = {nft.data(), element.data(), nullptr};
    pid_t pid = 0;
    int status = 0;
    if (posix_spawn(&pid, "/usr/sbin/nft", nullptr, nullptr, words, environ) != 0 || waitpid(pid, &status, 0) != pid ||
        status != 0)
      return Fail(Code::kIo, "nft failed");
  }
  return lifetime;
}

// One of ours, on a port of its own.
struct Ours {
  Ours(const std::string& policy, uint16_t upstream, policy::EventSink* sink, dns::Publish publish = {})
      : resolver({.policy = policy,
                  .upstream = {.servers = {{.endpoint = {IpAddress::FromV4(INADDR_LOOPBACK), upstream}}}},
                  .sink = sink,
                  .core = kServerCore,
                  .publish = std::move(publish)},
                 BoundUdp(&port)) {}
  Subject As(const char* name) {
    return {name, port, [this] { return CpuOf(resolver.thread); }};
  }
  uint16_t port = 0;
  Resolver resolver;
};

struct Others {
  explicit Others(uint16_t upstream)
      : dnsmasq("dnsmasq", kServerCore, Dnsmasq(upstream)),
        nftset("dnsmasq", kServerCore, Dnsmasq(upstream, {"--nftset=/bench.test/4#inet#bench#plain"})),
        unbound("unbound", kServerCore, Unbound(upstream)),
        dnsdist("dnsdist", kServerCore, Dnsdist(upstream)),
        many_ports("dnsdist", kServerCore, Dnsdist(upstream, kManyPorts)) {}
  static void Add(std::vector<Subject>* subjects, const char* name, const Peer& peer) {
    if (peer.running()) subjects->push_back({name, peer.port, [&peer] { return peer.Cpu(); }});
  }
  Peer dnsmasq;
  Peer nftset;
  Peer unbound;
  Peer dnsdist;
  Peer many_ports;
};

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  const bool alone = argc > 3;
  EnterNamespace();
  Pin(0);
  uint16_t upstream_port = 0;
  uint16_t floor_port = 0;
  UniqueFd upstream_socket = BoundUdp(&upstream_port);
  UniqueFd floor_socket = BoundUdp(&floor_port);
  const Responder upstream(Responder::Kind::kAnswer, std::move(upstream_socket), 0);
  Responder floor(Responder::Kind::kTurn, std::move(floor_socket), kServerCore);
  const auto fence = FenceElsewhere();
  CountOnly sink;
  Ours plain(kReal, upstream_port, &sink);
  Ours withheld(kReal, upstream_port, &sink, PublishTo(fence.get()));
  Measure("a denial", {plain.As("sluice")}, Names::kDenied, seconds, rounds);
  if (alone) {
    Measure("a cache answers", {plain.As("sluice")}, Names::kOne, seconds, rounds);
    Measure("no cache answers", {plain.As("sluice"), withheld.As("sluice, withheld")}, Names::kFresh, seconds, rounds);
    return 0;
  }
  Shell(kTable);
  const auto records = std::filesystem::temp_directory_path() / fmt::format("sluice-dns-bench-{}.jsonl", getpid());
  {
    const auto writer = Need(
        audit::Writer::Start({.file = records.string(), .console = false, .sandbox = "bench", .labels = {}, .queue = 1 << 16}));
    Ours synthetic(kSynthetic, upstream_port, &sink);
    Ours audited(kSynthetic, upstream_port, writer.get());
    const Others others(upstream_port);
    std::vector<Subject> hit = {plain.As("sluice"),
                                {"floor", floor_port, [&] { return CpuOf(floor.thread); }},
                                synthetic.As("sluice, synthetic"),
                                audited.As("sluice, audited")};
    Others::Add(&hit, "dnsmasq", others.dnsmasq);
    Others::Add(&hit, "unbound", others.unbound);
    Others::Add(&hit, "dnsdist", others.dnsdist);
    Measure("a cache answers", std::move(hit), Names::kOne, seconds, rounds);
    std::vector<Subject> miss = {plain.As("sluice"), withheld.As("sluice, withheld")};
    Others::Add(&miss, "dnsmasq", others.dnsmasq);
    Others::Add(&miss, "dnsmasq, nftset", others.nftset);
    Others::Add(&miss, "unbound", others.unbound);
    Others::Add(&miss, "dnsdist", others.dnsdist);
    Others::Add(&miss, "dnsdist, 500 ports", others.many_ports);
    Measure("no cache answers", std::move(miss), Names::kFresh, seconds, rounds);
    Ours by_nft(kReal, upstream_port, &sink, PublishByNft);
    Subject exec = by_nft.As("nft run for each");
    exec.under_way = kUnderWayOfExec;
    Measure("no cache answers, and nft is run", {std::move(exec)}, Names::kFresh, seconds, rounds);
  }
  std::filesystem::remove(records);
  return 0;
}
