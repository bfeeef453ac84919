#pragma once

// Puts a secret into a request's head. The workload's own value of what is added goes first, in every spelling that a server may
// take for the same (docs/policy-language.md, exact point 19): a request never carries two. Pure, and the same for HTTP/1.1 and
// HTTP/2.
//
//   OutgoingHead head(request.fields, target.ForUpstream());
//   if (auto added = AddCredential(credential.send, secret->Reveal(), &head); !added) …answer 502…
//   …serialise head.fields and head.target…

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/credential.h"
#include "proxy/http1.h"

namespace sluice::proxy {

/// What is sent in place of a parsed head. Owns what was changed and wipes it; the rest of `fields` points where the parsed
/// fields pointed.
class OutgoingHead {
 public:
  OutgoingHead() = default;
  OutgoingHead(std::span<const Field> parsed, std::string upstream_target, std::string_view announced = {})
      : fields(parsed.begin(), parsed.end()), target(std::move(upstream_target)), trailer(announced) {}
  ~OutgoingHead() { Clear(); }
  OutgoingHead(const OutgoingHead&) = delete;
  OutgoingHead& operator=(const OutgoingHead&) = delete;

  std::vector<Field> fields;
  std::string target;   ///< path, and '?' with the query
  std::string trailer;  ///< the trailer names that may follow the body

  /// Keeps `text` for as long as this lives, or until Clear.
  std::string_view Keep(std::string&& text) { return kept_.emplace_back(std::move(text)); }
  /// Takes out every field whose name folds to `folded`, and the name from `trailer`.
  void Remove(std::string_view folded);
  /// After Remove: the one field of this name. `name` is lower case.
  void Set(std::string&& name, std::string&& value);
  void Clear();

 private:
  std::deque<std::string> kept_;
};

/// Adds what kBearer, kBasic, kHeader or kQuery say. kInvalid: a secret that no request may carry (CheckSecretText), or that has
/// no user where Basic needs one. The other kinds are kInternal here.
[[nodiscard]] Result<void> AddCredential(const policy::CredentialUse& use, std::string_view secret, OutgoingHead* head);

/// Whether such a use can be carried out at all: a field name that is a token and frames or routes nothing, a parameter with a
/// name, a user without ':'. kInvalid.
[[nodiscard]] Result<void> CheckUse(const policy::CredentialUse& use);

/// `target` without any parameter that a server may take for `name` (decoded, case aside, PHP's spellings of it included), and
/// with `name`=`value` at its end. Everything else stays as it stood.
[[nodiscard]] std::string WithQueryParameter(std::string_view target, std::string_view name, std::string_view value);
/// The first half of that. A '?' stays where parameters are left behind it.
[[nodiscard]] std::string WithoutQueryParameter(std::string_view target, std::string_view name);

}  // namespace sluice::proxy
