#pragma once

// Whether one rule speaks for one connection or request: the predicates that the decisions, the advice and `lint` share.
// Nothing here allocates.

#include <cstdint>
#include <optional>

#include "policy/address.h"
#include "policy/query.h"
#include "policy/rule.h"

namespace sluice::policy {

struct CredentialScope;  // credential.h

/// What an allow lacks for a query; a set of bits. None: it matches.
using Misses = uint32_t;
enum MissBit : Misses {
  kMissPort = 1u << 0,
  kMissPath = 1u << 1,
  kMissMethod = 1u << 2,
  kMissQuery = 1u << 3,
  kMissHeader = 1u << 4,
  kMissBinary = 1u << 5,
  kMissAddress = 1u << 6,
  kMissExpired = 1u << 7,
  kMissOperation = 1u << 8,  ///< what the body asks for
};

/// A connection with what is worked out once: the special range that its address lies in.
struct ConnectionView {
  const ConnectQuery& query;
  std::optional<SpecialRange> special;
  explicit ConnectionView(const ConnectQuery& q);
};

/// A prefix holds addresses of its own family only: ::/0 has no IPv4.
[[nodiscard]] bool Holds(const Cidr& prefix, const IpAddress& address);

/// Whether an allow's `by` or `under` names the executable.
[[nodiscard]] bool AllowsExecutable(const std::vector<ExecutablePattern>& patterns, const Executable& exe);
[[nodiscard]] bool AllowCoversProcess(const Rule& rule, const Process* process);
[[nodiscard]] bool DenyCoversProcess(const Rule& rule, const Process* process);
[[nodiscard]] bool AllowCoversAddress(const Rule& rule, const ConnectionView& connection);
/// An unresolved name has no address yet: denies by address wait for it, unless nobody here will ever know it.
[[nodiscard]] bool DenyCoversAddress(const Rule& rule, const ConnectionView& connection);
[[nodiscard]] bool CoversPort(const Rule& rule, uint16_t port);
/// Host and port of a place that a credential may go to.
[[nodiscard]] bool ScopeHolds(const CredentialScope& scope, const ConnectQuery& query);

/// Port, process, address and time of an allow whose host matches.
[[nodiscard]] bool AllowCoversConnection(const Rule& rule, const ConnectionView& connection);
/// The same, with all that stands against it.
[[nodiscard]] Misses ConnectionMisses(const Rule& rule, const ConnectionView& connection);

/// A request with what is worked out once, where a rule first needs it.
class RequestView {
 public:
  explicit RequestView(const RequestQuery& request);

  /// Scheme, method, path, query and headers of an inner allow: all but the body.
  [[nodiscard]] bool AllowCovers(const Rule& rule) const;
  /// The same, with all that stands against it.
  [[nodiscard]] Misses AllowMisses(const Rule& rule) const;
  /// The reading of the body that an allow which covers the request has a say in; 0: it covers the request whatever the body.
  [[nodiscard]] BodyKinds AllowReading(const Rule& rule) const;
  /// The same of a deny; nothing where it does not cover the request, whatever the body.
  [[nodiscard]] std::optional<BodyKinds> DenyReading(const Rule& rule) const;
  [[nodiscard]] bool has_method_override() const { return has_method_override_; }

 private:
  /// All but the globs of a path; a repository's are matched.
  [[nodiscard]] Misses MissesBesidePath(const Rule& rule) const;
  [[nodiscard]] Misses VerbMisses(const Rule& rule) const;
  [[nodiscard]] Misses GitMisses(const Rule& rule) const;
  [[nodiscard]] Misses LfsMisses(const Rule& rule, std::string_view call) const;
  [[nodiscard]] Misses GraphqlMisses(const Rule& rule) const;
  [[nodiscard]] Misses McpMisses(const Rule& rule) const;
  [[nodiscard]] bool MayActAs(std::string_view listed) const;
  [[nodiscard]] bool MayHaveBody() const;
  [[nodiscard]] bool DenyCoversVerb(const Rule& rule) const;
  [[nodiscard]] std::optional<BodyKinds> DenyGitReading(const Rule& rule, std::string_view path) const;
  [[nodiscard]] std::optional<BodyKinds> DenyPathReading(const Rule& rule, std::string_view path) const;

  const RequestQuery& request_;
  bool has_method_override_ = false;
  bool is_json_ = false;  ///< what its one Content-Type says
  bool is_lfs_json_ = false;
  bool is_grpc_ = false;
};

/// What a request asks of a git server, read from its URL. Kept apart for the advice.
struct GitRequest {
  Verb verb = Verb::kGitFetchPack;
  std::string_view repo;  ///< with its ".git", as sent
};
[[nodiscard]] std::optional<GitRequest> ReadGitRequest(const RequestQuery& request);

[[nodiscard]] bool IsMethodOverrideHeader(std::string_view name);
/// Whether a rule of HTTP lists the method: GET means GET and HEAD.
[[nodiscard]] bool ListsMethod(const Rule& rule, std::string_view method);
/// The one path segment and query value that name a git operation to a server: "git-upload-pack".
[[nodiscard]] std::string_view GitService(Verb verb);
/// Servers behind CGI, WSGI or Rack see no difference between '-' and '_' in a field name.
[[nodiscard]] bool SameToSomeServer(std::string_view listed, std::string_view name);

}  // namespace sluice::policy
