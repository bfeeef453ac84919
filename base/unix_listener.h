#pragma once

// A UNIX socket that listens under a name of the file system. It listens before it has that name, so that whoever connects as
// soon as there is a file is never refused; and it takes the name away only while it is its own.
//
//   auto listener = ListenUnix("/run/sluice/admin.sock", {});
//   …accept on listener->socket…   // at the end the name goes first

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice {

/// The name of a listening socket. Whoever holds it removes it at the end, if it still leads to the socket that it was made for:
/// while that is open, no other can have its inode.
class SocketName {
 public:
  SocketName() = default;
  SocketName(std::string path, dev_t device, ino_t inode) : path_(std::move(path)), device_(device), inode_(inode) {}
  SocketName(SocketName&& other) noexcept { *this = std::move(other); }
  SocketName& operator=(SocketName&& other) noexcept;
  SocketName(const SocketName&) = delete;
  SocketName& operator=(const SocketName&) = delete;
  ~SocketName() { Remove(); }

  void Remove();
  /// It stays: another process has it.
  void Leave() { path_.clear(); }

 private:
  std::string path_;  // empty: none
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

struct UnixListener {
  UniqueFd socket;  ///< close-on-exec and non-blocking
  SocketName name;  ///< goes first
};

/// What becomes of descriptors that a client sends (SCM_RIGHTS).
enum class SentDescriptors : uint8_t {
  kRefused,  ///< the client gets EPERM, where the kernel can (Linux 6.16)
  kWanted,
};

struct UnixListenOptions {
  int type = SOCK_STREAM;
  mode_t mode = 0600;  ///< of the socket's file, whatever the umask
  int backlog = SOMAXCONN;
  SentDescriptors descriptors = SentDescriptors::kRefused;
};

/// From now on whoever sends a descriptor to this UNIX socket gets EPERM, as on what it accepts. What nobody receives is closed
/// by who closes the socket or reads from it, and the last close of a TCP socket may wait for as long as its peer likes. False:
/// the kernel does not know of this, so that closing and reading may wait.
[[nodiscard]] bool RefuseDescriptors(int socket);

/// A socket that a server which was killed left behind is replaced. One that takes connections is an error, as is a file of
/// another kind: neither is touched. Any thread; may wait for part of a second for others that start in the same folder.
[[nodiscard]] Result<UnixListener> ListenUnix(const std::string& path, const UnixListenOptions& options);

/// Whether ListenUnix could have that name now, without taking it: nobody sees a socket come and go under it.
[[nodiscard]] Result<void> CheckListenUnix(const std::string& path, const UnixListenOptions& options);

}  // namespace sluice
