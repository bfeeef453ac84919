#include "app/host_watch.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "nft/io/kernel_peer.h"

namespace sluice::app {
namespace {

constexpr int kMostTaken = 1000;  // at once; with what is left the list is made anew next time

UniqueFd HearOfAddresses() {
  UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  sockaddr_nl name{};
  name.nl_family = AF_NETLINK;
  name.nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 ||
      !nft::HearKernelAlone(socket.get()))
    return {};
  return socket;
}

}  // namespace

HostWatch::HostWatch(List list) : list_(std::move(list)), told_(HearOfAddresses()) {}

// Under the lock. All that was told is taken, so that what comes during the listing is found next time.
bool HostWatch::Changed() {
  if (!told_) return SystemClock().Steady() - listed_ >= kUntold;
  bool changed = false;
  std::array<char, 64> message{};  // each is cut: that there is one says enough
  for (int taken = 0; taken < kMostTaken; ++taken) {
    if (::recv(told_.get(), message.data(), message.size(), 0) < 0 && errno == EAGAIN) break;
    changed = true;  // or more was told than there is room for
  }
  return changed;
}

bool HostWatch::Has(const IpAddress& address) {
  const std::lock_guard lock(mutex_);
  if (const bool changed = Changed(); changed || !own_) {
    auto listed = list_();
    own_ = listed ? std::optional(*std::move(listed)) : std::nullopt;
    listed_ = SystemClock().Steady();
  }
  return !own_ || std::ranges::find(*own_, address) != own_->end();
}

}  // namespace sluice::app
