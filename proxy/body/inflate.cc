#include "proxy/body/inflate.h"

#include <zlib.h>

#include <algorithm>

#include "proxy/http1.h"

namespace sluice::proxy {
namespace {

constexpr size_t kPiece = size_t{16} * 1024;
constexpr int kGzipWindow = 15 + 16;
constexpr int kZlibWindow = 15;
constexpr int kRawWindow = -15;

// Whether a reader that expects deflate without a header would get through too, and so read something else.
bool ReadsAsRaw(std::string_view body) {
  z_stream stream{};
  if (inflateInit2(&stream, kRawWindow) != Z_OK) return true;
  std::string piece(kPiece, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(body.data()));
  stream.avail_in = static_cast<uInt>(body.size());
  int status = Z_OK;
  while (status == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    status = inflate(&stream, Z_NO_FLUSH);
    if (stream.total_out > body.size() * kMaxInflateRatio + kInflateFree) status = Z_STREAM_END;
  }
  inflateEnd(&stream);
  return status == Z_STREAM_END;
}

}  // namespace

std::optional<Coding> CodingOf(std::span<const policy::HeaderView> headers) {
  std::optional<Coding> coding = Coding::kIdentity;
  size_t count = 0;
  for (const auto& [name, value] : headers) {
    if (name != "content-encoding") continue;
    if (++count > 1) return std::nullopt;
    coding = EqualsLower(value, "gzip") || EqualsLower(value, "x-gzip") ? std::optional(Coding::kGzip)
             : EqualsLower(value, "deflate")                            ? std::optional(Coding::kDeflate)
             : EqualsLower(value, "identity")                           ? std::optional(Coding::kIdentity)
                                                                        : std::nullopt;
  }
  return coding;
}

Inflater::Inflater(Coding coding, size_t max_bytes)
    : stream_(std::make_unique<z_stream>()), out_(std::make_unique_for_overwrite<char[]>(kPiece)), max_bytes_(max_bytes) {
  if (inflateInit2(stream_.get(), coding == Coding::kGzip ? kGzipWindow : kZlibWindow) != Z_OK)
    Fail("no memory to inflate the body");
}

Inflater::~Inflater() { inflateEnd(stream_.get()); }

void Inflater::Fail(std::string_view why) {
  state_ = State::kFaulty;
  fault_ = why;
}

std::string_view Inflater::Next(std::string_view* in) {
  if (state_ != State::kMore) return {};
  const size_t offered = std::min<size_t>(in->size(), UINT32_MAX);
  stream_->next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in->data()));
  stream_->avail_in = static_cast<uInt>(offered);
  stream_->next_out = reinterpret_cast<Bytef*>(out_.get());
  stream_->avail_out = static_cast<uInt>(kPiece);
  const int status = inflate(stream_.get(), Z_NO_FLUSH);
  const size_t made = kPiece - stream_->avail_out;
  taken_ += offered - stream_->avail_in;
  made_ += made;
  in->remove_prefix(offered - stream_->avail_in);
  if (status == Z_STREAM_END) {
    state_ = State::kDone;
  } else if (status != Z_OK && status != Z_BUF_ERROR) {
    Fail("the compressed body is damaged");
  }
  if (made_ > max_bytes_) Fail("the compressed body inflates to more than may be judged");
  if (made_ > kInflateFree && made_ / kMaxInflateRatio > taken_)
    Fail("the compressed body inflates to more than a hundred times its size");
  return state_ == State::kFaulty ? std::string_view{} : std::string_view(out_.get(), made);
}

std::optional<std::string> Inflate(Coding coding, std::string_view body, size_t max_bytes, std::string* out) {
  Inflater inflater(coding, max_bytes);
  const std::string_view whole = body;
  while (true) {
    const std::string_view piece = inflater.Next(&body);
    *out += piece;
    if (inflater.state() == Inflater::State::kFaulty) return std::string(inflater.fault());
    if (inflater.state() == Inflater::State::kDone) break;
    if (piece.empty() && body.empty()) return "the compressed body is cut short";
  }
  if (!body.empty()) return "the compressed body goes on behind its end, where readers differ";
  if (coding == Coding::kDeflate && ReadsAsRaw(whole)) return "the deflated body reads in two ways";
  return std::nullopt;
}

}  // namespace sluice::proxy
