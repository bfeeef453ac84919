#pragma once

// HTTP/2 from the client: one session, one socket, and a coroutine for each stream. Bytes are read, given to the session, and
// what the streams have made of them is written, all on one worker's thread.

#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "proxy/buffer.h"
#include "proxy/h2_session.h"
#include "proxy/io/flow_context.h"
#include "proxy/io/h2_stream.h"

namespace sluice::proxy {

class H2Connection final : public H2Listener {
 public:
  /// `prepared`: a connection that was made ahead, or null.
  H2Connection(FlowContext& flow, policy::Scheme scheme, UpstreamPtr prepared);
  ~H2Connection() override;

  /// Until the client leaves, an error ends the connection, or the flow's waiter is cancelled.
  [[nodiscard]] Task<> Run();
  void Trim(SteadyTime now);
  /// The policy changed: ends the streams that are no longer allowed. False: the connection is not either.
  [[nodiscard]] bool Recheck();

  // For its streams.
  [[nodiscard]] FlowContext& flow() { return flow_; }
  [[nodiscard]] H2Session& session() { return session_; }
  [[nodiscard]] policy::Scheme scheme() const { return scheme_; }
  /// What the streams gave to the session is to be written.
  void Flush() { flow_.waiter.Poke(); }
  /// As far as the socket takes it at once.
  void WriteNow() { (void)WriteSome(); }
  [[nodiscard]] UpstreamPtr& prepared() { return prepared_; }

 private:
  enum class Pump : uint8_t { kMore, kBlocked, kEnded };
  void OnHead(int32_t id, H2Section& section, H2End end) override;
  void OnTrailers(int32_t id, H2Section& section) override;
  void OnData(int32_t id, std::string_view bytes) override;
  void OnEnd(int32_t id) override;
  void OnClosed(int32_t id, uint32_t code) override;
  Piece ReadBody(int32_t id, std::span<char> room) override;

  struct Slot {
    std::unique_ptr<H2Stream> stream;
    bool done = false;
  };
  detail::Detached RunStream(Slot* slot);
  void StartStreams();
  void Reap();
  Pump ReadSome();
  Pump WriteSome();
  void RecordFailure();
  Task<> SayGoodbye();
  [[nodiscard]] H2Stream* Find(int32_t id);
  [[nodiscard]] SteadyTime Deadline() const;

  FlowContext& flow_;
  const policy::Scheme scheme_;
  UpstreamPtr prepared_;
  H2Session session_;
  Buffer out_;
  std::unordered_map<int32_t, std::unique_ptr<Slot>> streams_;
  std::vector<Slot*> starting_;
  std::vector<int32_t> finished_;
  uint64_t number_ = 0;
  SteadyTime idle_since_;
  SteadyTime written_at_;
  bool trimmed_ = false;
  uint8_t read_needs_ = 0;
  uint8_t write_needs_ = 0;
};

}  // namespace sluice::proxy
