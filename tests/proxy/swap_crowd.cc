#include "tests/proxy/swap_crowd.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "policy/io/load.h"

namespace sluice::proxy::testing {
namespace {

constexpr size_t kTogether = 4;  // connections whose requests are begun at a time

// How long each thread of this process has been ready to run without a processor.
std::map<std::string, int64_t> Starved() {
  std::map<std::string, int64_t> all;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "schedstat");
    int64_t ran = 0;
    file >> ran >> all[task.path().filename()];
  }
  return all;
}

Milliseconds StarvedSince(const std::map<std::string, int64_t>& before) {
  int64_t most = 0;
  for (const auto& [thread, waited] : Starved())
    if (const auto then = before.find(thread); then != before.end()) most = std::max(most, waited - then->second);
  return std::chrono::nanoseconds(most);
}

policy::SnapshotPtr Load(const std::string& rules) {
  return *policy::LoadText("version: 1\nname: test\nrules:\n" + rules, "policy.yaml");
}

// Each exchange as it ended, with the rule that allowed it in the policy that had it.
bool IsTold(const policy::ExchangeEvent& end) {
  const bool revoked = end.target.path.starts_with("/revoked/");
  const policy::RuleInfo* rule = end.snapshot->rule(end.rule);
  return end.error == (revoked ? "closed by a change of policy" : "") && rule != nullptr &&
         rule->text.find(revoked ? "/revoked/**" : "/kept/**") != std::string::npos;
}

void ReadEnds(SwapBed& bed, size_t exchanges, WallTime begun, Swapped* out) {
  out->whole &= Eventually([&] { return bed.sink().count() >= exchanges; });
  const auto ends = bed.sink().Take();
  WallTime last = begun;
  for (const auto& end : ends) {
    if (end.target.path.starts_with("/revoked/")) last = std::max(last, end.time);
    out->untold += IsTold(end) ? 0 : 1;
  }
  out->untold += ends.size() > exchanges ? ends.size() - exchanges : exchanges - ends.size();
  out->told = last - begun;
}

}  // namespace

size_t OpenDescriptors() {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

double ResidentMiB() {
  std::ifstream file("/proc/self/statm");
  size_t whole = 0;
  size_t resident = 0;
  file >> whole >> resident;
  return static_cast<double>(resident * static_cast<size_t>(sysconf(_SC_PAGESIZE))) / (1 << 20);
}

size_t RoomForConnections() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  constexpr size_t kOthers = 500;
  const size_t room = std::min<size_t>(kMostExchanges, limit.rlim_cur - kOthers);
  if (room < kMostExchanges) std::printf("%zu exchanges: the hard limit of open files allows no more\n", room);
  return room / kStreams * kStreams;
}

bool Eventually(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

bool EndsSink::Record(policy::ExchangeEvent event) noexcept {
  const std::lock_guard lock(mutex_);
  ends_.push_back(std::move(event));
  return true;
}

std::vector<policy::ExchangeEvent> EndsSink::Take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(ends_, {});
}

size_t EndsSink::count() {
  const std::lock_guard lock(mutex_);
  return ends_.size();
}

SwapBed::SwapBed(uint16_t port, Over over, size_t places)
    : port_(port),
      over_(over),
      places_(places),
      kept_(Load(Rule("kept"))),
      all_(Load(Rule("kept") + Rule("revoked"))),
      policy_(all_),
      client_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free) {
  EngineOptions options;
  options.workers = kSwapWorkers;
  options.lookups.servers = {{.endpoint = resolver_.endpoint()}};
  options.upstream_ca_files = {SharedAuthority().file()};
  engine_ = *Engine::Start(std::move(options), policy_, sink_);
  BIO* const pem = BIO_new_mem_buf(engine_->AuthorityPem().data(), static_cast<int>(engine_->AuthorityPem().size()));
  X509* const root = PEM_read_bio_X509(pem, nullptr, nullptr, nullptr);
  X509_STORE_add_cert(SSL_CTX_get_cert_store(client_.get()), root);
  X509_free(root);
  BIO_free(pem);
  SSL_CTX_set_verify(client_.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_alpn_protos(client_.get(), reinterpret_cast<const unsigned char*>("\x02h2"), 3);
}

Peer SwapBed::Connect() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) std::abort();
  UniqueFd own(ends[0]);
  fcntl(own.get(), F_SETFL, 0);
  const timeval limit{20, 0};
  setsockopt(own.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  Flow flow;
  flow.id = ++ids_;
  flow.downstream.Reset(ends[1]);
  flow.target.host = "a.test";
  flow.target.destination = {IpAddress::FromV4(0xc6120001), port_};
  engine_->Accept(std::move(flow));
  if (over_ == Over::kClear) return {std::move(own), nullptr};
  SSL* const ssl = SSL_new(client_.get());
  SSL_set_fd(ssl, own.get());
  SSL_set_tlsext_host_name(ssl, "a.test");
  SSL_set1_host(ssl, "a.test");
  (void)SSL_connect(ssl);  // where it fails, no request is answered
  return {std::move(own), ssl};
}

