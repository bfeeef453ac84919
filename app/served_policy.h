#pragma once

// What `run` and `proxy` have in common: which policy is served, where records go, how upstreams are found and trusted.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/via_flags.h"
#include "audit/audit.h"
#include "base/result.h"
#include "policy/snapshot.h"
#include "proxy/io/engine.h"

namespace sluice::app {

struct ServedOptions {
  std::string policy;                      ///< file; may be empty when there are allows or presets
  std::optional<std::string> policy_text;  ///< in its place: what --policy-fd gave
  std::vector<std::string> allows;         ///< --allow
  std::vector<std::string> presets;        ///< --preset
  std::string audit;                       ///< file; empty: none
  std::vector<std::string> resolvers;      ///< as dns::ParseUpstreamServer reads them
  std::vector<std::string> stub_domains;   ///< "DOMAIN=SERVER[,SERVER...]"
  std::vector<std::string> upstream_ca;
  std::string ca_cert;  ///< PEM file of an authority of the user's own; empty: one is made
  std::string ca_key;
  bool mirror_certificates = false;
  ViaFlags via;
  std::string name;
  std::vector<std::string> labels;  ///< "k=v"
  bool quiet = false;
  bool check_executables = true;  ///< tell what this machine has at the paths of `by`

  bool operator==(const ServedOptions&) const = default;
};

/// --quiet leaves warnings and errors, unless --verbose has asked for more.
void ChooseLogLevel(const ServedOptions& options);

/// Tells the error on standard error; gives the exit code.
[[nodiscard]] int Report(const Error& error);
/// The same of what the kernel refused: points to `sluice doctor`. A right that is missing counts as a feature that is.
[[nodiscard]] int ReportMachine(const Error& error, std::string_view mode);

/// What a policy is called that is a text and no file.
inline constexpr const char* kPolicyTextName = "policy";

/// An error where no policy is named at all.
[[nodiscard]] Result<void> CheckPolicyNamed(const ServedOptions& options);

/// Where a policy is served, and so what of it can take effect.
enum class ServedIn : uint8_t {
  kCapture,    ///< no UDP but DNS, and no true addresses
  kSidecar,    ///< UDP by the kernel's sets
  kContainer,  ///< as kCapture; executables are another file system's
};

/// kInvalid, with its place: a rule or a setting that could never take effect where `command` ("sluice run") serves the policy.
[[nodiscard]] Result<void> CheckServable(const policy::Snapshot& snapshot, std::string_view command, ServedIn where);

/// What could never take effect where `command` ("sluice run") serves it is an error. Says nothing: a policy is loaded more often
/// than it comes into force.
[[nodiscard]] Result<policy::SnapshotPtr> LoadPolicy(const ServedOptions& options, std::string_view command,
                                                     ServedIn where = ServedIn::kCapture);

/// Says what in it will not do what its author thinks. Once for each policy that comes into force.
void TellPolicy(const policy::Snapshot& snapshot, const ServedOptions& options);

/// "k=v" each.
[[nodiscard]] Result<std::map<std::string, std::string>> ParseLabels(const std::vector<std::string>& labels);

/// Resolvers, roots for upstreams, and the addresses of this host.
[[nodiscard]] Result<proxy::EngineOptions> MakeEngineOptions(const ServedOptions& options);

/// `default_name`: of the sandbox, where --name gives none.
[[nodiscard]] audit::Options MakeAuditOptions(const ServedOptions& options, std::map<std::string, std::string> labels,
                                              std::string default_name);

}  // namespace sluice::app
