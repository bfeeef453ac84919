#pragma once

// What a command writes to its standard output and error, as the relay moves it: counted, held to a bound, and copied to a
// transcript. One thread, which never waits for whoever reads a transcript that is a pipe.

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "supervisor/io/shared_sink.h"

namespace sluice::supervisor {

class OutputMeter {
 public:
  /// `transcript`: borrowed, -1 for none.
  OutputMeter(int transcript, std::optional<uint64_t> bound) : transcript_(transcript), bound_(bound) {}

  /// Whether anything is to be counted or copied, so that output has to pass here at all.
  [[nodiscard]] bool wanted() const { return transcript_.fd() >= 0 || bound_.has_value(); }
  /// How many of `size` octets may pass on; they are in the transcript then, or wait for room in it.
  [[nodiscard]] size_t Take(const char* data, size_t size);
  /// Whether something waits for room in the transcript: no more is to be taken until it is there.
  [[nodiscard]] bool behind() const { return !waiting_.empty(); }
  /// What to wait for while it does; fd -1 where nothing waits.
  [[nodiscard]] pollfd Interest() const { return {.fd = behind() ? transcript_.fd() : -1, .events = POLLOUT, .revents = 0}; }
  void WriteWaiting();
  /// Nobody made room for what still waits.
  void GiveUp();
  /// More was written than the bound allows.
  [[nodiscard]] bool exceeded() const { return exceeded_; }
  [[nodiscard]] uint64_t count() const { return count_; }
  /// False once the transcript could not be written: then it ends early, which was logged.
  [[nodiscard]] bool complete() const { return complete_; }

 private:
  void Break(const char* why);

  SharedSink transcript_;
  std::string waiting_;
  std::optional<uint64_t> bound_;
  uint64_t count_ = 0;
  bool exceeded_ = false;
  bool complete_ = true;
};

}  // namespace sluice::supervisor
