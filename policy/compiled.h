#pragma once

// What a Snapshot holds: the rules as data, and the indexes that find those which may speak for a host or an address.
// The prover reads the same object.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "policy/credential.h"
#include "policy/finding.h"
#include "policy/rule.h"
#include "policy/snapshot.h"

namespace sluice::policy {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>{}(text); }
};

struct CidrHash {
  size_t operator()(const Cidr& cidr) const noexcept { return IpHash{}(cidr.base()) * 131 + cidr.length128(); }
};

using RuleList = std::vector<uint32_t>;  ///< ascending indexes into Compiled::rules

/// Labels from the right: one node per suffix that a wildcard host ends in.
struct LabelNode {
  std::unordered_map<std::string, std::unique_ptr<LabelNode>, StringHash, std::equal_to<>> exact;
  struct Edge {
    Glob label;
    std::unique_ptr<LabelNode> node;
  };
  std::vector<Edge> globs;
  std::unordered_map<std::string, size_t, StringHash, std::equal_to<>> glob_index;  ///< a label's text to its place in globs
  RuleList here;                                                                    ///< hosts that end exactly here
  RuleList deep;                                                                    ///< hosts "**." before this suffix
  bool deep_allow = false;                                                          ///< `deep` holds an allow
  bool allow_below = false;  ///< some allow's host is longer than this suffix
};

struct Snapshot::Compiled {
  std::vector<Rule> rules;
  std::vector<RuleInfo> info;
  std::vector<Assertion> assertions;
  std::string name;
  Mode mode = Mode::kEnforce;
  Settings settings;
  std::vector<Credential> credentials;
  std::vector<UpstreamProxy> proxies;
  std::string digest;
  std::vector<std::string> files;
  std::vector<std::string> file_names;
  std::chrono::system_clock::time_point read_from;
  bool needs_digests = false;
  std::string origin;            ///< "an OpenShell policy"; empty for a native one
  std::vector<Finding> remarks;  ///< of the import, where it is none of our own

  std::unordered_map<std::string, RuleList, StringHash, std::equal_to<>> names;
  LabelNode wildcards;
  bool has_wildcards = false;
  RuleList any;  ///< host "**"
  std::unordered_map<Cidr, RuleList, CidrHash> prefixes;
  std::vector<unsigned> prefix_lengths;  ///< distinct length128() of prefixes
  RuleList opaque_prefixes;              ///< tcp and udp allows by prefix, for names not yet resolved
  RuleList sockets;                      ///< verb unix
  std::unordered_set<std::string, StringHash, std::equal_to<>> ancestors;  ///< proper suffixes of the names of allows
  bool any_via = false;         ///< some allow of an opaque connection names an upstream proxy, or the settings do
  bool any_allow_name = false;  ///< some allow implies lookups, so the root and its like exist
};

/// The rules and what stands beside them, as read.
struct PolicySource {
  std::vector<Rule> rules;
  std::vector<Assertion> assertions;
  std::string name;
  Mode mode = Mode::kEnforce;
  Settings settings;
  std::vector<Credential> credentials;
  std::vector<UpstreamProxy> proxies;
  std::vector<std::string> files;       ///< with links resolved
  std::vector<std::string> file_names;  ///< the same, by the names that led there
  std::chrono::system_clock::time_point read_from{};
  std::string digest;  ///< of DigestInput, made where there is a hash function
  std::string origin;
  std::vector<Finding> remarks;
};

/// The text whose SHA-256 is the digest.
[[nodiscard]] std::string DigestInput(const PolicySource& source);
/// The same of a policy that has rules alone.
[[nodiscard]] std::string DigestInput(const std::vector<Rule>& rules, Mode mode);
[[nodiscard]] SnapshotPtr Compile(PolicySource source);

}  // namespace sluice::policy
