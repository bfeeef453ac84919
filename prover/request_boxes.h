#pragma once

// What a rule says inside a connection, as a union of boxes: each is a product of one set of methods, of header and query values,
// and of paths. The predicates are the enforcer's (policy/match.h); what they are asked about is one member of each atom.

#include <map>
#include <memory>
#include <string>
#include <vector>

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
  [[nodiscard]] InnerId Intern(const policy::Rule& rule);
  [[nodiscard]] const policy::Rule& rule(InnerId id) const { return *rules_[id]; }

  enum class Part : uint8_t { kPlain, kGitRefs, kGitService };
  [[nodiscard]] const PathPattern& Paths(InnerId id, Part part);
  /// A stable number for the same.
  [[nodiscard]] uint32_t PathsNumber(InnerId id, Part part) const { return id * 3 + static_cast<uint32_t>(part); }

 private:
  std::vector<std::unique_ptr<policy::Rule>> rules_;
  std::map<std::string, InnerId> numbers_;
  std::map<uint32_t, std::unique_ptr<PathPattern>> paths_;
};

enum class Role : uint8_t { kHeadAllow, kHeadDeny, kBaseAllow, kBaseDeny, kAccepted };
[[nodiscard]] constexpr bool IsDeny(Role role) { return role == Role::kHeadDeny || role == Role::kBaseDeny; }

struct Box {
  Role role = Role::kHeadAllow;
  InnerId inner = kUniversal;
  const policy::Rule* rule = nullptr;
  InnerRules::Part part = InnerRules::Part::kPlain;
  std::vector<std::string> header_names{};  ///< a deny: which field meets each of its matchers
  std::string override_name{};              ///< a deny by method: the field that carries the method, instead of the request
  [[nodiscard]] bool universal() const { return inner == kUniversal; }
};

/// How the query stands in the request, which only git rules tell apart.
enum class QueryShape : uint8_t { kNone, kBare, kExactUpload, kExactReceive, kPairs };

using Values = std::vector<std::string>;  ///< of one key, as sent; none: absent

[[nodiscard]] bool AdmitsMethod(const Box& box, const std::string& method);
[[nodiscard]] bool AdmitsHeader(const Box& box, const std::string& name, const Values& values);
[[nodiscard]] bool AdmitsShape(const Box& box, QueryShape shape);
[[nodiscard]] bool AdmitsQuery(const Box& box, const std::string& key, const Values& values);
/// A key that no rule names. With a raw ';' after it the query has two readings, and no allow that speaks of pairs holds; both
/// readings have the same named pairs, so denies answer as without.
enum class OtherKey : uint8_t { kNone, kPlain, kSemicolon };
[[nodiscard]] bool AdmitsOtherKey(const Box& box, OtherKey other);

[[nodiscard]] std::string GitContentType(policy::Verb verb);

/// The fields of a request that some box looks at, each under each name that the boxes tell apart.
[[nodiscard]] std::vector<std::string> HeaderNames(const std::vector<std::pair<Role, const policy::Rule*>>& rules);
/// The rule's boxes over those fields.
void AddBoxes(Role role, InnerId inner, const policy::Rule& rule, const std::vector<std::string>& header_names,
              std::vector<Box>* boxes);

}  // namespace sluice::prover
