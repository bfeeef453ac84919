#include "prover/ways.h"

#include <algorithm>

#include "policy/credential.h"

namespace sluice::prover {
namespace {

uint32_t NumberOf(const std::string& text, Ways::Numbers* numbers) {
  if (text.empty()) return 0;
  return numbers->try_emplace(text, static_cast<uint32_t>(numbers->size() + 1)).first->second;
}

}  // namespace

std::string CredentialText(const policy::Snapshot& policy, uint16_t credential) {
  if (credential == policy::kNoIndex16) return "";
  policy::Credential same = policy.credentials()[credential];
  same.to.clear();
  return "credential " + policy::CanonicalText(same);
}

std::string ReplacedField(const policy::Snapshot& policy, uint16_t credential) {
  using Kind = policy::CredentialUse::Kind;
  if (credential == policy::kNoIndex16) return "";
  const policy::CredentialUse& use = policy.credentials()[credential].send;
  std::string name = use.text;
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  switch (use.kind) {
    case Kind::kBearer:
    case Kind::kBasic:
    case Kind::kSigV4:
      return "authorization";
    case Kind::kHeader:
      // Servers take either for the other, so that both go.
      std::ranges::replace(name, '_', '-');
      return name;
    case Kind::kQuery:
      return "?" + name;
    case Kind::kPlaceholder:
    case Kind::kClientCertificate:
      break;
  }
  return "";
}

std::string ProxyText(const policy::Snapshot& policy, uint16_t proxy) {
  return proxy == policy::kNoIndex16 ? "" : "proxy " + policy::CanonicalText(policy.proxies()[proxy]);
}

Ways::Ways(const policy::Snapshot& policy, Numbers* numbers) {
  const auto& compiled = policy.compiled();
  for (uint16_t i = 0; i < policy.proxies().size(); ++i) {
    proxies_.push_back(NumberOf(ProxyText(policy, i), numbers));
    proxy_names_[proxies_.back()] = policy.proxies()[i].name;
  }
  settings_proxy_ = ProxyNumber(compiled.settings.proxy);
  any_ = settings_proxy_ != 0;
  for (const policy::Rule& rule : compiled.rules) {
    Rule way;
    way.credential = NumberOf(CredentialText(policy, rule.credential), numbers);
    way.proxy = ProxyNumber(rule.proxy);
    way.by_name = settings_proxy_ != 0 && rule.ip.empty() && !rule.host.cidr;
    if (way.credential != 0) credential_names_[way.credential] = policy.credentials()[rule.credential].name;
    if (way.credential != 0) replaced_[way.credential] = ReplacedField(policy, rule.credential);
    any_ |= way.credential != 0 || way.proxy != 0 || !rule.pins.empty();
    rules_.push_back(way);
  }
}

}  // namespace sluice::prover
