#include "proxy/io/h2_connection.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "proxy/io/limits.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {

H2Connection::H2Connection(FlowContext& flow, policy::Scheme scheme, UpstreamPtr prepared)
    : flow_(flow),
      scheme_(scheme),
      prepared_(std::move(prepared)),
      session_(H2Role::kServer, *this),
      idle_since_(flow.worker().reactor().now()),
      written_at_(idle_since_) {}

H2Connection::~H2Connection() {
  // Each stream ends within this call: a cancelled waiter does not wait.
  for (auto& [id, slot] : streams_)
    if (!slot->done) slot->stream->Cancel();
}

H2Stream* H2Connection::Find(int32_t id) {
  const auto found = streams_.find(id);
  return found != streams_.end() && !found->second->done ? found->second->stream.get() : nullptr;
}

void H2Connection::OnHead(int32_t id, H2Section& section, H2End end) {
  // Streams that the client has reset may take a moment to end.
  if (streams_.size() >= size_t{2} * kH2MaxStreams) {
    session_.Reset(id, kH2RefusedStream);
    return;
  }
  auto slot = std::make_unique<Slot>();
  slot->stream = std::make_unique<H2Stream>(*this, id, ++number_, section, end);
  starting_.push_back(slot.get());
  streams_.emplace(id, std::move(slot));
}

void H2Connection::OnTrailers(int32_t id, H2Section& section) {
  if (H2Stream* stream = Find(id)) stream->OnTrailers(section);
}

void H2Connection::OnData(int32_t id, std::string_view bytes) {
  if (H2Stream* stream = Find(id)) {
    stream->OnData(bytes);
  } else {
    session_.Consume(id, bytes.size());
  }
}

void H2Connection::OnEnd(int32_t id) {
  if (H2Stream* stream = Find(id)) stream->OnEnd();
}

void H2Connection::OnClosed(int32_t id, uint32_t /*code*/) {
  if (H2Stream* stream = Find(id)) stream->OnClosed();
}

H2Listener::Piece H2Connection::ReadBody(int32_t id, std::span<char> room) {
  H2Stream* stream = Find(id);
  return stream != nullptr ? stream->ReadBody(room) : Piece{};
}

// Outside nghttp2's callbacks: a stream may be answered before this returns.
void H2Connection::StartStreams() {
  for (size_t i = 0; i < starting_.size(); ++i) RunStream(starting_[i]);
  starting_.clear();
}

detail::Detached H2Connection::RunStream(Slot* slot) {
  try {
    co_await slot->stream->Run();
  } catch (const std::exception& fault) {
    // Out of memory, in the main: this stream ends and the others go on.
    LogError("proxy stream: {}", fault.what());
    session_.Reset(slot->stream->id(), kH2InternalError);
  }
  slot->done = true;
  finished_.push_back(slot->stream->id());
  if (!flow_.waiter.cancelled()) Flush();
}

void H2Connection::Reap() {
  if (finished_.empty()) return;
  for (const int32_t id : finished_) streams_.erase(id);
  finished_.clear();
  idle_since_ = flow_.worker().reactor().now();
}

H2Connection::Pump H2Connection::ReadSome() {
  Worker& worker = flow_.worker();
  read_needs_ = 0;
  for (int round = 0; round < kRoundsPerTurn; ++round) {
    const Io io = flow_.down.Read(worker.scratch());
    if (io.status == IoStatus::kWouldBlock) {
      read_needs_ = flow_.down.read_needs;
      return Pump::kBlocked;
    }
    if (io.status != IoStatus::kOk) return Pump::kEnded;
    trimmed_ = false;
    if (!session_.Feed({worker.scratch().data(), io.n}, worker.reactor().now())) return Pump::kEnded;
    StartStreams();
  }
  return Pump::kMore;
}

H2Connection::Pump H2Connection::WriteSome() {
  write_needs_ = 0;
  for (int round = 0; round < kRoundsPerTurn; ++round) {
    const bool well = session_.Write(&out_);
    if (out_.empty()) return well ? Pump::kBlocked : Pump::kEnded;
    const Io io = flow_.down.Write(out_.view());
    if (io.status == IoStatus::kWouldBlock) {
      write_needs_ = flow_.down.write_needs;
      return Pump::kBlocked;
    }
    if (io.status != IoStatus::kOk) return Pump::kEnded;
    out_.Consume(io.n);
    written_at_ = flow_.worker().reactor().now();
  }
  return Pump::kMore;
}

