#include "supervisor/io/xdp_guard.h"

#include <fmt/format.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <thread>

#include "base/result.h"
#include "supervisor/io/small_file.h"

namespace sluice::supervisor {
namespace {

constexpr size_t kFrame = 4096;
constexpr int kRing = 1;
constexpr std::chrono::milliseconds kTakenWait{500};
constexpr std::chrono::milliseconds kTakenLook{2};

// Whoever refuses the family to this process may say that there is none (systemd does). Unread, the kernel is taken to have it.
bool KernelHasXdp() {
  const auto protocols = ReadSmallFile("/proc/net/protocols");
  return !protocols || protocols->find("\nXDP ") != std::string::npos;
}

// A socket that holds one queue. Its one frame is never used: the kernel keeps the page for as long as the socket is open.
Result<UniqueFd> Hold(unsigned device, unsigned queue) {
  UniqueFd socket(::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (!socket) return FailErrno("cannot open an AF_XDP socket", errno);
  void* frame = ::mmap(nullptr, kFrame, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (frame == MAP_FAILED) return FailErrno("cannot map a frame", errno);
  xdp_umem_reg memory{};
  memory.addr = reinterpret_cast<uint64_t>(frame);
  memory.len = kFrame;
  memory.chunk_size = kFrame;
  const bool made = ::setsockopt(socket.get(), SOL_XDP, XDP_UMEM_REG, &memory, sizeof memory) == 0 &&
                    ::setsockopt(socket.get(), SOL_XDP, XDP_UMEM_FILL_RING, &kRing, sizeof kRing) == 0 &&
                    ::setsockopt(socket.get(), SOL_XDP, XDP_UMEM_COMPLETION_RING, &kRing, sizeof kRing) == 0 &&
                    ::setsockopt(socket.get(), SOL_XDP, XDP_TX_RING, &kRing, sizeof kRing) == 0;
  const int error = errno;
  ::munmap(frame, kFrame);
  if (!made) return FailErrno("cannot prepare an AF_XDP socket", error);
  sockaddr_xdp address{};
  address.sxdp_family = AF_XDP;
  address.sxdp_flags = XDP_COPY;
  address.sxdp_ifindex = device;
  address.sxdp_queue_id = queue;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return FailErrno(fmt::format("cannot take queue {}", queue), errno);
  return socket;
}

Result<UniqueFd> HoldOnceFree(unsigned device, unsigned queue, std::chrono::steady_clock::time_point until) {
  for (;;) {
    auto held = Hold(device, queue);
    if (held || held.error().sys_errno != EBUSY || std::chrono::steady_clock::now() >= until) return held;
    std::this_thread::sleep_for(kTakenLook);
  }
}

}  // namespace

void XdpGuard::Guard(std::vector<std::string> devices, TakenQueue taken) {
  const auto now = std::chrono::steady_clock::now();
  const auto until = taken == TakenQueue::kWaitedFor ? now + kTakenWait : now;
  // From `lo` a packet with any source could come in, and be answered.
  devices.insert(devices.begin(), "lo");
  weaknesses_.clear();
  std::erase_if(guarded_, [&](const auto& one) {
    return std::ranges::find(devices, one.first) == devices.end() || ::if_nametoindex(one.first.c_str()) != one.second.index;
  });
  for (const std::string& device : devices) {
    const unsigned index = ::if_nametoindex(device.c_str());
    if (index == 0) continue;
    const auto known = guarded_.find(device);
    const std::string fault = known != guarded_.end() ? known->second.fault : GuardDevice(device, index, until);
    if (!fault.empty()) weaknesses_.push_back(fault);
  }
}

std::string XdpGuard::GuardDevice(const std::string& device, unsigned index, std::chrono::steady_clock::time_point until) {
  Guarded guarded{.index = index, .queues = {}};
  for (unsigned queue = 0;; ++queue) {
    auto held = HoldOnceFree(index, queue, until);
    if (held && queue == kMaxGuardedQueues) break;
    if (held) {
      guarded.queues.push_back(std::move(*held));
      continue;
    }
    const int error = held.error().sys_errno;
    if (error == EAFNOSUPPORT && !KernelHasXdp()) return "";
    if (error == EAFNOSUPPORT)
      return fmt::format(
          "a workload with CAP_NET_RAW could send through {} by AF_XDP, past the fence: this kernel has such sockets, and Sluice "
          "may "
          "open none (RestrictAddressFamilies= of its service, a seccomp filter); allow it AF_XDP and CAP_NET_RAW, or take "
          "CAP_NET_RAW from the workload",
          device);
    // Past the last queue.
    if (error == EINVAL && queue > 0) {
      guarded_[device] = std::move(guarded);
      return "";
    }
    // A device that is down sends nothing, and tells when it comes up.
    if (error == ENETDOWN) return "";
    if (error == EPERM)
      return fmt::format(
          "a workload with CAP_NET_RAW could send through {} by AF_XDP, past the fence: give Sluice CAP_NET_RAW to guard it, or "
          "take it from the workload",
          device);
    return fmt::format("{} is not guarded against AF_XDP: {}", device, held.error().message);
  }
  guarded.fault = fmt::format("{} has more than {} queues, and those are not guarded against AF_XDP", device, kMaxGuardedQueues);
  return (guarded_[device] = std::move(guarded)).fault;
}

}  // namespace sluice::supervisor
