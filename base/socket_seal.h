#pragma once

// What tells Sluice's own sockets from every other socket of a network namespace it shares: a mark and a priority drawn at
// random, which the fence compares (supervisor/fence_ruleset.h). Setting them needs CAP_NET_ADMIN or CAP_NET_RAW (Linux 5.17).
// The mark is the secret: sock_diag(7) shows a socket's priority to anybody (INET_DIAG_CLASS_ID), its mark only to CAP_NET_ADMIN.
//
//   const SocketSeal seal = DrawSeal();
//   if (!ApplySeal(fd, seal)) …  // errno says why

#include <cstdint>

namespace sluice {

struct SocketSeal {
  uint32_t mark = 0;      ///< SO_MARK
  uint32_t priority = 0;  ///< SO_PRIORITY

  /// No fence: nothing is set, nothing compared.
  [[nodiscard]] constexpr bool empty() const { return mark == 0 && priority == 0; }
  bool operator==(const SocketSeal&) const = default;
};

/// Never empty: each half has bits in its upper and its lower sixteen, so that neither is a number a program would choose.
[[nodiscard]] SocketSeal DrawSeal();

/// Sets both on a socket, before it sends anything. An empty seal changes nothing and succeeds. False: errno is set (EPERM
/// without the capability), and the socket must not be used. Any thread.
[[nodiscard]] bool ApplySeal(int fd, const SocketSeal& seal) noexcept;

}  // namespace sluice
