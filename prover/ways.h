#pragma once

// How what is allowed travels: with which credential, through which upstream proxy, to which keys. Compared by what they are, not
// by their names alone.

#include <map>
#include <string>
#include <vector>

#include "policy/compiled.h"

namespace sluice::prover {

/// What is sent and where it is found; not where it may go, which is asked request by request. Empty for none.
[[nodiscard]] std::string CredentialText(const policy::Snapshot& policy, uint16_t credential);
/// What of the workload's own a request loses where the credential is added: "authorization", "x-api-key", "?key" of a parameter.
/// Empty for none, and where nothing goes: a stand-in or a certificate has no field.
[[nodiscard]] std::string ReplacedField(const policy::Snapshot& policy, uint16_t credential);
/// The proxy with all that leads to it; empty for none: directly.
[[nodiscard]] std::string ProxyText(const policy::Snapshot& policy, uint16_t proxy);

/// The ways of one policy's rules.
class Ways {
 public:
  /// Numbers are shared by the policies that are compared; 0 is none.
  using Numbers = std::map<std::string, uint32_t>;
  Ways(const policy::Snapshot& policy, Numbers* numbers);

  struct Rule {
    uint32_t credential = 0;
    uint32_t proxy = 0;
    bool by_name = false;  ///< goes through the policy's own proxy where no rule says another
    bool operator==(const Rule&) const = default;
  };
  [[nodiscard]] const Rule& of(uint32_t rule) const { return rules_[rule]; }
  /// By index into Snapshot::proxies(); of none: 0.
  [[nodiscard]] uint32_t ProxyNumber(uint16_t proxy) const { return proxy == policy::kNoIndex16 ? 0 : proxies_[proxy]; }
  [[nodiscard]] uint32_t settings_proxy() const { return settings_proxy_; }
  /// Whether any rule, or the settings, say a way.
  [[nodiscard]] bool any() const { return any_; }
  [[nodiscard]] bool any_proxy() const { return !proxies_.empty(); }
  [[nodiscard]] const std::string& CredentialName(uint32_t number) const { return credential_names_.at(number); }
  /// As ReplacedField says; of none: empty.
  [[nodiscard]] const std::string& Replaced(uint32_t credential) const { return replaced_.at(credential); }
  [[nodiscard]] const std::string& ProxyName(uint32_t number) const { return proxy_names_.at(number); }

 private:
  std::vector<Rule> rules_;
  std::vector<uint32_t> proxies_;
  uint32_t settings_proxy_ = 0;
  bool any_ = false;
  std::map<uint32_t, std::string> credential_names_{{0, ""}};
  std::map<uint32_t, std::string> replaced_{{0, ""}};
  std::map<uint32_t, std::string> proxy_names_{{0, ""}};
};

}  // namespace sluice::prover
