// A request head: what is accepted must, written anew, be accepted again and mean the same.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "proxy/forward.h"
#include "proxy/http1.h"
#include "tests/fuzz/shape.h"

using namespace sluice::proxy;

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

bool Understand(std::string& bytes, RequestHead* head, Framing* framing, size_t* used) {
  size_t resume = 0;
  const auto end = FindHeadEnd(bytes, &resume);
  if (!end || *end == 0) return false;
  *used = *end;
  if (ParseRequestHead({bytes.data(), *end}, head)) return false;
  const auto framed = RequestFraming(*head);
  if (!framed) return false;
  *framing = *framed;
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  RequestHead head;
  Framing framing;
  size_t used = 0;
  if (!Understand(bytes, &head, &framing, &used)) return 0;
  Require(used <= kMaxHeadBytes && head.fields.size() <= kMaxFields && head.target.size() <= kMaxTargetBytes);
  for (const Field& field : head.fields) {
    Require(field.value.find_first_of(std::string_view("\r\n\0", 3)) == std::string_view::npos);
    Require(!field.name.empty() && field.name.find_first_of(" \t\r\n:") == std::string_view::npos);
  }
  Buffer out;
  AppendRequestHead(&out, head, {"/", "a.test", framing});
  std::string again(out.view());
  RequestHead second;
  Framing second_framing;
  size_t second_used = 0;
  // Written anew it can only have grown past the bound by what is put into it.
  if (again.size() + 256 > kMaxHeadBytes) return 0;
  Require(Understand(again, &second, &second_framing, &second_used));
  Require(second_used == again.size() && second.method == head.method && second.host == "a.test");
  Require(second_framing.kind == framing.kind || (framing.kind == BodyKind::kNone && second_framing.length == 0));
  Require(second_framing.length == framing.length);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return sluice::fuzz::Mutate(sluice::fuzz::kRequestHead, data, size, most, seed);
}
