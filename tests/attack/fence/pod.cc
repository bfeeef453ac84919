#include "tests/attack/fence/pod.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

namespace sluice::supervisor {
namespace {

using namespace std::chrono_literals;

UniqueFd NewNetwork() {
  UniqueFd made;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) == 0) made = UniqueFd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  }).join();
  return made;
}

bool KeepOnly(uint32_t capabilities) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, 2> data{};
  data[0] = {.effective = capabilities, .permitted = capabilities, .inheritable = 0};
  return ::syscall(SYS_capset, &header, data.data()) == 0;
}

}  // namespace

void RunIn(const UniqueFd& network, const std::function<void()>& body) {
  std::thread([&] {
    if (::setns(network.get(), CLONE_NEWNET) == 0) body();
  }).join();
}

std::string CommandIn(const UniqueFd& network, const std::string& line) {
  std::string output = "not run";
  RunIn(network, [&] {
    output.clear();
    FILE* pipe = ::popen(("exec 2>&1; PATH=/usr/sbin:/sbin:$PATH; " + line).c_str(), "r");
    std::array<char, 4096> piece{};
    for (size_t got = 0; (got = std::fread(piece.data(), 1, piece.size(), pipe)) > 0;) output.append(piece.data(), got);
    if (::pclose(pipe) != 0) output += "(failed)";
  });
  return output;
}

Pod::Pod() : inner_(NewNetwork()), world_(NewNetwork()) {
  if (!inner_ || !world_) return;
  const std::string made = CommandIn(
      inner_,
      fmt::format("set -e; ip link set lo up; ip link add eth0 type veth peer name out0; ip link set out0 netns /proc/{}/fd/{}; "
                  "ip link set eth0 up; ip addr add {}/24 dev eth0; ip addr add {}/64 dev eth0 nodad; "
                  "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
                  ::getpid(), world_.get(), kPodV4, kPodV6));
  const std::string other = CommandIn(
      world_,
      fmt::format(
          "set -e; ip link set lo up; ip link set out0 up; ip addr add 10.77.0.1/24 dev out0; ip addr add {}/32 dev out0; "
          "ip addr add fd77::1/64 dev out0 nodad; ip addr add {}/128 dev out0 nodad; ip addr add {}/64 dev out0 nodad",
          kWorldV4, kWorldV6, kWorldLink));
  const std::string routed = CommandIn(inner_, "set -e; ip route add default via 10.77.0.1; ip -6 route add default via fd77::1");
  ready_ = made.empty() && other.empty() && routed.empty();
  if (!ready_) std::fprintf(stderr, "no pod: %s%s%s\n", made.c_str(), other.c_str(), routed.c_str());
  RunIn(world_, [&] {
    tap_ = UniqueFd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL)));
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(::if_nametoindex("out0"));
    ready_ = ready_ && ::bind(tap_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  });
  recorder_ = std::thread([this] { Record(); });
}

Pod::~Pod() {
  stop_ = true;
  if (recorder_.joinable()) recorder_.join();
}

void Pod::Record() {
  while (!stop_) {
    pollfd ready{.fd = tap_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 20) != 1) continue;
    std::array<uint8_t, 4096> buffer{};
    sockaddr_ll from{};
    socklen_t length = sizeof from;
    const ssize_t got = ::recvfrom(tap_.get(), buffer.data(), buffer.size(), 0, reinterpret_cast<sockaddr*>(&from), &length);
    if (got <= 0 || from.sll_pkttype == PACKET_OUTGOING) continue;
    const std::lock_guard lock(mutex_);
    frames_.emplace_back(buffer.begin(), buffer.begin() + got);
  }
}

void Pod::Forget() {
  const std::lock_guard lock(mutex_);
  frames_.clear();
}

std::vector<Frame> Pod::Taken() {
  std::this_thread::sleep_for(120ms);
  const std::lock_guard lock(mutex_);
  return std::exchange(frames_, {});
}

int Pod::Workload(const std::function<int()>& body) const {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setns(inner_.get(), CLONE_NEWNET) != 0) ::_exit(201);
    if (!KeepOnly(1U << CAP_NET_RAW | 1U << CAP_SETUID | 1U << CAP_SETGID)) ::_exit(202);
    ::_exit(body());
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return 203;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 204;
}

bool Pod::Carries(const std::vector<Frame>& frames, const std::string& text) {
  return std::ranges::any_of(frames, [&](const Frame& frame) { return !std::ranges::search(frame, text).empty(); });
}

std::string Pod::Escaped(const std::vector<Frame>& frames) {
  std::string all;
  for (const Frame& frame : frames) {
    const bool marked = !std::ranges::search(frame, std::string_view(kForbidden)).empty();
    // Of IPv4 without options, and of IPv6 without extension headers: those carry the mark.
    size_t port = 0;
    if (frame.size() > 38 && frame[12] == 0x08 && frame[13] == 0x00) port = 36;
    if (frame.size() > 58 && frame[12] == 0x86 && frame[13] == 0xdd) port = 56;
    const bool aimed = port != 0 && (frame[port] << 8 | frame[port + 1]) == kForbiddenPort;
    if (!marked && !aimed) continue;
    for (size_t i = 0; i < std::min<size_t>(frame.size(), 80); ++i) all += fmt::format("{:02x}", frame[i]);
    all += '\n';
  }
  return all;
}

}  // namespace sluice::supervisor
