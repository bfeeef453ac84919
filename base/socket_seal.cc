#include "base/socket_seal.h"

#include <sys/socket.h>

#include "base/fault.h"
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
  const auto set = [fd](int option, const auto& value) {
    return Faulty("seal.set", [&] { return ::setsockopt(fd, SOL_SOCKET, option, &value, sizeof value); }) == 0;
  };
  return set(SO_MARK, seal.mark) && set(SO_PRIORITY, seal.priority);
}

}  // namespace sluice
