#include "proxy/credential/oauth.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "policy/address.h"
#include "policy/target.h"
#include "proxy/credential/encoding.h"
#include "proxy/credential/secret.h"

namespace sluice::proxy {
namespace {

std::string FormEncode(std::string_view text) { return PercentEncode(text); }

// "invalid_client": section 5.2 allows visible ASCII; what else an endpoint says is not repeated.
std::string ErrorCode(const nlohmann::json& answer) {
  if (!answer.is_object()) return {};
  const auto it = answer.find("error");
  if (it == answer.end() || !it->is_string()) return {};
  return Printable(it->get_ref<const std::string&>().substr(0, 64));
}

}  // namespace

Result<TokenEndpoint> ParseTokenEndpoint(std::string_view url) {
  const auto fail = [&](std::string_view why) {
    return Fail(Code::kInvalid, fmt::format("the token URL '{}' {}", Printable(url.substr(0, 200)), why));
  };
  constexpr std::string_view kScheme = "https://";
  if (LowerCase(url.substr(0, kScheme.size())) != kScheme) return fail("does not begin with https://");
  if (url.contains('#')) return fail("has a fragment");
  if (std::ranges::any_of(url,
                          [](char c) { return static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7f; }))
    return fail("holds a character that no URL may hold");
  const std::string_view rest = url.substr(kScheme.size());
  const size_t end = std::min(rest.find_first_of("/?"), rest.size());
  const auto authority = policy::ParseAuthority(rest.substr(0, end));
  if (!authority) return fail("names no host");
  TokenEndpoint endpoint;
  endpoint.authority = rest.substr(0, end);
  if (authority->address) {
    endpoint.literal = *authority->address;
  } else {
    const auto name = policy::CanonicalName(authority->name);
    if (!name) return fail("names no host");
    endpoint.host = *name;
  }
  endpoint.port = authority->port.value_or(443);
  endpoint.target = rest.substr(end);
  if (endpoint.target.empty() || endpoint.target.front() == '?') endpoint.target.insert(0, 1, '/');
  return endpoint;
}

std::string TokenRequest(const TokenEndpoint& endpoint, std::string_view client_id, std::string_view client_secret,
                         std::string_view scope) {
  std::string body = "grant_type=client_credentials";
  if (!scope.empty()) body += "&scope=" + FormEncode(scope);
  std::string encoded = FormEncode(client_secret);
  std::string pair = fmt::format("{}:{}", FormEncode(client_id), encoded);
  std::string basic = Base64Encode(pair);
  std::string request = fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}\r\nAuthorization: Basic {}\r\nContent-Type: application/x-www-form-urlencoded\r\n"
      "Accept: application/json\r\nUser-Agent: sluice\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}",
      endpoint.target, endpoint.authority, basic, body.size(), body);
  Wipe(&encoded);
  Wipe(&pair);
  Wipe(&basic);
  return request;
}

Result<TokenAnswer> ReadTokenAnswer(int status, std::string_view body) {
  const nlohmann::json answer = nlohmann::json::parse(body, nullptr, false);
  if (status != 200) {
    const std::string code = ErrorCode(answer);
    return Fail(Code::kProtocol,
                code.empty() ? fmt::format("it answered {}", status) : fmt::format("it answered {}: {}", status, code));
  }
  if (!answer.is_object()) return Fail(Code::kProtocol, "its answer is not a JSON object");
  const auto token = answer.find("access_token");
  if (token == answer.end() || !token->is_string()) return Fail(Code::kProtocol, "its answer holds no access_token");
  const auto type = answer.find("token_type");
  if (type != answer.end() && (!type->is_string() || LowerCase(type->get_ref<const std::string&>()) != "bearer"))
    return Fail(Code::kProtocol, "its token is not of the type Bearer");
  TokenAnswer result;
  result.token = token->get<std::string>();
  if (auto fit = CheckSecretText(result.token); !fit) return Fail(Code::kProtocol, "its access_token " + fit.error().message);
  result.life = kTokenLifeUnknown;
  if (const auto life = answer.find("expires_in"); life != answer.end()) {
    double seconds = -1;
    if (life->is_number()) seconds = life->get<double>();
    if (life->is_string()) seconds = std::atof(life->get_ref<const std::string&>().c_str());
    if (!(seconds >= 1)) return Fail(Code::kProtocol, "its expires_in is no time to live");
    const double bounded = std::min(seconds, static_cast<double>(kMaxTokenLife.count()));
    result.life = std::chrono::seconds(static_cast<int64_t>(bounded));
  }
  return result;
}

SteadyTime RefreshDue(SteadyTime got, std::chrono::seconds life) {
  constexpr std::chrono::seconds kAhead{60};
  std::chrono::milliseconds due = std::chrono::milliseconds(life) * 4 / 5;
  if (life >= 2 * kAhead) due = std::min<std::chrono::milliseconds>(due, life - kAhead);
  return got + due;
}

std::chrono::seconds TokenBackoff(unsigned failures) {
  const unsigned shift = std::min(failures == 0 ? 0u : failures - 1, 6u);
  return std::min(std::chrono::seconds(1u << shift), kMaxTokenBackoff);
}

}  // namespace sluice::proxy
