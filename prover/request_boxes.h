#pragma once

// What a rule says inside a connection, as a union of boxes: each is a product of one set of methods, of header and query values,
// and of paths. The predicates are the enforcer's (policy/match.h); what they are asked about is one member of each atom.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "policy/body.h"
#include "policy/query.h"
#include "policy/rule.h"
#include "prover/path_search.h"

namespace sluice::prover {

/// A rule without its connection: the same number, the same requests. kUniversal is every request.
using InnerId = uint32_t;
inline constexpr InnerId kUniversal = 0;

/// Numbers inner rules, and keeps the patterns of their paths.
class InnerRules {
 public:
  InnerRules();
  [[nodiscard]] InnerId Intern(const policy::Rule& rule) { return Intern(rule, {}); }
  /// The same where the path of a git rule's request lies within one of these as it is spelt; none: whatever it is.
  [[nodiscard]] InnerId Intern(const policy::Rule& rule, const std::vector<policy::Glob>& within);
  [[nodiscard]] bool IsBounded(InnerId id) const { return within_.contains(id); }
  [[nodiscard]] const policy::Rule& rule(InnerId id) const { return *rules_[id]; }

  /// One verb may speak of several kinds of requests, each at its own paths.
  enum class Part : uint8_t {
    kPlain,
    kGitRefs,
    kGitService,
    kGraphqlGet,
    kMcpStream,
    kMcpEnd,
    kLfsBatch,
    kLfsGet,    ///< of objects
    kLfsPut,    ///< the same
    kLfsPost,   ///< verifications and locks
    kLfsLocks,  ///< their list
    kLfsOther,  ///< a deny: what is no batch call
  };
  [[nodiscard]] static constexpr bool IsLfsPart(Part part) { return part >= Part::kLfsBatch; }
  [[nodiscard]] static constexpr bool IsGitPart(Part part) {
    return part == Part::kGitRefs || part == Part::kGitService || IsLfsPart(part);
  }
  [[nodiscard]] const PathPattern& Paths(InnerId id, Part part);
  /// A stable number for the same: rules with the same paths share it.
  [[nodiscard]] uint32_t PathsNumber(InnerId id, Part part);

 private:
  std::vector<std::unique_ptr<policy::Rule>> rules_;
  std::map<std::string, InnerId> numbers_;
  std::map<InnerId, std::vector<policy::Glob>> within_;
  std::map<std::pair<InnerId, Part>, uint32_t> path_numbers_;
  std::map<std::string, uint32_t> path_texts_;
  std::map<uint32_t, std::unique_ptr<PathPattern>> paths_;
};

enum class Role : uint8_t {
  kHeadAllow,
  kHeadDeny,
  kHeadWithin,  ///< a deny: only what some of these cover is asked about
  kHeadAlso,    ///< an allow: the same
  kBaseAllow,
  kBaseDeny,
  kBaseExcept,  ///< an allow whose requests the base lacks: they travel another way
  kBaseWeak,    ///< the same where no kBaseKeep covers them too
  kBaseKeep,
  kBaseSpare,  ///< a deny: what it covers no kBaseExcept and no kBaseWeak takes from the base
  kAccepted,   ///< an allow whose requests are of no interest
};
[[nodiscard]] constexpr bool IsDeny(Role role) {
  return role == Role::kHeadDeny || role == Role::kHeadWithin || role == Role::kBaseDeny || role == Role::kBaseSpare;
}

struct Box {
  Role role = Role::kHeadAllow;
  InnerId inner = kUniversal;
  const policy::Rule* rule = nullptr;
  InnerRules::Part part = InnerRules::Part::kPlain;
  std::vector<std::string> header_names{};  ///< a deny: which field meets each of its matchers
  std::string override_name{};              ///< a deny by method: the field that carries the method, instead of the request
  policy::BodyKinds reading = 0;            ///< the reading of the body that it looks at; 0: none
  /// A deny that speaks of requests with a body: what shows that there may be one.
  enum class Sign : uint8_t { kNone, kMethod, kField, kKey } sign = Sign::kNone;
  std::string sign_name{};  ///< the field or the key
  [[nodiscard]] bool universal() const { return inner == kUniversal; }
};

/// How the query stands in the request, which only git rules tell apart.
enum class QueryShape : uint8_t { kNone, kBare, kExactUpload, kExactReceive, kPairs };

using Values = std::vector<std::string>;  ///< of one key, as sent; none: absent

[[nodiscard]] bool AdmitsMethod(const Box& box, const std::string& method, policy::Upgrade upgrade);
[[nodiscard]] bool AdmitsHeader(const Box& box, const std::string& name, const Values& values);
[[nodiscard]] bool AdmitsShape(const Box& box, QueryShape shape);
[[nodiscard]] bool AdmitsQuery(const Box& box, const std::string& key, const Values& values);
/// A key that no rule names. With a raw ';' after it the query has two readings, and no allow that speaks of pairs holds; both
/// readings have the same named pairs, so denies answer as without.
enum class OtherKey : uint8_t { kNone, kPlain, kSemicolon };
[[nodiscard]] bool AdmitsOtherKey(const Box& box, OtherKey other);

[[nodiscard]] std::string GitContentType(policy::Verb verb);

/// Whether a deny speaks of requests with a body alone (RequestView::DenyCoversVerb); the same of its LFS calls (DenyGitReading).
[[nodiscard]] bool NeedsSign(const policy::Rule& deny);
[[nodiscard]] bool NeedsSignOfLfs(const policy::Rule& deny);

/// What the boxes of one problem tell apart by name.
struct Names {
  std::vector<std::string> headers{};  ///< fields that some box looks at, each under each name that the boxes tell apart
  std::vector<std::string> query{};    ///< keys
};
[[nodiscard]] Names NamesOf(const std::vector<std::pair<Role, const policy::Rule*>>& rules);
/// The rule's boxes over those.
void AddBoxes(Role role, InnerId inner, const policy::Rule& rule, const Names& names, std::vector<Box>* boxes);

/// Whether the rule is about a media type: "" or what it must be.
enum class Media : uint8_t { kAny, kJson, kGrpc, kGit, kLfs };
[[nodiscard]] Media MediaOf(const Box& box);
/// The methods that a deny speaks of by which a server may act, whatever the request's own is; none: it speaks of no method.
[[nodiscard]] std::vector<std::string> DeniedMethods(const Box& box);

}  // namespace sluice::prover
