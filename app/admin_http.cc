#include "app/admin_http.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace sluice::app {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

Result<std::string> Decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const int high = i + 2 < text.size() ? HexValue(text[i + 1]) : -1;
      const int low = high >= 0 ? HexValue(text[i + 2]) : -1;
      if (low < 0) return Fail(Code::kInvalid, "the target has a `%` that two hexadecimal digits do not follow");
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return Fail(Code::kInvalid, "the target has a control character");
    out += c;
  }
  return out;
}

const std::string* Find(const Pairs& pairs, std::string_view name) {
  const auto found = std::ranges::find(pairs, name, &Pairs::value_type::first);
  return found == pairs.end() ? nullptr : &found->second;
}

Result<void> ReadQuery(std::string_view text, Pairs* out) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('&'), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (part.empty()) continue;
    const size_t equals = std::min(part.find('='), part.size());
    auto name = Decode(part.substr(0, equals));
    if (!name) return std::unexpected(name.error());
    auto value = Decode(part.substr(std::min(equals + 1, part.size())));
    if (!value) return std::unexpected(value.error());
    if (Find(*out, *name) != nullptr)
      return Fail(Code::kInvalid, fmt::format("the parameter `{}` comes twice", Printable(*name)));
    if (out->size() >= kMaxAdminParameters) return Fail(Code::kInvalid, "too many parameters");
    out->emplace_back(*std::move(name), *std::move(value));
  }
  return {};
}

Result<void> CheckSegments(std::string_view path) {
  size_t at = 1;
  while (at <= path.size()) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view segment = path.substr(at, end - at);
    const bool last_empty = end == path.size() && path.size() == 1;  // "/" alone
    if ((segment.empty() && !last_empty) || segment == "." || segment == "..")
      return Fail(Code::kInvalid, "the path has an empty segment, `.` or `..`");
    at = end + 1;
  }
  return {};
}

}  // namespace

const std::string* AdminRequest::Field(std::string_view name) const { return Find(fields, name); }
const std::string* AdminRequest::Parameter(std::string_view name) const { return Find(query, name); }

Result<bool> AdminRequest::Says(std::string_view parameter) const {
  const std::string* value = Parameter(parameter);
  if (value == nullptr || *value == "0" || *value == "false") return false;
  if (value->empty() || *value == "1" || *value == "true") return true;
  return Fail(Code::kInvalid, fmt::format("the parameter `{}` is 1 or 0, not `{}`", parameter, Printable(*value)));
}

Result<void> ReadTarget(std::string_view target, AdminRequest* out) {
  if (target.size() > kMaxAdminTarget) return Fail(Code::kExhausted, "the target is too long");
  if (!target.starts_with('/')) return Fail(Code::kInvalid, "the target is no absolute path");
  if (target.find('#') != std::string_view::npos) return Fail(Code::kInvalid, "the target has a fragment");
  const size_t mark = std::min(target.find('?'), target.size());
  // Segments are judged as written, so that an encoded slash stays inside its own.
  if (auto good = CheckSegments(target.substr(0, mark)); !good) return good;
  auto path = Decode(target.substr(0, mark));
  if (!path) return std::unexpected(path.error());
  out->path = *std::move(path);
  out->query.clear();
  return ReadQuery(target.substr(std::min(mark + 1, target.size())), &out->query);
}

Result<void> CheckParameters(const AdminRequest& request, std::initializer_list<std::string_view> known) {
  for (const auto& [name, value] : request.query) {
    if (std::ranges::find(known, name) != known.end()) continue;
    const std::string those = known.size() == 0 ? "no parameter is" : fmt::format("those known are {}", fmt::join(known, ", "));
    return Fail(Code::kInvalid, fmt::format("the parameter `{}` is not known to {} {}: {}", Printable(name),
                                            Printable(request.method), Printable(request.path), those));
  }
  return {};
}

AdminResponse Problem(int status, std::string_view code, std::string_view error, std::string_view detail,
                      std::string_view suggest) {
  nlohmann::json body{{"error", error}, {"code", code}};
  if (!detail.empty()) body["detail"] = detail;
  if (!suggest.empty()) body["suggest"] = suggest;
  AdminResponse response;
  response.status = status;
  response.body = body.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  if (status == 401) response.fields.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

AdminResponse WrongMethod(std::string_view allow) {
  AdminResponse response = Problem(405, "method", "the method is not one of this address", {}, fmt::format("use {}", allow));
  response.fields.emplace_back("Allow", allow);
  return response;
}

std::string_view StatusPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 412:
      return "Precondition Failed";
    case 413:
      return "Content Too Large";
    case 422:
      return "Unprocessable Content";
    case 428:
      return "Precondition Required";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

bool SameSecret(std::string_view a, std::string_view b) {
  using Digest = std::array<unsigned char, SHA256_DIGEST_LENGTH>;
  Digest of_a{};
  Digest of_b{};
  SHA256(reinterpret_cast<const unsigned char*>(a.data()), a.size(), of_a.data());
  SHA256(reinterpret_cast<const unsigned char*>(b.data()), b.size(), of_b.data());
  return CRYPTO_memcmp(of_a.data(), of_b.data(), of_a.size()) == 0;
}

bool HasBearer(const AdminRequest& request, std::string_view token) {
  const std::string* field = request.Field("authorization");
  if (field == nullptr || token.empty()) return false;
  constexpr std::string_view kScheme = "bearer ";
  if (field->size() <= kScheme.size()) return false;
  for (size_t i = 0; i < kScheme.size(); ++i) {
    const char c = (*field)[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c) != kScheme[i]) return false;
  }
  return SameSecret(std::string_view(*field).substr(kScheme.size()), token);
}

Result<std::vector<EntityTag>> ReadEntityTags(std::string_view field) {
  const auto malformed = [] { return Fail(Code::kInvalid, "an entity tag is a text in quotes, as an ETag field gives it"); };
  std::vector<EntityTag> tags;
  const auto skip = [&field] { field.remove_prefix(std::min(field.find_first_not_of(" \t"), field.size())); };
  skip();
  if (field == "*") return tags;
  for (;;) {
    skip();
    const bool weak = field.starts_with("W/");
    if (weak) field.remove_prefix(2);
    if (!field.starts_with('"')) return malformed();
    const size_t end = field.find('"', 1);
    if (end == std::string_view::npos || tags.size() >= kMaxAdminParameters) return malformed();
    tags.push_back({std::string(field.substr(1, end - 1)), weak});
    field.remove_prefix(end + 1);
    skip();
    if (field.empty()) return tags;
    if (!field.starts_with(',')) return malformed();
    field.remove_prefix(1);
  }
}

bool NamesRevision(const std::vector<EntityTag>& tags, uint64_t revision, Comparison comparison) {
  if (tags.empty()) return true;
  const std::string text = std::to_string(revision);
  return std::ranges::any_of(
      tags, [&](const EntityTag& tag) { return tag.text == text && (comparison == Comparison::kWeak || !tag.weak); });
}

}  // namespace sluice::app
