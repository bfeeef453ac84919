#include "proxy/http1.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace sluice::proxy {
namespace {

// 0 for bytes that no token contains, else the byte in lower case (RFC 9110 section 5.6.2).
constexpr std::array<char, 256> kTokenLower = [] {
  std::array<char, 256> table{};
  for (char c = '0'; c <= '9'; ++c) table[static_cast<unsigned char>(c)] = c;
  for (char c = 'a'; c <= 'z'; ++c) {
    table[static_cast<unsigned char>(c)] = c;
    table[static_cast<unsigned char>(c - 'a' + 'A')] = c;
  }
  for (const char c : std::string_view("!#$%&'*+-.^_`|~")) table[static_cast<unsigned char>(c)] = c;
  return table;
}();

char TokenLower(char c) { return kTokenLower[static_cast<unsigned char>(c)]; }

char AsciiLower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool IsValueByte(char c) {
  const auto b = static_cast<unsigned char>(c);
  return (b >= 0x20 && b != 0x7f) || b == '\t';
}

// Eight bytes at a time: a zero result means none is below 0x20 or equal to 0x7f.
uint64_t SuspectBytes(uint64_t word) {
  constexpr uint64_t kOnes = 0x0101010101010101;
  constexpr uint64_t kHighs = 0x8080808080808080;
  const uint64_t below = (word - kOnes * 0x20) & ~word & kHighs;
  const uint64_t del = word ^ (kOnes * 0x7f);
  return below | ((del - kOnes) & ~del & kHighs);
}

bool IsFieldValue(const char* p, size_t n) {
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, p, 8);
    if (SuspectBytes(word) == 0) continue;
    for (size_t i = 0; i < 8; ++i)
      if (!IsValueByte(p[i])) return false;
  }
  for (; n != 0; ++p, --n)
    if (!IsValueByte(*p)) return false;
  return true;
}

struct KnownField {
  std::string_view name;
  FieldId id;
};
constexpr KnownField kKnownFields[] = {
    {"te", FieldId::kTe},
    {"host", FieldId::kHost},
    {"expect", FieldId::kExpect},
    {"trailer", FieldId::kTrailer},
    {"upgrade", FieldId::kUpgrade},
    {"connection", FieldId::kConnection},
    {"keep-alive", FieldId::kKeepAlive},
    {"user-agent", FieldId::kUserAgent},
    {"content-type", FieldId::kContentType},
    {"max-forwards", FieldId::kMaxForwards},
    {"proxy-status", FieldId::kProxyStatus},
    {"content-length", FieldId::kContentLength},
    {"http2-settings", FieldId::kHttp2Settings},
    {"x-sluice-denied", FieldId::kSluiceDenied},
    {"proxy-connection", FieldId::kProxyConnection},
    {"transfer-encoding", FieldId::kTransferEncoding},
    {"proxy-authenticate", FieldId::kProxyAuthenticate},
    {"proxy-authorization", FieldId::kProxyAuthorization},
};

// The table is sorted by length; a bit per length lets most names skip it.
constexpr uint32_t kKnownLengths = [] {
  uint32_t bits = 0;
  for (const auto& known : kKnownFields) bits |= 1u << known.name.size();
  return bits;
}();

FieldId Classify(std::string_view name) {
  if (name.size() > 19 || ((kKnownLengths >> name.size()) & 1) == 0) return FieldId::kOther;
  for (const auto& known : kKnownFields) {
    if (known.name.size() < name.size()) continue;
    if (known.name.size() > name.size()) break;
    if (EqualsLower(name, known.name)) return known.id;
  }
  return FieldId::kOther;
}

