#include "proxy/chunked.h"

#include <algorithm>
#include <array>
#include <limits>

namespace sluice::proxy {
namespace {

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Servers behind CGI, WSGI or Rack see no difference between '-' and '_' in a field name.
std::string Folded(std::string_view name) {
  std::string out(name);
  std::ranges::replace(out, '_', '-');
  return out;
}

// `keep` is asked for each line's field; lines that are none go.
template <class Keep>
void FilterLines(std::string* lines, Keep keep) {
  std::string left;
  for (size_t at = 0, end = 0; (end = lines->find("\r\n", at)) != std::string::npos; at = end + 2)
    if (const auto field = ParseFieldLine({lines->data() + at, end - at}); field && keep(*field))
      left.append(*lines, at, end + 2 - at);
  *lines = std::move(left);
}

bool Announces(std::string_view announced, std::string_view lower_name) {
  bool found = false;
  ForEachListItem(announced, [&](std::string_view item) { found |= EqualsLower(item, lower_name); });
  return found;
}

}  // namespace

void ChunkedDecoder::Reset() {
  state_ = State::kSizeFirst;
  left_ = 0;
  size_digits_ = 0;
  extension_bytes_ = 0;
  line_start_ = 0;
  trailers_.clear();
}

std::expected<ChunkedDecoder::Step, Fault> ChunkedDecoder::Next(std::string_view in) {
  size_t at = 0;
  while (at < in.size() && state_ != State::kDone) {
    if (state_ == State::kData) {
      const size_t take = std::min<uint64_t>(left_, in.size() - at);
      left_ -= take;
      if (left_ == 0) state_ = State::kDataCr;
      return Step{at + take, in.substr(at, take)};
    }
    const Fault fault = state_ == State::kTrailer ? Trailer(in[at]) : Control(in[at]);
    if (fault) return std::unexpected(fault);
    ++at;
  }
  return Step{at, {}};
}

Fault ChunkedDecoder::Control(char c) {
  switch (state_) {
    case State::kSizeFirst:
    case State::kSize: {
      const int digit = HexValue(c);
      if (digit >= 0) {
        if (left_ > (std::numeric_limits<uint64_t>::max() >> 5) || ++size_digits_ > kMaxChunkSizeDigits)
          return {400, "a chunk size that is too large"};
        left_ = left_ * 16 + static_cast<uint64_t>(digit);
        state_ = State::kSize;
        return {};
      }
      if (state_ == State::kSizeFirst) return {400, "a chunk without a size"};
      if (c == ';') {
        state_ = State::kExtension;
      } else if (c == '\r') {
        state_ = State::kSizeLf;
      } else {
        return {400, "a malformed chunk size"};
      }
      return {};
    }
    case State::kExtension: {
      if (c == '\r') {
        state_ = State::kSizeLf;
        return {};
      }
      const auto b = static_cast<unsigned char>(c);
      if ((b < 0x20 && c != '\t') || b == 0x7f) return {400, "a control character in a chunk extension"};
      if (++extension_bytes_ > kMaxChunkExtensionBytes) return {400, "chunk extensions that are too long"};
      return {};
    }
    case State::kSizeLf:
      if (c != '\n') return {400, "a chunk size line that does not end in CRLF"};
      state_ = left_ == 0 ? State::kTrailer : State::kData;
      return {};
    case State::kDataCr:
      if (c != '\r') return {400, "a chunk that is longer than its size"};
      state_ = State::kDataLf;
      return {};
    case State::kDataLf:
      if (c != '\n') return {400, "a chunk that does not end in CRLF"};
      state_ = State::kSizeFirst;
      size_digits_ = 0;
      return {};
    default:
      return {400, "a malformed chunk"};
  }
}

Fault ChunkedDecoder::Trailer(char c) {
  if (trailers_.size() >= kMaxTrailerBytes) return {400, "trailers that are too long"};
  trailers_ += c;
  if (c != '\n') return {};
  const size_t size = trailers_.size() - line_start_;
  if (size < 2 || trailers_[trailers_.size() - 2] != '\r') return {400, "a trailer line that does not end in CRLF"};
  if (size == 2) {
    trailers_.resize(line_start_);
    state_ = State::kDone;
    return {};
  }
  if (const auto field = ParseFieldLine({trailers_.data() + line_start_, size - 2}); !field) return field.error();
  line_start_ = trailers_.size();
  return {};
}

void AppendChunk(Buffer* out, std::string_view data) {
  if (data.empty()) return;
  static constexpr char kDigits[] = "0123456789abcdef";
  std::array<char, 18> line;
  size_t at = line.size();
  line[--at] = '\n';
  line[--at] = '\r';
  for (size_t size = data.size(); size != 0; size >>= 4) line[--at] = kDigits[size & 15];
  out->Prepare(data.size() + line.size() + 2);
  out->Append({line.data() + at, line.size() - at});
  out->Append(data);
  out->Append("\r\n");
}

bool IsTrailerAllowed(std::string_view lower_name) {
  static constexpr std::string_view kNever[] = {
      "age",
      "api-key",
      "authorization",
      "cache-control",
      "connection",
      "cookie",
      "cookie2",
      "date",
      "expect",
      "expires",
      "host",
      "http2-settings",
      "if-match",
      "if-modified-since",
      "if-none-match",
      "if-range",
      "if-unmodified-since",
      "keep-alive",
      "location",
      "max-forwards",
      "pragma",
      "private-token",
      "proxy",
      "range",
      "retry-after",
      "set-cookie",
      "set-cookie2",
      "te",
      "trailer",
      "transfer-encoding",
      "upgrade",
      "vary",
      "warning",
      "www-authenticate",
      "x-sluice-denied",
      "alt-svc",
      "forwarded",
      "origin",
      "referer",
      "via",
      "x-amz-security-token",
      "x-api-key",
      "x-auth-token",
      "x-host",
      "x-real-ip",
  };
  static constexpr std::string_view kNeverBegin[] = {"content-", "proxy-",        "sec-",        "x-forwarded-",
                                                     "x-method", "x-http-method", "x-original-", "x-rewrite-"};
  const std::string name = Folded(lower_name);
  return std::ranges::find(kNever, name) == std::end(kNever) &&
         std::ranges::none_of(kNeverBegin, [&](std::string_view begin) { return name.starts_with(begin); });
}

void DropUnannounced(std::string* lines, std::string_view announced) {
  if (lines->empty()) return;
  FilterLines(lines, [&](const Field& field) { return Announces(announced, field.name); });
}

void DropNamed(std::string* lines, std::span<const std::string> names) {
  if (lines->empty() || names.empty()) return;
  FilterLines(lines, [&](const Field& field) {
    const std::string name = Folded(field.name);
    return std::ranges::none_of(names, [&](const std::string& named) { return Folded(named) == name; });
  });
}

void AppendLastChunk(Buffer* out, std::string& trailer_lines, std::string_view announced) {
  out->Append("0\r\n");
  size_t at = 0;
  while (at < trailer_lines.size()) {
    const size_t end = trailer_lines.find("\r\n", at);
    if (end == std::string::npos) break;
    const auto field = ParseFieldLine({trailer_lines.data() + at, end - at});
    if (field && IsTrailerAllowed(field->name) && Announces(announced, field->name)) {
      out->Append(field->name);
      out->Append(": ");
      out->Append(field->value);
      out->Append("\r\n");
    }
    at = end + 2;
  }
  out->Append("\r\n");
}

}  // namespace sluice::proxy
