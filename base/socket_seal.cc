#include "base/socket_seal.h"

#include <sys/socket.h>

#include "base/random.h"

namespace sluice {
namespace {

uint32_t Draw() {
  while (true) {
    const auto value = static_cast<uint32_t>(RandomU64());
    if ((value >> 16) != 0 && (value >> 16) != 0xffff && (value & 0xffff) != 0) return value;
  }
}

}  // namespace

SocketSeal DrawSeal() { return {Draw(), Draw()}; }

bool ApplySeal(int fd, const SocketSeal& seal) noexcept {
  if (seal.empty()) return true;
  return ::setsockopt(fd, SOL_SOCKET, SO_MARK, &seal.mark, sizeof seal.mark) == 0 &&
         ::setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &seal.priority, sizeof seal.priority) == 0;
}

}  // namespace sluice
