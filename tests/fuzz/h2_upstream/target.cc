// What an upstream sends in answer to a GET, a HEAD and a POST: whatever it is, the machine stays within its bounds, and a head
// that it accepts can be sent as HTTP/1.1 and read again.
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

class Listener final : public H2Listener {
 public:
  void OnHead(int32_t id, H2Section& section, H2End end) override {
    Require(methods.contains(id));
    H2HeadStore store;
    std::swap(store.section, section);
    ResponseHead head;
    Framing framing;
    if (ReadResponseSection(&store, end, methods[id], &head, &framing)) return;
    Require(head.status >= 100 && head.status != 101 && framing.kind != BodyKind::kUntilClose);
    Buffer out;
    if (head.status < 200) {
      AppendInterimHead(&out, head);
    } else {
      AppendResponseHead(&out, head, {framing, Version::k11, Keep::kKeepAlive});
    }
    std::string bytes(out.view());
    size_t resume = 0;
    const auto size = FindHeadEnd(bytes, &resume);
    if (!size) return;
    Require(*size == bytes.size());
    ResponseHead again;
    Require(!ParseResponseHead({bytes.data(), bytes.size()}, &again));
    Require(again.status == head.status && again.Find(FieldId::kSluiceDenied).empty());
    H2Output output;
    WriteResponseSection(&output, again, framing);
    for (const H2Field& field : output.fields()) Require(field.name != "x-sluice-denied" && field.name != "connection");
  }
  void OnTrailers(int32_t /*id*/, H2Section& section) override {
    Require(ReadTrailerSection(section).find("\r\n\r\n") == std::string::npos);
  }
  void OnData(int32_t id, std::string_view bytes) override {
    Require(methods.contains(id));
    received_[id] += bytes.size();
    Require(received_[id] <= kH2UpstreamWindow);
  }
  void OnEnd(int32_t id) override { Require(methods.contains(id)); }
  void OnClosed(int32_t id, uint32_t /*code*/) override { methods.erase(id); }
  Piece ReadBody(int32_t /*id*/, std::span<char> room) override {
    std::fill_n(room.data(), 3, 'x');
    return {3, true, nullptr};
  }
  std::map<int32_t, std::string> methods;

 private:
  std::map<int32_t, size_t> received_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Listener listener;
  H2Session session(H2Role::kClient, listener);
  for (const std::string method : {"GET", "HEAD", "POST"}) {
    H2Output section;
    section.Reset(0);
    section.Add(":method", method);
    section.Add(":scheme", "https");
    section.Add(":authority", "a.test");
    section.Add(":path", "/");
    const int32_t id = session.Request(section, method == "POST" ? H2End::kOpen : H2End::kEndStream);
    Require(id > 0);
    listener.methods[id] = method;
  }
  Buffer out;
  (void)session.Write(&out);
  out.Clear();
  const SteadyTime now{std::chrono::seconds(1)};
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  bool well = true;
  for (size_t at = 0; well && at < size; at += 4096) {
    well = session.Feed(bytes.substr(at, 4096), now) && session.Write(&out);
    out.Clear();
  }
  Require(well == session.failure().empty());
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return sluice::fuzz::Mutate(sluice::fuzz::kHttp2Frames, data, size, most, seed);
}
