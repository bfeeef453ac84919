#include "proxy/io/relay.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/fault.h"
#include "proxy/io/limits.h"

namespace sluice::proxy {
namespace {

constexpr size_t kSpliceBytes = 1 << 20;

enum class Move : uint8_t { kMoved, kBlocked, kEnded, kBroken };

/// One direction. What is short goes through memory: two calls a piece, and no descriptors beside the two sockets. Once a read
/// fills its room there is more to come, which a pipe then carries past it, where neither side is under TLS and there is a pipe.
struct Lane {
  Stream* from;
  Stream* to;
  std::span<char> scratch;
  PipePool* pipes = nullptr;  ///< null: all of it goes through memory
  Buffer held{};              ///< read, and not taken yet
  Pipe pipe{};                ///< the same; valid from the first long read on
  uint64_t moved = 0;
  bool read_done = false;
  bool ended = false;
  uint8_t from_needs = 0;
  uint8_t to_needs = 0;
};

Move WriteOn(Lane* lane, std::string_view bytes, size_t* taken) {
  const Io io = lane->to->Write(bytes);
  if (io.status == IoStatus::kWouldBlock) {
    lane->to_needs = lane->to->write_needs;
    return Move::kBlocked;
  }
  if (io.status != IoStatus::kOk) return Move::kBroken;
  *taken = io.n;
  lane->moved += io.n;
  return Move::kMoved;
}

Move DrainPipe(Lane* lane) {
  while (lane->pipe.held != 0) {
    if ((lane->to->channel.ready & kWritable) == 0) {
      lane->to_needs = kWritable;
      return Move::kBlocked;
    }
    const ssize_t n = Faulty("relay.drain", [&] {
      return splice(lane->pipe.read.get(), nullptr, lane->to->channel.fd(), nullptr, lane->pipe.held,
                    SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    });
    if (n > 0) {
      lane->pipe.held -= static_cast<size_t>(n);
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

// All that was read.
Move Drain(Lane* lane) {
  while (!lane->held.empty()) {
    size_t taken = 0;
    if (const Move wrote = WriteOn(lane, lane->held.view(), &taken); wrote != Move::kMoved) return wrote;
    lane->held.Consume(taken);
  }
  return DrainPipe(lane);
}

Move FillPipe(Lane* lane) {
  for (;;) {
    if ((lane->from->channel.ready & kReadable) == 0) break;
    const ssize_t n = Faulty("relay.fill", [&] {
      return splice(lane->from->channel.fd(), nullptr, lane->pipe.write.get(), nullptr, kSpliceBytes,
                    SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    });
    if (n > 0) {
      lane->pipe.held += static_cast<size_t>(n);
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

// Written at once as far as it is taken: only the rest is copied.
Move Fill(Lane* lane) {
  if (lane->pipe.read) return FillPipe(lane);
  const Io io = lane->from->Read(lane->scratch);
  if (io.status == IoStatus::kWouldBlock) {
    lane->from_needs = lane->from->read_needs;
    return Move::kBlocked;
  }
  if (io.status == IoStatus::kError) return Move::kBroken;
  if (io.status == IoStatus::kEof) {
    lane->read_done = true;
    return Move::kEnded;
  }
  if (io.n == lane->scratch.size() && lane->pipes != nullptr && lane->from->prefix.empty()) lane->pipe = lane->pipes->Take();
  const std::string_view bytes(lane->scratch.data(), io.n);
  size_t taken = 0;
  const Move wrote = WriteOn(lane, bytes, &taken);
  if (wrote != Move::kBroken) lane->held.Append(bytes.substr(taken));
  return wrote;
}

// Moves what can be moved, a bounded number of times. `other`: the lane the other way.
Move Turn(Lane* lane, const Lane& other) {
  lane->from_needs = lane->to_needs = 0;
  for (int round = 0; round < kRoundsPerTurn; ++round) {
    if (const Move drained = Drain(lane); drained != Move::kMoved) return drained;
    const Move filled = lane->read_done ? Move::kEnded : Fill(lane);
    if (filled == Move::kEnded && !lane->ended) {
      // The second end closes both sockets, which says it as well.
      if (!other.ended) lane->to->ShutdownWrite();
      lane->ended = true;
    }
    if (filled != Move::kMoved) return filled;
  }
  return Move::kMoved;
}

// The two lanes of a relay until both have ended, and why it ended otherwise. They must live until it is done.
Task<RelayOutcome> RunLanes(RelayOn on, Lane& up_lane, Lane& down_lane) {
  Reactor& reactor = on.reactor;
  Waiter& waiter = on.waiter;
  Channel& down = up_lane.from->channel;
  Channel& up = up_lane.to->channel;
  RelayOutcome outcome;
  for (;;) {
    const Move a = Turn(&up_lane, down_lane);
    const Move b = Turn(&down_lane, up_lane);
    if (a == Move::kBroken || b == Move::kBroken) {
      outcome.error = "reset by a peer";
      break;
    }
    if (a == Move::kEnded && b == Move::kEnded) break;
    const SteadyTime deadline = reactor.now() + on.idle;
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

Task<RelayOutcome> RelayThroughTls(RelayOn on, Stream& down, Stream& up, Buffer first) {
  Lane up_lane{&down, &up, on.scratch};
  Lane down_lane{&up, &down, on.scratch};
  down_lane.held = std::move(first);
  co_return co_await RunLanes(on, up_lane, down_lane);
}

Pipe PipePool::Take() {
  if (!spare_.empty()) {
    Pipe pipe = std::move(spare_.back());
    spare_.pop_back();
    return pipe;
  }
  int ends[2];
  if (Faulty("relay.pipe", [&] { return pipe2(ends, O_CLOEXEC | O_NONBLOCK); }) != 0) return {};
  Pipe pipe{UniqueFd(ends[0]), UniqueFd(ends[1]), 0};
  if (ends[0] >= ceiling_ || ends[1] >= ceiling_) return {};
  (void)fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes);
  return pipe;
}

void PipePool::Give(Pipe pipe) {
  if (pipe.held == 0 && pipe.read && spare_.size() < kMaxSparePipes) spare_.push_back(std::move(pipe));
}

Task<RelayOutcome> Relay(RelayOn on, PipePool& pipes, Stream& down, Stream& up) {
  Lane up_lane{&down, &up, on.scratch, &pipes};
  Lane down_lane{&up, &down, on.scratch, &pipes};
  const RelayOutcome outcome = co_await RunLanes(on, up_lane, down_lane);
  pipes.Give(std::move(up_lane.pipe));
  pipes.Give(std::move(down_lane.pipe));
  co_return outcome;
}

}  // namespace sluice::proxy
