#include "proxy/credential/inject.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "proxy/credential/encoding.h"
#include "proxy/credential/secret.h"

namespace sluice::proxy {
namespace {

using Kind = policy::CredentialUse::Kind;

// As a server could read a parameter's name: PHP cuts at '[' and NUL and takes '.' and ' ' for '_'; others ignore case.
std::string FoldParameter(std::string_view raw) {
  std::string name = LowerCase(PercentDecode(raw, Plus::kSpace));
  name.erase(0, std::min(name.find_first_not_of(' '), name.size()));
  if (const size_t end = name.find_first_of(std::string_view("[\0", 2), 1); end != std::string::npos) name.resize(end);
  std::ranges::replace_if(name, [](char c) { return c == '.' || c == ' ' || c == '-'; }, '_');
  return name;
}

bool Names(std::string_view part, std::string_view folded) { return FoldParameter(part.substr(0, part.find('='))) == folded; }

bool IsToken(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$%&'*+-.^_`|~").contains(c);
  });
}

constexpr auto kNeverSet =
    std::to_array<std::string_view>({"connection", "content-encoding", "content-length", "content-type", "expect", "host",
                                     "http2-settings", "keep-alive", "max-forwards", "proxy-authenticate", "proxy-authorization",
                                     "proxy-connection", "proxy-status", "te", "trailer", "transfer-encoding", "upgrade"});

}  // namespace

void OutgoingHead::Remove(std::string_view folded) {
  std::erase_if(fields, [&](const Field& field) { return FoldsTo(field.name, folded); });
  std::string left;
  ForEachListItem(trailer, [&](std::string_view item) {
    if (FoldsTo(item, folded)) return;
    if (!left.empty()) left += ", ";
    left += item;
  });
  if (left.size() != trailer.size()) trailer = std::move(left);
}

void OutgoingHead::Set(std::string&& name, std::string&& value) {
  Remove(FoldFieldName(name));
  Field field;
  field.name = Keep(std::move(name));
  field.value = Keep(std::move(value));
  fields.push_back(field);
}

void OutgoingHead::Clear() {
  for (std::string& text : kept_) Wipe(&text);
  Wipe(&target);
  kept_.clear();
  fields.clear();
  trailer.clear();
}

std::string WithoutQueryParameter(std::string_view target, std::string_view name) {
  const size_t mark = target.find('?');
  if (mark == std::string_view::npos) return std::string(target);
  const std::string folded = FoldParameter(PercentEncode(name));
  std::string out(target.substr(0, mark));
  for (std::string_view rest = target.substr(mark + 1);;) {
    const size_t end = rest.find('&');
    std::string_view whole = rest.substr(0, end);
    // Some servers end a parameter at ';' too: a pair found by either reading goes.
    char separator = '&';
    for (bool more = !Names(whole, folded); more;) {
      const size_t semicolon = whole.find(';');
      const std::string_view part = whole.substr(0, semicolon);
      if (!Names(part, folded)) {
        out.push_back(out.size() == mark ? '?' : separator);
        out += part;
        separator = ';';
      }
      more = semicolon != std::string_view::npos;
      if (more) whole.remove_prefix(semicolon + 1);
    }
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return out;
}

std::string WithQueryParameter(std::string_view target, std::string_view name, std::string_view value) {
  std::string out = WithoutQueryParameter(target, name);
  const size_t mark = out.find('?');
  if (mark == std::string::npos) {
    out.push_back('?');
  } else if (mark + 1 != out.size()) {
    out.push_back('&');
  }
  out += PercentEncode(name);
  out.push_back('=');
  std::string encoded = PercentEncode(value);
  out += encoded;
  Wipe(&encoded);
  return out;
}

Result<void> CheckUse(const policy::CredentialUse& use) {
  switch (use.kind) {
    case Kind::kHeader: {
      const std::string folded = FoldFieldName(use.text);
      if (!IsToken(use.text)) return Fail(Code::kInvalid, fmt::format("'{}' is not a header field's name", use.text));
      if (std::ranges::find(kNeverSet, folded) != kNeverSet.end() || folded.starts_with("x-sluice-"))
        return Fail(Code::kInvalid, fmt::format("the header field {} cannot hold a credential", use.text));
      if (std::ranges::any_of(use.prefix, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
        return Fail(Code::kInvalid, "a prefix that holds a control character");
      return {};
    }
    case Kind::kQuery:
      if (use.text.empty()) return Fail(Code::kInvalid, "a query parameter without a name");
      return {};
    case Kind::kBasic:
      if (use.text.contains(':')) return Fail(Code::kInvalid, "a user name cannot hold ':' (RFC 7617)");
      return {};
    default:
      return {};
  }
}

Result<void> AddCredential(const policy::CredentialUse& use, std::string_view secret, OutgoingHead* head) {
  if (auto fit = CheckSecretText(secret); !fit) return fit;
  if (auto fit = CheckUse(use); !fit) return fit;
  switch (use.kind) {
    case Kind::kBearer:
      head->Set("authorization", fmt::format("Bearer {}", secret));
      return {};
    case Kind::kBasic: {
      if (use.text.empty() && !secret.contains(':'))
        return Fail(Code::kInvalid, "is not \"user:password\", and `send: basic` names no user");
      std::string pair = use.text.empty() ? std::string(secret) : fmt::format("{}:{}", use.text, secret);
      head->Set("authorization", "Basic " + Base64Encode(pair));
      Wipe(&pair);
      return {};
    }
    case Kind::kHeader:
      head->Set(LowerCase(use.text), fmt::format("{}{}", use.prefix, secret));
      return {};
    case Kind::kQuery: {
      std::string changed = WithQueryParameter(head->target, use.text, secret);
      Wipe(&head->target);
      head->target.assign(changed);
      Wipe(&changed);
      return {};
    }
    default:
      return Fail(Code::kInternal, "is not of a kind that is added to a head");
  }
}

}  // namespace sluice::proxy
