#include "proxy/body/content_type.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "proxy/http1.h"

namespace sluice::proxy {
namespace {

constexpr std::string_view kJsonTypes[] = {"application/json", "application/json-rpc", "application/jsonrequest"};

bool IsTokenCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

// "type/subtype" in lower case, or nothing where it is none.
std::string MediaType(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == 0 || slash == std::string_view::npos || slash + 1 == text.size()) return {};
  std::string out(text);
  for (size_t i = 0; i < out.size(); ++i) {
    if (i != slash && !IsTokenCharacter(out[i])) return {};
    if (out[i] >= 'A' && out[i] <= 'Z') out[i] = static_cast<char>(out[i] - 'A' + 'a');
  }
  return out;
}

std::string_view TrimBlanks(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view{} : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// What follows the media type: nothing, or `;charset=utf-8`.
bool AreParametersPlain(std::string_view rest) {
  if (rest.empty()) return true;
  const std::string_view parameter = TrimBlanks(rest.substr(1));
  const size_t equals = parameter.find('=');
  if (equals == std::string_view::npos || !EqualsLower(parameter.substr(0, equals), "charset")) return false;
  std::string_view charset = parameter.substr(equals + 1);
  if (charset.size() >= 2 && charset.front() == '"' && charset.back() == '"') charset = charset.substr(1, charset.size() - 2);
  return EqualsLower(charset, "utf-8") || EqualsLower(charset, "utf8");
}

ContentKind KindOfValue(std::string_view value) {
  const size_t semicolon = std::min(value.find(';'), value.size());
  const std::string type = MediaType(TrimBlanks(value.substr(0, semicolon)));
  if (type.starts_with("multipart/")) return ContentKind::kMultipart;
  if (type.empty() || !AreParametersPlain(value.substr(semicolon))) return ContentKind::kAmbiguous;
  if (std::find(std::begin(kJsonTypes), std::end(kJsonTypes), type) != std::end(kJsonTypes)) return ContentKind::kJson;
  if (type.starts_with("application/") && type.ends_with("+json")) return ContentKind::kJson;
  if (type == "application/graphql") return ContentKind::kGraphql;
  if (type == "application/x-git-receive-pack-request") return ContentKind::kPush;
  if (type == "application/x-www-form-urlencoded") return ContentKind::kForm;
  return ContentKind::kOther;
}

}  // namespace

bool HasUnderscoredField(std::span<const policy::HeaderView> headers, std::string_view name) {
  return std::any_of(headers.begin(), headers.end(), [&](const policy::HeaderView& header) {
    const std::string_view field = header.first;
    return field.size() == name.size() && field != name &&
           std::equal(field.begin(), field.end(), name.begin(), [](char a, char b) { return a == b || (a == '_' && b == '-'); });
  });
}

ContentKind KindOfContent(std::span<const policy::HeaderView> headers) {
  if (HasUnderscoredField(headers, "content-type")) return ContentKind::kAmbiguous;
  ContentKind kind = ContentKind::kNone;
  size_t count = 0;
  for (const auto& [name, value] : headers) {
    if (name != "content-type") continue;
    kind = ++count > 1 ? ContentKind::kAmbiguous : KindOfValue(value);
  }
  return kind;
}

std::string_view WhyNotJson(ContentKind kind) {
  switch (kind) {
    case ContentKind::kNone:
      return "the request has no Content-Type, so that servers guess how its body is to be read";
    case ContentKind::kForm:
      return "the body is a form, which is not judged";
    case ContentKind::kMultipart:
      return "the body has several parts, which are not judged";
    case ContentKind::kAmbiguous:
      return "the Content-Type could be read in more than one way; plain application/json can be judged";
    default:
      return "the Content-Type is not that of JSON";
  }
}

}  // namespace sluice::proxy