SteadyTime H2Connection::Deadline() const {
  SteadyTime deadline = SteadyTime::max();
  const Deadlines& deadlines = flow_.worker().shared().options().deadlines;
  if (!out_.empty()) deadline = written_at_ + deadlines.write_stuck;
  if (const auto since = session_.section_since()) deadline = std::min<SteadyTime>(deadline, *since + deadlines.head);
  if (streams_.empty()) deadline = std::min<SteadyTime>(deadline, idle_since_ + deadlines.keep_alive_idle);
  return deadline;
}

Task<> H2Connection::Run() {
  for (;;) {
    Pump read = ReadSome();
    const Pump wrote = WriteSome();
    Reap();
    if (read == Pump::kEnded || wrote == Pump::kEnded || session_.done()) break;
    const SteadyTime deadline = Deadline();
    Wake wake = Wake::kReady;
    if (read == Pump::kMore || wrote == Pump::kMore) {
      wake = co_await flow_.waiter.Yield(deadline);
    } else {
      const auto needs = static_cast<uint8_t>(read_needs_ | write_needs_);
      wake = co_await flow_.waiter.Wait({&flow_.down.channel, needs}, deadline);
    }
    if (wake == Wake::kCancelled) co_return;
    if (wake == Wake::kReady) continue;
    const bool in_section = session_.section_since().has_value();
    if (in_section) session_.Terminate(kH2EnhanceYourCalm, "a header section that did not arrive in time");
    if (streams_.empty() && !in_section) session_.Shutdown();
    break;
  }
  RecordFailure();
  co_await SayGoodbye();
}

void H2Connection::RecordFailure() {
  if (session_.failure().empty()) return;
  const bool calm = session_.failure_code() == kH2EnhanceYourCalm;
  const policy::ConnectDecision decision{
      policy::ConnectVerdict::kDeny,
      {false, calm ? policy::Reason::kLimit : policy::Reason::kProtocol, policy::RuleRef::kNone, false}};
  (void)flow_.RecordConnect(policy::EventLayer::kRequest, decision, flow_.dialled, fmt::format("HTTP/2: {}", session_.failure()));
}

// The last frames, GOAWAY among them, while the client takes them; then what it still sends is let go by, so that a reset does
// not overtake them.
Task<> H2Connection::SayGoodbye() {
  for (auto& [id, slot] : streams_)
    if (!slot->done) slot->stream->Cancel();
  const Deadlines& deadlines = flow_.worker().shared().options().deadlines;
  const SteadyTime deadline = flow_.worker().reactor().now() + deadlines.linger;
  for (;;) {
    const Pump wrote = WriteSome();
    if (out_.empty()) break;
    if (wrote == Pump::kEnded) co_return;
    if (wrote == Pump::kMore) continue;
    const Wake wake = co_await flow_.waiter.Wait({&flow_.down.channel, write_needs_}, deadline);
    if (wake != Wake::kReady) co_return;
  }
  flow_.down.ShutdownWrite();
  size_t dropped = 0;
  while (dropped < deadlines.linger_bytes) {
    const Io io = flow_.down.RawRead(flow_.worker().scratch());
    if (io.status == IoStatus::kOk) {
      dropped += io.n;
      continue;
    }
    if (io.status != IoStatus::kWouldBlock) co_return;
    const Wake wake = co_await flow_.waiter.Wait({&flow_.down.channel, kReadable}, deadline);
    if (wake != Wake::kReady) co_return;
  }
}

void H2Connection::Trim(SteadyTime now) {
  if (trimmed_ || !streams_.empty() || !out_.empty() || now - idle_since_ < kTrimAfter) return;
  out_.Release();
  flow_.down.Trim();
  trimmed_ = true;
}

bool H2Connection::Recheck() {
  if (!flow_.JudgeConnect(std::nullopt).allowed()) return false;
  prepared_.reset();
  for (auto& [id, slot] : streams_)
    if (!slot->done && !slot->stream->StillAllowed()) slot->stream->Revoke("closed by a change of policy");
  WriteNow();
  return true;
}

}  // namespace sluice::proxy
