// Compressed bodies: the first byte chooses the coding. Whatever the pieces, the same bytes come out, and the bounds hold.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "proxy/body/body_reader.h"

using namespace sluice;
using proxy::Coding;
using proxy::Inflater;

namespace {

constexpr size_t kBound = size_t{1} << 20;

std::string InPieces(Coding coding, std::string_view in, size_t piece) {
  Inflater inflater(coding, kBound);
  std::string out;
  while (!in.empty() && inflater.state() == Inflater::State::kMore) {
    std::string_view part = in.substr(0, piece);
    const size_t offered = part.size();
    while (inflater.state() == Inflater::State::kMore) {
      const std::string_view made = inflater.Next(&part);
      out += made;
      if (made.empty() && part.empty()) break;
    }
    in.remove_prefix(offered - part.size());
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  if (in.empty()) return 0;
  const Coding coding = in[0] == 'd' ? Coding::kDeflate : Coding::kGzip;
  const std::string_view body = in.substr(1);
  std::string out;
  const auto fault = proxy::Inflate(coding, body, kBound, &out);
  if (out.size() > kBound) std::abort();
  if (!fault && (InPieces(coding, body, 1) != out || InPieces(coding, body, 7) != out)) std::abort();
  const policy::HeaderView headers[] = {{"content-type", "application/x-git-receive-pack-request"}, {"content-encoding", "gzip"}};
  const proxy::BodyContext context{.method = "POST", .headers = headers, .query = {}};
  const auto whole = proxy::ReadBody(policy::kBodyPush, context, body);
  proxy::BodyReader reader(policy::kBodyPush, context);
  for (size_t i = 0; i < body.size() && reader.state() == proxy::BodyReader::State::kMore; ++i) reader.Feed(body.substr(i, 1));
  if (reader.state() == proxy::BodyReader::State::kMore) reader.Finish();
  if (reader.Take().push->items != whole.push->items) std::abort();
  return 0;
}
