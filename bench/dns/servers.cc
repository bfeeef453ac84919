#include "bench/dns/servers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/ip.h"
#include "policy/io/load.h"

namespace sluice::bench {
namespace {

void WriteTo(const char* path, const std::string& text) {
  const UniqueFd file(::open(path, O_WRONLY | O_CLOEXEC));
  if (!file || ::write(file.get(), text.data(), text.size()) < 0) Die(std::string("cannot write ") + path);
}

// The question as it came, without what follows it, and one A record that points to it.
void AnswerIn(Batch* batch, size_t i) {
  auto& bytes = batch->bytes[i];
  size_t end = 12;
  while (end < 400 && bytes[end] != 0) end += bytes[end] + 1u;
  end += 5;
  uint32_t number = 0;
  for (size_t at = 14; at <= 12u + bytes[12]; ++at) {
    const uint8_t c = bytes[at] | 0x20;
    number = number << 4 | static_cast<uint32_t>(c >= 'a' ? c - 'a' + 10 : c & 0x0f);
  }
  const uint32_t address = Responder::kFirstAddress + (number & 0xffff);
  const uint8_t record[] = {0xc0,
                            12,
                            0,
                            1,
                            0,
                            1,
                            0,
                            0,
                            0,
                            60,
                            0,
                            4,
                            static_cast<uint8_t>(address >> 24),
                            static_cast<uint8_t>(address >> 16),
                            static_cast<uint8_t>(address >> 8),
                            static_cast<uint8_t>(address)};
  bytes[2] = 0x85;
  bytes[3] = 0x80;
  bytes[7] = 1;
  bytes[9] = bytes[11] = 0;
  std::memcpy(&bytes[end], record, sizeof record);
  batch->headers[i].msg_len = static_cast<unsigned>(end + sizeof record);
}

}  // namespace

void Die(const std::string& what) {
  std::perror(what.c_str());
  std::exit(1);
}

void Pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  (void)sched_setaffinity(0, sizeof set, &set);
}

void EnterNamespace() {
  if (::geteuid() != 0) {
    const std::string uid = fmt::format("0 {} 1", ::geteuid());
    const std::string gid = fmt::format("0 {} 1", ::getegid());
    if (::unshare(CLONE_NEWUSER) != 0) Die("no user namespace");
    WriteTo("/proc/self/setgroups", "deny");
    WriteTo("/proc/self/uid_map", uid);
    WriteTo("/proc/self/gid_map", gid);
  }
  if (::unshare(CLONE_NEWNET) != 0) Die("no network namespace");
  Shell("ip link set lo up");
}

void Shell(const std::string& command) {
  if (std::system(("PATH=/usr/sbin:/sbin:$PATH; " + command).c_str()) != 0) Die("failed: " + command);
}

UniqueFd BoundUdp(uint16_t* port) {
  UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  auto length = static_cast<socklen_t>(Endpoint{IpAddress::FromV4(INADDR_LOOPBACK), 0}.ToSockaddr(&address));
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd.get(), generic, length) != 0 || getsockname(fd.get(), generic, &length) != 0) Die("bind");
  const int room = 4 << 20;
  if (setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0)
    (void)setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
  *port = Endpoint::FromSockaddr(generic, length)->port;
  return fd;
}

double CpuOf(std::thread& thread) {
  clockid_t clock{};
  timespec now{};
  if (pthread_getcpuclockid(thread.native_handle(), &clock) != 0 || clock_gettime(clock, &now) != 0) Die("thread clock");
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

int Batch::Receive(int fd, int flags) {
  for (size_t i = 0; i < kMost; ++i) {
    vectors[i] = {bytes[i].data(), bytes[i].size()};
    headers[i] = {};
    headers[i].msg_hdr = {&peers[i], sizeof peers[i], &vectors[i], 1, nullptr, 0, 0};
  }
  return recvmmsg(fd, headers.data(), kMost, flags, nullptr);
}

void Batch::Send(int fd, int count) {
  for (int i = 0; i < count; ++i) vectors[static_cast<size_t>(i)].iov_len = headers[static_cast<size_t>(i)].msg_len;
  for (int sent = 0; sent < count;) {
    const int n = sendmmsg(fd, &headers[static_cast<size_t>(sent)], static_cast<unsigned>(count - sent), 0);
    sent += n > 0 ? n : 1;
  }
}

size_t WriteQuestion(uint8_t* at, uint16_t id, std::string_view name) {
  std::memset(at, 0, 12);
  at[0] = static_cast<uint8_t>(id >> 8);
  at[1] = static_cast<uint8_t>(id & 0xff);
  at[2] = 1;
  at[5] = 1;
  size_t end = 12;
  for (size_t from = 0; from < name.size();) {
    const size_t dot = std::min(name.find('.', from), name.size());
    at[end++] = static_cast<uint8_t>(dot - from);
    std::memcpy(&at[end], name.data() + from, dot - from);
    end += dot - from;
    from = dot + 1;
  }
  static constexpr uint8_t kTail[] = {0, 0, 1, 0, 1};
  std::memcpy(&at[end], kTail, sizeof kTail);
  return end + sizeof kTail;
}

Responder::Responder(Kind kind, UniqueFd socket, int core) : fd_(std::move(socket)) {
  const timeval limit{0, 100000};
  setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  thread = std::thread([this, kind, core] {
    Pin(core);
    Run(kind);
  });
}

Responder::~Responder() {
  stop_ = true;
  thread.join();
}

void Responder::Run(Kind kind) {
  if (kind == Kind::kTurn) return Turn();
  auto batch = std::make_unique<Batch>();
  while (!stop_) {
    const int count = batch->Receive(fd_.get(), MSG_WAITFORONE);
    for (int i = 0; i < count; ++i) AnswerIn(batch.get(), static_cast<size_t>(i));
    if (count > 0) batch->Send(fd_.get(), count);
  }
}

void Responder::Turn() {
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

Resolver::Resolver(ResolverPlan plan, UniqueFd udp) : policy_(Need(policy::LoadText(plan.policy, "bench"))) {
  upstream_ = Need(dns::UpstreamClient::Create(context_, std::move(plan.upstream)));
  dns::ServerOptions options;
  options.udp = std::move(udp);
  options.flood.reset();  // one socket asks all there is to ask
  options.limits = {.new_names_per_minute = 1e12,
                    .client_per_second = 1e9,
                    .client_burst = 1e9,
                    .upstream_per_second = 1e9,
                    .upstream_burst = 1e9};
  options.history = std::make_shared<dns::NameHistory>();
  options.publish = std::move(plan.publish);
  server_ = Need(dns::Server::Start(context_, std::move(options), *upstream_, pool_, policy_, *plan.sink));
  thread = std::thread([this, core = plan.core] {
    Pin(core);
    context_.run();
  });
}

Resolver::~Resolver() {
  boost::asio::post(context_, [this] {
    server_.reset();
    upstream_.reset();
  });
  thread.join();
}

std::unique_ptr<supervisor::Fence> FenceElsewhere() {
  std::unique_ptr<supervisor::Fence> fence;
  // A namespace is a thread's: what is opened there stays there.
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) Die("no network namespace");
    Shell("ip link set lo up");
    fence = Need(supervisor::Fence::Install({.seal = DrawSeal(), .passage = DrawSeal(), .proxy_port = 15001, .dns_port = 15053}));
  }).join();
  return fence;
}