FieldList SwapBed::Asking(size_t i) const {
  return {{":method", "GET"},
          {":scheme", over_ == Over::kTls ? "https" : "http"},
          {":authority", fmt::format("a.test:{}", port_)},
          {":path", fmt::format("/{}/{}", IsKept(i) ? "kept" : "revoked", i % places_)}};
}

std::string SwapBed::Rule(std::string_view what) const {
  return LoopbackRule(fmt::format("GET {}a.test:{}/{}/**", over_ == Over::kClear ? "http://" : "", port_, what));
}

std::chrono::steady_clock::time_point SwapBed::Set(const policy::SnapshotPtr& snapshot) {
  policy_.Set(snapshot);
  const auto in_force = std::chrono::steady_clock::now();
  engine_->PolicyChanged();
  return in_force;
}

Crowd::Crowd(SwapBed& bed, size_t connections) {
  const auto begun = [](size_t, const H2Message& message) { return message.body == "begin"; };
  for (size_t c = 0; c < connections; ++c) {
    clients_.push_back(std::make_unique<H2Client>(bed.Connect()));
    for (size_t i = 0; i < kStreams; ++i) ids_.push_back(clients_.back()->Start(bed.Asking(c * kStreams + i)));
    // An upstream that is dialled for each of them is not overrun.
    if ((c + 1) % kTogether == 0 && !Until(begun)) return;
  }
  whole_ = Until(begun);
}

bool Crowd::Until(const std::function<bool(size_t i, const H2Message&)>& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::vector<pollfd> polled;
  for (auto& client : clients_) {
    client->Send();
    polled.push_back({client->peer().fd(), POLLIN, 0});
  }
  for (size_t left = 0;;) {
    while (left < ids_.size() && holds(left, message(left))) ++left;
    if (left == ids_.size()) return true;
    if (std::chrono::steady_clock::now() > until) return false;
    (void)poll(polled.data(), polled.size(), 100);
    for (size_t c = 0; c < clients_.size(); ++c)
      if (polled[c].revents != 0 && !clients_[c]->Turn()) return false;
  }
}

size_t Crowd::Wrong() {
  size_t wrong = 0;
  for (size_t i = 0; i < size(); ++i) {
    const H2Message& one = message(i);
    const bool right =
        IsKept(i) ? one.ended && one.body == "beginend" : !one.ended && one.body == "begin" && one.closed == uint32_t{kH2Cancel};
    wrong += right ? 0 : 1;
  }
  return wrong;
}

Swapped SwapUnderACrowd(SwapBed& bed, ForkedOrigin& origin, size_t exchanges) {
  Swapped out;
  const size_t descriptors = OpenDescriptors();
  Crowd crowd(bed, exchanges / kStreams);
  out.whole = crowd.whole() && origin.streams() == exchanges;
  if (!out.whole) return out;
  out.descriptors = OpenDescriptors() - descriptors;
  out.resident = ResidentMiB();
  const uint64_t passes = bed.engine().LastRejudging().passes;

  const WallTime begun_wall = SystemClock().Wall();
  const auto starved = Starved();
  const auto begun = bed.AllowKept();
  out.whole &= crowd.Until([](size_t i, const H2Message& message) { return IsKept(i) || message.closed.has_value(); });
  out.seen = std::chrono::steady_clock::now() - begun;
  out.starved = StarvedSince(starved);
  out.whole &= Eventually([&] { return bed.engine().LastRejudging().passes == passes + kSwapWorkers; });
  out.judged = bed.engine().LastRejudging();
  (void)Eventually([&] { return origin.streams() == exchanges / 2; });
  out.upstream_left = origin.streams();

  origin.FinishAll();
  out.whole &= crowd.Until([](size_t i, const H2Message& message) { return !IsKept(i) || message.ended || message.closed; });
  out.wrong = crowd.Wrong();
  ReadEnds(bed, exchanges, begun_wall, &out);
  out.again = crowd.client(0).Do(bed.Asking(1)).status();
  return out;
}

bool Rest(SwapBed& bed, ForkedOrigin& origin) {
  bed.AllowAll();  // idle connections of the pool end
  const bool closed = Eventually([&] { return bed.engine().Open() == 0 && origin.connections() == 0; });
  (void)bed.sink().Take();
  return closed;
}

}  // namespace sluice::proxy::testing
