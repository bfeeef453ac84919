#include "proxy/io/relay.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "proxy/io/limits.h"

namespace sluice::proxy {
namespace {

constexpr size_t kSpliceBytes = 1 << 20;

enum class Move : uint8_t { kMoved, kBlocked, kEnded, kBroken };

/// One direction.
struct Lane {
  Stream* from;
  Stream* to;
  Pipe* pipe;
  uint64_t moved = 0;
  bool read_done = false;
  bool ended = false;  ///< FIN passed on
  uint8_t from_needs = 0;
  uint8_t to_needs = 0;
};

Move Drain(Lane* lane) {
  while (lane->pipe->held != 0) {
    if ((lane->to->channel.ready & kWritable) == 0) {
      lane->to_needs = kWritable;
      return Move::kBlocked;
    }
    const ssize_t n = splice(lane->pipe->read.get(), nullptr, lane->to->channel.fd(), nullptr, lane->pipe->held,
                             SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n > 0) {
      lane->pipe->held -= static_cast<size_t>(n);
      lane->moved += static_cast<uint64_t>(n);
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      lane->to->channel.ready &= static_cast<uint8_t>(~kWritable);
      lane->to_needs = kWritable;
      return Move::kBlocked;
    }
    return Move::kBroken;
  }
  return Move::kMoved;
}

Move FillFromSocket(Lane* lane) {
  if (lane->read_done) return Move::kEnded;
  if (!lane->from->prefix.empty()) {
    // What was read to look at goes first; it fits, since it is bounded and the pipe is empty.
    const auto view = lane->from->prefix.view();
    const ssize_t n = write(lane->pipe->write.get(), view.data(), view.size());
    if (n <= 0) return Move::kBroken;
    lane->from->prefix.Consume(static_cast<size_t>(n));
    lane->pipe->held += static_cast<size_t>(n);
    return Move::kMoved;
  }
  for (;;) {
    if ((lane->from->channel.ready & kReadable) == 0) break;
    const ssize_t n = splice(lane->from->channel.fd(), nullptr, lane->pipe->write.get(), nullptr, kSpliceBytes,
                             SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n > 0) {
      lane->pipe->held += static_cast<size_t>(n);
      return Move::kMoved;
    }
    if (n == 0) {
      lane->read_done = true;
      return Move::kEnded;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return Move::kBroken;
    // The pipe is empty here, so it is the socket that has nothing.
    lane->from->channel.ready &= static_cast<uint8_t>(~kReadable);
    break;
  }
  lane->from_needs = kReadable;
  return Move::kBlocked;
}

// Moves what can be moved, a bounded number of times.
Move Turn(Lane* lane) {
  lane->from_needs = lane->to_needs = 0;
  for (int round = 0; round < kRoundsPerTurn; ++round) {
    if (const Move drained = Drain(lane); drained != Move::kMoved) return drained;
    const Move filled = FillFromSocket(lane);
    if (filled == Move::kEnded && !lane->ended) {
      shutdown(lane->to->channel.fd(), SHUT_WR);
      lane->ended = true;
    }
    if (filled != Move::kMoved) return filled;
  }
  return Move::kMoved;
}

/// One direction through a buffer.
struct CopyLane {
  Stream* from;
  Stream* to;
  Buffer held{};
  uint64_t moved = 0;
  bool read_done = false;
  bool ended = false;
  uint8_t from_needs = 0;
  uint8_t to_needs = 0;
};

Move Turn(CopyLane* lane) {
  lane->from_needs = lane->to_needs = 0;
  for (int round = 0; round < kRoundsPerTurn; ++round) {
    if (!lane->held.empty()) {
      const Io io = lane->to->Write(lane->held.view());
      if (io.status == IoStatus::kWouldBlock) {
        lane->to_needs = lane->to->write_needs;
        return Move::kBlocked;
      }
      if (io.status != IoStatus::kOk) return Move::kBroken;
      lane->held.Consume(io.n);
      lane->moved += io.n;
      continue;
    }
    if (lane->read_done) {
      if (!lane->ended) lane->to->ShutdownWrite();
      lane->ended = true;
      return Move::kEnded;
    }
    const Io io = lane->from->Read(lane->held.Prepare(kReadPiece));
    if (io.status == IoStatus::kWouldBlock) {
      lane->from_needs = lane->from->read_needs;
      return Move::kBlocked;
    }
    if (io.status == IoStatus::kError) return Move::kBroken;
    if (io.status == IoStatus::kEof) {
      lane->read_done = true;
    } else {
      lane->held.Commit(io.n);
    }
  }
  return Move::kMoved;
}

// The two lanes of a relay until both have ended, and why it ended otherwise. They must live until it is done.
template <class AnyLane>
Task<RelayOutcome> RunLanes(Reactor& reactor, Waiter& waiter, AnyLane& up_lane, AnyLane& down_lane) {
  Channel& down = up_lane.from->channel;
  Channel& up = up_lane.to->channel;
  RelayOutcome outcome;
  for (;;) {
    const Move a = Turn(&up_lane);
    const Move b = Turn(&down_lane);
    if (a == Move::kBroken || b == Move::kBroken) {
      outcome.error = "reset by a peer";
      break;
    }
    if (a == Move::kEnded && b == Move::kEnded) break;
    const SteadyTime deadline = reactor.now() + kRelayIdle;
    Wake wake = Wake::kReady;
    if (a == Move::kMoved || b == Move::kMoved) {
      wake = co_await waiter.Yield(deadline);
    } else {
      const auto down_needs = static_cast<uint8_t>(up_lane.from_needs | down_lane.to_needs);
      const auto up_needs = static_cast<uint8_t>(up_lane.to_needs | down_lane.from_needs);
      wake = co_await waiter.Wait({&down, down_needs}, {&up, up_needs}, deadline);
      // A side in error of which nothing is asked wakes for ever: nothing more can come of this relay.
      const bool down_broken = (down.ready & kBroken) != 0 && down_needs == 0;
      const bool up_broken = (up.ready & kBroken) != 0 && up_needs == 0;
      if (wake == Wake::kReady && (down_broken || up_broken)) {
        outcome.error = up_lane.ended && down_lane.ended ? "" : "reset by a peer";
        break;
      }
    }
    if (wake != Wake::kReady) {
      outcome.error = wake == Wake::kTimeout ? "idle for too long" : "closed by a change of policy";
      break;
    }
  }
  outcome.bytes_up = up_lane.moved;
  outcome.bytes_down = down_lane.moved;
  co_return outcome;
}

}  // namespace

Task<RelayOutcome> RelayThroughTls(Reactor& reactor, Waiter& waiter, Stream& down, Stream& up, Buffer first) {
  CopyLane up_lane{&down, &up};
  CopyLane down_lane{&up, &down};
  down_lane.held = std::move(first);
  co_return co_await RunLanes(reactor, waiter, up_lane, down_lane);
}

Pipe PipePool::Take() {
  if (!spare_.empty()) {
    Pipe pipe = std::move(spare_.back());
    spare_.pop_back();
    return pipe;
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return {};
  Pipe pipe{UniqueFd(ends[0]), UniqueFd(ends[1]), 0};
  if (ends[0] >= ceiling_ || ends[1] >= ceiling_) return {};
  (void)fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes);
  return pipe;
}

void PipePool::Give(Pipe pipe) {
  if (pipe.held == 0 && pipe.read && spare_.size() < kMaxSparePipes) spare_.push_back(std::move(pipe));
}

Task<RelayOutcome> Relay(PipePool& pipes, Reactor& reactor, Waiter& waiter, Stream& down, Stream& up) {
  Pipe up_pipe = pipes.Take();
  Pipe down_pipe = pipes.Take();
  RelayOutcome outcome;
  if (!up_pipe.read || !down_pipe.read) {
    outcome.error = kNoPipe.data();
    co_return outcome;
  }
  Lane up_lane{&down, &up, &up_pipe};
  Lane down_lane{&up, &down, &down_pipe};
  outcome = co_await RunLanes(reactor, waiter, up_lane, down_lane);
  pipes.Give(std::move(up_pipe));
  pipes.Give(std::move(down_pipe));
  co_return outcome;
}

}  // namespace sluice::proxy