dns::Publish PublishTo(supervisor::Fence* fence) {
  return [fence](std::span<const dns::Lease> leases, std::chrono::milliseconds lifetime) {
    std::vector<supervisor::FenceElement> elements;
    elements.reserve(leases.size());
    for (const dns::Lease& lease : leases)
      elements.push_back(
          {lease.address, lease.transport == policy::Transport::kUdp ? nft::Protocol::kUdp : nft::Protocol::kTcp, lease.port});
    return fence->Publish(elements, lifetime);
  };
}

Peer::Peer(const char* program, int core, const Words& words) {
  folder = (std::filesystem::temp_directory_path() / "sluice-dns-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) Die("mkdtemp");
  {
    const UniqueFd probe = BoundUdp(&port);
  }
  std::string path;
  for (const char* place : {"/usr/sbin/", "/usr/bin/"})
    if (std::filesystem::exists(std::string(place) + program)) path = std::string(place) + program;
  if (path.empty()) {
    fmt::print("{} is not installed\n", program);
    return;
  }
  std::vector<std::string> all = {"/usr/bin/taskset", "-c", std::to_string(core), path};
  for (std::string& word : words(*this)) all.push_back(std::move(word));
  std::vector<char*> argv;
  for (std::string& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, (folder + "/out").c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  if (posix_spawn(&pid_, all[0].c_str(), &actions, nullptr, argv.data(), environ) != 0) Die(program);
  posix_spawn_file_actions_destroy(&actions);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
}

Peer::~Peer() {
  if (pid_ > 0) {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  std::filesystem::remove_all(folder);
}

double Peer::Cpu() const {
  std::ifstream stat("/proc/" + std::to_string(pid_) + "/stat");
  std::string word;
  uint64_t ticks = 0;
  for (int field = 1; stat >> word && field <= 15; ++field)
    if (field >= 14) ticks += std::stoull(word);
  return static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::string Peer::Write(const std::string& name, const std::string& text) const {
  std::ofstream(folder + "/" + name) << text;
  return folder + "/" + name;
}

Peer::Words Dnsmasq(uint16_t upstream, const std::vector<std::string>& more) {
  return [upstream, more](const Peer& peer) {
    std::vector<std::string> words = {"--keep-in-foreground",
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
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
}

Peer::Words Unbound(uint16_t upstream) {
  return [upstream](const Peer& peer) {
    return std::vector<std::string>{
        "-d", "-p", "-c",
        peer.Write(
            "unbound.conf",
            fmt::format("server:\n  do-daemonize: no\n  chroot: \"\"\n  username: \"\"\n  directory: \"{0}\"\n  pidfile: \"\"\n"
                        "  use-syslog: no\n  logfile: \"{0}/log\"\n  num-threads: 1\n  interface: 127.0.0.1@{1}\n"
                        "  access-control: 127.0.0.0/8 allow\n  do-not-query-localhost: no\n  module-config: \"iterator\"\n"
                        "  local-zone: \"test.\" transparent\n  num-queries-per-thread: 4096\n  outgoing-range: 4096\n"
                        "  so-rcvbuf: 4m\nforward-zone:\n  name: \".\"\n  forward-addr: 127.0.0.1@{2}\n"
                        "remote-control:\n  control-enable: no\n",
                        peer.folder, peer.port, upstream))};
  };
}

Peer::Words Dnsdist(uint16_t upstream, int sockets) {
  return [upstream, sockets](const Peer& peer) {
    return std::vector<std::string>{
        "--supervised", "--disable-syslog", "-C",
        peer.Write("dnsdist.conf", fmt::format("setSecurityPollSuffix('')\nsetLocal('127.0.0.1:{}')\n"
                                               "newServer{{address='127.0.0.1:{}', sockets={}, healthCheckMode='up'}}\n"
                                               "pc = newPacketCache(100000)\ngetPool(''):setCache(pc)\n",
                                               peer.port, upstream, sockets))};
  };
}

}  // namespace sluice::bench
