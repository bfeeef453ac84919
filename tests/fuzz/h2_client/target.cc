// What a client sends after its preface: whatever it is, the machine stays within its bounds, what it accepts as a request
// can be sent as HTTP/1.1 and read again, and the order of what it tells is kept.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

#include "proxy/forward.h"
#include "proxy/h2_session.h"
#include "tests/fuzz/shape.h"

using namespace sluice;
using namespace sluice::proxy;

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckForwarded(const RequestHead& head, const Framing& framing) {
  Buffer out;
  AppendRequestHead(&out, head, {head.target, "a.test", framing});
  std::string bytes(out.view());
  size_t resume = 0;
  const auto end = FindHeadEnd(bytes, &resume);
  // Its name and its ends of lines make a head in lines longer than the section was.
  if (!end) return;
  Require(*end == bytes.size());
  RequestHead again;
  Require(!ParseRequestHead({bytes.data(), bytes.size()}, &again));
  Require(again.method == head.method && again.target == head.target && again.hosts == 1 && again.host == "a.test");
  const auto framed = RequestFraming(again);
  Require(framed && (framed->kind == framing.kind || framing.kind == BodyKind::kNone) && framed->length == framing.length);
}

class Listener final : public H2Listener {
 public:
  void OnHead(int32_t id, H2Section& section, H2End end) override {
    Require(id > 0 && state_.emplace(id, 0).second);
    H2HeadStore store;
    std::swap(store.section, section);
    RequestHead head;
    Framing framing;
    const Fault fault = ReadRequestSection(&store, end, "https", &head, &framing);
    H2Output output;
    if (!fault) CheckForwarded(head, framing);
    Denial denial;
    denial.id = "d-1";
    denial.status = fault ? fault.status : uint16_t{403};
    WriteDenialSection(&output, denial, H2FormFor(head), 3);
    session->Respond(id, output, H2End::kOpen);
  }
  void OnTrailers(int32_t id, H2Section& section) override {
    Require(state_.at(id) == 0);
    std::string lines = ReadTrailerSection(section);
    Require(lines.find("\r\n\r\n") == std::string::npos);
  }
  void OnData(int32_t id, std::string_view bytes) override {
    Require(state_.at(id) == 0);
    unread_ += bytes.size();
    Require(unread_ <= kH2DownstreamConnectionWindow);
    if (unread_ % 3 != 0) return;
    session->Consume(id, bytes.size());
    unread_ -= bytes.size();
  }
  void OnEnd(int32_t id) override { Require(state_.at(id)++ == 0); }
  void OnClosed(int32_t id, uint32_t /*code*/) override { state_.erase(id); }
  Piece ReadBody(int32_t /*id*/, std::span<char> room) override {
    std::fill_n(room.data(), 3, 'x');
    return {3, true, nullptr};
  }
  [[nodiscard]] size_t open() const { return state_.size(); }
  H2Session* session = nullptr;

 private:
  std::map<int32_t, int> state_;
  size_t unread_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Listener listener;
  H2Session session(H2Role::kServer, listener);
  listener.session = &session;
  const SteadyTime now{std::chrono::seconds(1)};
  Buffer out;
  bool well = session.Feed("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", now);
  Require(well);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (size_t at = 0; well && at < size; at += 4096) {
    well = session.Feed(bytes.substr(at, 4096), now) && session.Write(&out);
    Require(listener.open() <= kH2MaxStreams);
    out.Clear();
  }
  Require(well == session.failure().empty());
  if (well) return 0;
  for (;;) {
    (void)session.Write(&out);
    if (out.empty()) break;
    out.Clear();
  }
  Require(session.done() || session.failure_code() == kH2InternalError);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return sluice::fuzz::Mutate(sluice::fuzz::kHttp2Frames, data, size, most, seed);
}