// CGI and its heirs write both '-' and '_' as '_' (RFC 3875 section 4.1.18): to them "Transfer_Encoding" is the field that
// frames or routes the message, while to everyone before them it is not.
bool IsKnownWithUnderscores(std::string_view name) {
  if (name.size() > 19 || name.find('_') == std::string_view::npos) return false;
  std::array<char, 19> dashed;
  for (size_t i = 0; i < name.size(); ++i) dashed[i] = name[i] == '_' ? '-' : name[i];
  return Classify({dashed.data(), name.size()}) != FieldId::kOther;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

enum class NameCase : uint8_t { kLower, kKeep };

// One field line without its CRLF.
Fault ParseLine(char* line, size_t size, NameCase name_case, uint16_t status, Field* field) {
  if (line[0] == ' ' || line[0] == '\t') return {status, "a folded header line"};
  size_t i = 0;
  for (; i < size; ++i) {
    const char lower = TokenLower(line[i]);
    if (lower == 0) break;
    if (name_case == NameCase::kLower) line[i] = lower;
  }
  if (i == size) return {status, "a header line without a colon"};
  if (line[i] != ':')
    return {status,
            line[i] == ' ' || line[i] == '\t' ? "white space in or after a header name" : "an invalid byte in a header name"};
  if (i == 0) return {status, "an empty header name"};
  field->name = {line, i};
  if (name_case == NameCase::kLower && IsKnownWithUnderscores(field->name))
    return {status, "a header name with an underscore in place of a dash"};
  const std::string_view value = Trim({line + i + 1, size - i - 1});
  if (!IsFieldValue(value.data(), value.size())) return {status, "a control character in a header value"};
  field->value = value;
  field->id = Classify(field->name);
  field->forward = true;
  return {};
}

bool NamesConnectionScheme(std::string_view value) {
  bool found = false;
  ForEachListItem(value, [&](std::string_view item) {
    const std::string_view scheme = item.substr(0, item.find(' '));
    found |= EqualsLower(scheme, "ntlm") || EqualsLower(scheme, "negotiate");
  });
  return found;
}

Fault NoteConnection(std::string_view value, uint16_t status, Head* head) {
  Fault fault;
  ForEachListItem(value, [&](std::string_view item) {
    for (const char c : item)
      if (TokenLower(c) == 0) fault = {status, "a malformed Connection header"};
    if (EqualsLower(item, "close")) head->close = true;
    if (EqualsLower(item, "keep-alive")) head->keep_alive = true;
  });
  return fault;
}

Fault Note(Field* field, uint16_t status, Head* head) {
  switch (field->id) {
    case FieldId::kHost:
      ++head->hosts;
      head->host = field->value;
      return {};
    case FieldId::kContentLength:
      ++head->content_lengths;
      head->content_length = field->value;
      field->forward = false;
      return {};
    case FieldId::kTransferEncoding:
      ++head->transfer_encodings;
      head->transfer_encoding = field->value;
      field->forward = false;
      return {};
    case FieldId::kConnection:
      field->forward = false;
      return NoteConnection(field->value, status, head);
    case FieldId::kTrailer:
      head->trailer = field->value;
      field->forward = false;
      return {};
    case FieldId::kUpgrade:
      head->upgrade = field->value;
      field->forward = false;
      return {};
    case FieldId::kTe:
      ForEachListItem(field->value, [&](std::string_view item) { head->te_trailers |= EqualsLower(item, "trailers"); });
      field->forward = false;
      return {};
    case FieldId::kKeepAlive:
    case FieldId::kProxyConnection:
    case FieldId::kProxyAuthenticate:
    case FieldId::kProxyAuthorization:
    case FieldId::kHttp2Settings:
    case FieldId::kSluiceDenied:
    case FieldId::kProxyStatus:
      field->forward = false;
      return {};
    default:
      return {};
  }
}

// RFC 9110 section 7.6.1: what Connection names goes no further, except what gives the message its meaning.
void DropNamedFields(Head* head) {
  for (const Field& connection : head->fields) {
    if (connection.id != FieldId::kConnection) continue;
    ForEachListItem(connection.value, [&](std::string_view item) {
      for (Field& field : head->fields) {
        if (field.id == FieldId::kHost || field.name.size() != item.size()) continue;
        bool same = true;
        for (size_t i = 0; same && i < item.size(); ++i) same = AsciiLower(item[i]) == AsciiLower(field.name[i]);
        if (same) field.forward = false;
      }
    });
  }
}

void Reset(Head* head) {
  auto fields = std::move(head->fields);
  fields.clear();
  *head = Head{};
  head->fields = std::move(fields);
}

// The lines after the first. `bytes` ends in CRLFCRLF or, where there are no fields, CRLF CRLF with the first line cut.
Fault ParseFields(std::span<char> bytes, NameCase name_case, uint16_t status, Head* head) {
  char* at = bytes.data();
  char* const end = at + bytes.size();
  bool named_by_connection = false;
  while (at != end) {
    auto* lf = static_cast<char*>(std::memchr(at, '\n', static_cast<size_t>(end - at)));
    if (lf == nullptr || lf == at || lf[-1] != '\r') return {status, "a line that does not end in CRLF"};
    const auto size = static_cast<size_t>(lf - 1 - at);
    if (size == 0) break;
    if (head->fields.size() == kMaxFields) return {status == 502 ? status : uint16_t{431}, "too many header fields"};
    Field field;
    if (const Fault fault = ParseLine(at, size, name_case, status, &field)) return fault;
    if (field.id != FieldId::kOther) {
      if (const Fault fault = Note(&field, status, head)) return fault;
      named_by_connection |= field.id == FieldId::kConnection;
    }
    head->fields.push_back(field);
    at = lf + 1;
  }
  if (named_by_connection) DropNamedFields(head);
  return {};
}

Fault ParseVersion(std::string_view text, uint16_t status, Version* version) {
  if (text == "HTTP/1.1") {
    *version = Version::k11;
    return {};
  }
  if (text == "HTTP/1.0") {
    *version = Version::k10;
    return {};
  }
  const bool shaped = text.size() == 8 && text.starts_with("HTTP/") && text[5] >= '0' && text[5] <= '9' && text[6] == '.' &&
                      text[7] >= '0' && text[7] <= '9';
  if (shaped && status == 400) return {505, "an HTTP version that is not spoken here"};
  return {status, "a malformed HTTP version"};
}

Fault ParseRequestLine(std::string_view line, RequestHead* head) {
  size_t space = 0;
  while (space < line.size() && TokenLower(line[space]) != 0) ++space;
  if (space == 0 || space == line.size() || line[space] != ' ') return {400, "a malformed request line"};
  head->method = line.substr(0, space);
  const std::string_view rest = line.substr(space + 1);
  const size_t last = rest.rfind(' ');
  if (last == std::string_view::npos) return {400, "a request line without a version"};
  head->target = rest.substr(0, last);
  if (head->target.empty()) return {400, "an empty request target"};
  if (head->target.size() > kMaxTargetBytes) return {414, "a request target that is too long"};
  for (const char c : head->target)
    if (c <= 0x20 || c >= 0x7f) return {400, "a byte in the request target that is not visible ASCII"};
  return ParseVersion(rest.substr(last + 1), 400, &head->version);
}

Fault ParseStatusLine(std::string_view line, ResponseHead* head) {
  if (line.size() < 12 || line[8] != ' ') return {502, "a malformed status line"};
  if (const Fault fault = ParseVersion(line.substr(0, 8), 502, &head->version)) return fault;
  for (size_t i = 9; i < 12; ++i) {
    if (line[i] < '0' || line[i] > '9') return {502, "a malformed status code"};
    head->status = static_cast<uint16_t>(head->status * 10 + (line[i] - '0'));
  }
  if (head->status < 100) return {502, "a malformed status code"};
  if (line.size() == 12) return {};
  if (line[12] != ' ') return {502, "a malformed status line"};
  head->reason = line.substr(13);
  if (!IsFieldValue(head->reason.data(), head->reason.size())) return {502, "a control character in the reason phrase"};
  return {};
}

// Splits the first line off; the caller's bytes end in an empty line, so there is one.
std::expected<std::string_view, Fault> FirstLine(std::span<char> bytes, uint16_t status) {
  const auto* lf = static_cast<const char*>(std::memchr(bytes.data(), '\n', bytes.size()));
  if (lf == nullptr || lf == bytes.data() || lf[-1] != '\r')
    return std::unexpected(Fault{status, "a line that does not end in CRLF"});
  return std::string_view(bytes.data(), static_cast<size_t>(lf - 1 - bytes.data()));
}

std::expected<uint64_t, Fault> ParseLength(std::string_view text, uint16_t status) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  if (text.empty()) return std::unexpected(Fault{status, "an empty Content-Length"});
  uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::unexpected(Fault{status, "a Content-Length that is not a number"});
    const auto digit = static_cast<uint64_t>(c - '0');
    if (value > (kMax - digit) / 10) return std::unexpected(Fault{status, "a Content-Length that is too large"});
    value = value * 10 + digit;
  }
  return value;
}

