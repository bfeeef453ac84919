#pragma once

// Questions by UDP. Each leaves from a socket that is connected to its server and has a port of its own, chosen by the kernel; a
// socket that was answered is given a new port for its next. While many questions are under way a port serves a few of them one
// after the other, drawn from a pool as wide: a forger has no better chance, and the kernel less to do. Asked and answered on one
// thread without a coroutine, a timer or a descriptor of the event loop for each: a lookup that no cache answers is mostly this.
// What one turn of the loop asks leaves together at its end, and what has come is read before any of it is looked at: the
// kernel's code and ours then push each other out of the processor's caches once a turn and not once a question.

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/ip.h"
#include "base/result.h"
#include "base/socket_seal.h"
#include "base/unique_fd.h"
#include "dns/io/sent_query.h"

namespace sluice::dns {

class UdpPool : public std::enable_shared_from_this<UdpPool> {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Outcome {
    Reception reception = Reception::kAnswer;  ///< never kStranger
    Message message{};                         ///< for kAnswer
    size_t octets = 0;
    Question question{};  ///< for all others: what was asked, in some spelling, so that it can be asked again
  };
  /// kTimeout at the deadline, or up to 25 ms later; kIo where the server cannot be reached.
  using Done = std::move_only_function<void(Result<Outcome>)>;

  static Result<std::shared_ptr<UdpPool>> Create(boost::asio::io_context& context, SocketSeal seal);
  /// `done` is called once, later, on the context's thread; from Stop with kIo.
  void Ask(const Endpoint& server, const Question& question, Extension extension, TimePoint deadline, Done done);
  void Stop();

 private:
  struct Slot {
    UniqueFd fd;
    int family = 0;
    bool active = false;
    bool unsent = false;     ///< what comes is for an earlier question
    bool connected = false;  ///< has a port
    int strangers = 0;
    int uses = 0;  ///< questions that left from its present port; 0: it is to get another
    TimePoint deadline{};
    Endpoint server{};
    SentQuery sent{};
    Done done{};
  };

  UdpPool(boost::asio::io_context& context, UniqueFd epoll, SocketSeal seal);
  void Watch();
  void WatchLater();
  void SendUnsent();
  /// The errno, or 0.
  [[nodiscard]] int SendOne(Slot& slot);
  struct Arrived {
    uint32_t index = 0;
    size_t at = 0;  ///< in buffer_
    ssize_t size = 0;
    int error = 0;
  };
  /// False: what has come cannot be told.
  [[nodiscard]] bool ReceiveReady();
  /// Reads one datagram into buffer_, from `at` on. False: none for a question that waits.
  bool ReceiveOne(uint32_t index, size_t at, Arrived* arrived);
  void Take(const Arrived& arrived);
  /// False: the question goes on waiting.
  bool TakeOne(const Arrived& arrived);
  void Tick();
  void StartTicking();
  void Arm(std::chrono::milliseconds wait);
  [[nodiscard]] Result<uint32_t> Open(int family);
  [[nodiscard]] Result<uint32_t> Choose(const Endpoint& server);
  void FailLater(Error error, Done done);
  /// The slot is free afterwards, its socket kept for another question or closed.
  enum class Keep : uint8_t { kSocket, kNothing };
  [[nodiscard]] Done Free(uint32_t index, Keep keep);
  void CloseIdle();

  boost::asio::io_context& context_;
  const SocketSeal seal_;
  boost::asio::posix::stream_descriptor epoll_;
  boost::asio::steady_timer tick_;
  boost::asio::steady_timer rest_;
  RandomOctets random_;
  std::deque<Slot> slots_;         // never moves
  std::vector<uint32_t> empty_;    // without a socket
  std::vector<uint32_t> idle_[2];  // with one: IPv4, IPv6
  std::vector<uint32_t> unsent_;   // asked in this turn
  std::vector<uint8_t> buffer_;    // none until something comes
  size_t active_ = 0;
  enum class Ticking : uint8_t { kNo, kForDeadlines, kForIdle };
  Ticking ticking_ = Ticking::kNo;
  uint64_t armed_ = 0;
  bool stopped_ = false;
};

}  // namespace sluice::dns
