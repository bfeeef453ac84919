#pragma once

// One thread that accepts connections of several listening sockets and hands each on.

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/complaint.h"
#include "base/result.h"
#include "base/stop_event.h"
#include "base/unique_fd.h"

namespace sluice::app {

class AcceptLoop {
 public:
  /// Takes a connection over: non-blocking, close-on-exec. On the loop's thread.
  using Take = std::function<void(UniqueFd socket, const sockaddr_storage& from, socklen_t size)>;

  /// The listeners are non-blocking. Nothing is accepted before Start.
  static Result<std::unique_ptr<AcceptLoop>> Create(std::vector<UniqueFd> listeners);
  ~AcceptLoop() { Stop(); }
  AcceptLoop(const AcceptLoop&) = delete;
  AcceptLoop& operator=(const AcceptLoop&) = delete;

  void Start(Take take);
  /// Accepts no more, and closes the listeners. The thread has ended afterwards.
  void Stop();

 private:
  AcceptLoop() = default;
  void Loop();
  void AcceptSome(const UniqueFd& listener);
  void Rest(const char* what, int error);

  std::vector<UniqueFd> listeners_;
  StopEvent stop_;
  Take take_;
  Complaint complaint_;
  std::thread thread_;
};

}  // namespace sluice::app