// What Content-Length and Transfer-Encoding say together; kNone when neither is there.
std::expected<Framing, Fault> FieldFraming(const Head& head, uint16_t status, uint16_t coding_status) {
  if (head.transfer_encodings != 0) {
    if (head.content_lengths != 0) return std::unexpected(Fault{status, "Content-Length beside Transfer-Encoding"});
    if (head.version == Version::k10) return std::unexpected(Fault{status, "Transfer-Encoding in HTTP/1.0"});
    if (head.transfer_encodings != 1) return std::unexpected(Fault{status, "more than one Transfer-Encoding"});
    if (!EqualsLower(head.transfer_encoding, "chunked"))
      return std::unexpected(Fault{coding_status, "a Transfer-Encoding other than chunked"});
    return Framing{BodyKind::kChunked, 0};
  }
  if (head.content_lengths == 0) return Framing{};
  if (head.content_lengths != 1) return std::unexpected(Fault{status, "more than one Content-Length"});
  const auto length = ParseLength(head.content_length, status);
  if (!length) return std::unexpected(length.error());
  return Framing{BodyKind::kLength, *length};
}

}  // namespace

std::string_view Head::Find(FieldId id) const {
  for (const Field& field : fields)
    if (field.id == id) return field.value;
  return {};
}

bool BindsConnection(const Head& head, std::string_view lower_name) {
  return std::ranges::any_of(
      head.fields, [&](const Field& field) { return EqualsLower(field.name, lower_name) && NamesConnectionScheme(field.value); });
}

