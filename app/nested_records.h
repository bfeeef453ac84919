#pragma once

// The records of a run in the sandbox (app/nested.h), on their way to whoever reads the outer run's decisions: one message each,
// over a socket pair that neither sandbox has. What the outer's readers miss is never missing in the file.

#include <cstdint>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "app/decision_stream.h"
#include "audit/tap.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice::app {

/// The inner run's end. Where the outer one cannot keep up, records are left out, and a note says how many.
class RecordSender final : public audit::Tap {
 public:
  /// A SOCK_SEQPACKET socket.
  explicit RecordSender(UniqueFd socket);
  void Saw(const policy::DecisionEvent& event, uint64_t times) noexcept override;
  void Saw(const policy::ExchangeEvent& event) noexcept override;
  [[nodiscard]] bool wants_lines() const noexcept override { return true; }
  void Line(std::string_view line) noexcept override;

 private:
  [[nodiscard]] bool Send(const RecordAbout& about, std::string_view line) const noexcept;

  UniqueFd socket_;
  RecordAbout about_{};
  uint64_t missed_ = 0;
};

/// The outer run's end, with a thread of its own.
class RecordReceiver {
 public:
  /// An error: there is no thread for it.
  [[nodiscard]] static Result<std::unique_ptr<RecordReceiver>> Start(UniqueFd socket, DecisionStream& stream);
  /// Once the inner run has ended: what it sent is passed on first.
  ~RecordReceiver();
  RecordReceiver(const RecordReceiver&) = delete;
  RecordReceiver& operator=(const RecordReceiver&) = delete;

 private:
  RecordReceiver(UniqueFd socket, DecisionStream& stream) : socket_(std::move(socket)), stream_(stream) {}
  void Loop();

  UniqueFd socket_;
  DecisionStream& stream_;
  std::thread thread_;
};

}  // namespace sluice::app
