// A response head: what is accepted must, written anew, be accepted again with the same body.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "proxy/forward.h"
#include "proxy/http1.h"
#include "tests/fuzz/shape.h"

using namespace sluice::proxy;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  size_t resume = 0;
  const auto end = FindHeadEnd(bytes, &resume);
  if (!end || *end == 0) return 0;
  ResponseHead head;
  if (ParseResponseHead({bytes.data(), *end}, &head)) return 0;
  const auto framing = ResponseFraming(head, "GET");
  if (!framing) return 0;
  Framing forwarded = *framing;
  if (forwarded.kind == BodyKind::kUntilClose) forwarded.kind = BodyKind::kChunked;
  Buffer out;
  AppendResponseHead(&out, head, {forwarded, Version::k11, Keep::kKeepAlive});
  std::string again(out.view());
  if (again.size() + 256 > kMaxHeadBytes || head.status < 200) return 0;
  size_t second_resume = 0;
  const auto second_end = FindHeadEnd(again, &second_resume);
  if (!second_end || *second_end != again.size()) std::abort();
  ResponseHead second;
  if (ParseResponseHead({again.data(), again.size()}, &second)) std::abort();
  const auto second_framing = ResponseFraming(second, "GET");
  if (!second_framing || second_framing->kind != forwarded.kind || second_framing->length != forwarded.length) std::abort();
  if (second.status != head.status || !second.Find(FieldId::kSluiceDenied).empty()) std::abort();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return sluice::fuzz::Mutate(sluice::fuzz::kResponseHead, data, size, most, seed);
}