bool EqualsLower(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (size_t i = 0; i < text.size(); ++i)
    if (AsciiLower(text[i]) != lower[i]) return false;
  return true;
}

std::expected<size_t, Fault> FindHeadEnd(std::string_view bytes, size_t* resume) {
  size_t line = *resume;
  while (line < bytes.size()) {
    const void* found = std::memchr(bytes.data() + line, '\n', bytes.size() - line);
    if (found == nullptr) break;
    const auto lf = static_cast<size_t>(static_cast<const char*>(found) - bytes.data());
    if (lf == line || bytes[lf - 1] != '\r') return std::unexpected(Fault{400, "a line that ends in a bare LF"});
    if (lf + 1 > kMaxHeadBytes) break;
    if (lf - line == 1) {
      if (line == 0) return std::unexpected(Fault{400, "an empty line in place of a message"});
      return lf + 1;
    }
    line = lf + 1;
  }
  *resume = line;
  if (line == 0 && bytes.size() > kMaxTargetBytes + 64) return std::unexpected(Fault{414, "a request target that is too long"});
  if (bytes.size() >= kMaxHeadBytes) return std::unexpected(Fault{431, "header fields that are too large"});
  return 0;
}

Fault ParseRequestHead(std::span<char> bytes, RequestHead* head) {
  Reset(head);
  head->method = head->target = {};
  head->expect_continue = false;
  const auto line = FirstLine(bytes, 400);
  if (!line) return line.error();
  if (const Fault fault = ParseRequestLine(*line, head)) return fault;
  if (const Fault fault = ParseFields(bytes.subspan(line->size() + 2), NameCase::kLower, 400, head)) return fault;
  if (head->hosts > 1) return {400, "more than one Host"};
  if (head->hosts == 0 && head->version == Version::k11) return {400, "no Host"};
  for (Field& field : head->fields) {
    if (field.id == FieldId::kHost) field.forward = false;
    if (field.id != FieldId::kExpect) continue;
    // RFC 9110 section 10.1.1: an HTTP/1.0 client cannot mean it.
    if (head->version == Version::k10) {
      field.forward = false;
    } else if (EqualsLower(field.value, "100-continue")) {
      head->expect_continue = true;
    } else {
      return {417, "an Expect other than 100-continue"};
    }
  }
  return {};
}

Fault ParseResponseHead(std::span<char> bytes, ResponseHead* head) {
  Reset(head);
  head->status = 0;
  head->reason = {};
  const auto line = FirstLine(bytes, 502);
  if (!line) return line.error();
  if (const Fault fault = ParseStatusLine(*line, head)) return fault;
  return ParseFields(bytes.subspan(line->size() + 2), NameCase::kKeep, 502, head);
}

std::expected<Framing, Fault> RequestFraming(const RequestHead& head) { return FieldFraming(head, 400, 501); }

std::expected<Framing, Fault> ResponseFraming(const ResponseHead& head, std::string_view request_method) {
  const auto framing = FieldFraming(head, 502, 502);
  if (!framing) return framing;
  const bool bodiless = head.status < 200 || head.status == 204 || head.status == 304 || request_method == "HEAD";
  if (bodiless) return Framing{};
  if (framing->kind == BodyKind::kNone) return Framing{BodyKind::kUntilClose, 0};
  return framing;
}

bool IsTokenByte(char c) { return TokenLower(c) != 0; }

Fault AddField(std::string_view lower_name, std::string_view value, uint16_t status, Head* head) {
  if (head->fields.size() == kMaxFields) return {status == 400 ? uint16_t{431} : status, "too many header fields"};
  if (lower_name.empty()) return {status, "an empty header name"};
  for (const char c : lower_name)
    if (c == 0 || TokenLower(c) != c) return {status, "an invalid byte in a header name"};
  if (status == 400 && IsKnownWithUnderscores(lower_name)) return {status, "a header name with an underscore in place of a dash"};
  if (Trim(value).size() != value.size()) return {status, "white space around a header value"};
  if (!IsFieldValue(value.data(), value.size())) return {status, "a control character in a header value"};
  Field field{lower_name, value, Classify(lower_name), true};
  if (field.id != FieldId::kOther) {
    if (const Fault fault = Note(&field, status, head)) return fault;
  }
  head->fields.push_back(field);
  return {};
}

std::expected<Field, Fault> ParseFieldLine(std::span<char> line) {
  Field field;
  if (line.empty()) return std::unexpected(Fault{400, "an empty line"});
  if (const Fault fault = ParseLine(line.data(), line.size(), NameCase::kLower, 400, &field)) return std::unexpected(fault);
  return field;
}

}  // namespace sluice::proxy
