#pragma once

// What a policy is asked. Every view must outlive the call only.

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ip.h"
#include "policy/body.h"

namespace sluice::policy {

/// An executable as the kernel names it. `path` is empty where it could not be read; a deleted or memfd executable keeps
/// its text in `path` for people and has `trusted` false, so that no path glob of an allow matches it.
struct Executable {
  std::string path;
  bool trusted = false;
  std::optional<std::array<uint8_t, 32>> sha256{};  ///< filled only when Snapshot::NeedsDigests()

  bool operator==(const Executable&) const = default;
};

/// Who asks. Immutable once shared. Attribution, not a boundary: see policy-language.md, exact point 5.
struct Process {
  int32_t pid = 0;          ///< thread group id in the supervisor's pid namespace; 0 when unknown
  uint64_t start_time = 0;  ///< clock ticks since boot, field 22 of /proc/PID/stat
  uint32_t uid = 0;
  Executable exe;
  std::string comm;                   ///< for people only: the workload chooses it
  std::vector<Executable> ancestors;  ///< parent first, up to the workload's first process; at most 16
  std::string client{};               ///< of an explicit proxy: the name it showed, or its address; for people and records
  std::string client_labels{};        ///< of its token: "team=build env=prod"
};
using ProcessPtr = std::shared_ptr<const Process>;

enum class Transport : uint8_t { kTcp, kUdp };
enum class Scheme : uint8_t { kHttps, kHttp };

/// A connection, or an attempt at one.
struct ConnectQuery {
  const Process* process = nullptr;  ///< null: unknown, which matches no allow's `by` and every deny's
  std::string_view host;             ///< canonical name (lower-case A-labels, no final dot); empty: the workload gave a literal
  /// The address to be dialled. Absent while the name is unresolved: the answer is then a preliminary one, the best that any
  /// public or listed address could get, and must be asked again with each address before dialling.
  std::optional<IpAddress> address{};
  /// `address` is absent for good: an upstream proxy looks the name up. No allow that speaks of addresses holds then, and every
  /// deny that does (exact point 1).
  bool remote = false;
  uint16_t port = 0;
  Transport transport = Transport::kTcp;
  WallTime now{};
  /// Addresses of the supervisor's own host: as special as loopback (exact point 11).
  std::span<const IpAddress> host_addresses{};
};

/// A lookup. `type` is the RR type number.
struct NameQuery {
  const Process* process = nullptr;
  std::string_view name;  ///< canonical
  uint16_t type = 1;
  WallTime now{};
};

/// A path in the form that is compared and sent. Made by CanonicalizeTarget only.
struct CanonicalTarget {
  std::string path;   ///< begins with '/'; unreserved decoded, hex upper-case, dot segments and doubled slashes gone
  std::string query;  ///< verbatim, without '?'; empty with has_query for a bare '?'
  bool has_query = false;
  bool has_encoded_slash = false;  ///< %2F survives in path: only allows with encoded-slash match
  bool has_path_params = false;    ///< ';' in path: only allows with path-params match
  bool has_hidden_dots = false;    ///< a dot segment once %2F is a slash or ";x" is dropped: no allow matches
  std::string matched{};  ///< path with the escapes of :@!$&'()*+,= decoded, as rules compare it; empty where that is path
  std::vector<std::string> wide_readings{};  ///< other ways a server may read %2F and ';', for denies; mostly empty
  /// What rules compare.
  [[nodiscard]] std::string_view ForMatching() const {
    return matched.empty() ? std::string_view(path) : std::string_view(matched);
  }
  /// What is sent upstream: path, and '?' with the query.
  [[nodiscard]] std::string ForUpstream() const;
};

using HeaderView = std::pair<std::string_view, std::string_view>;  ///< name in lower case, value trimmed

/// What a request turns its connection or stream into.
enum class Upgrade : uint8_t {
  kNone,
  kWebSocket,  ///< RFC 6455 by `Upgrade`, RFC 8441 by `:protocol`; the method is given as GET for both
};

/// One HTTP request on a connection that was judged kInspect.
struct RequestQuery {
  ConnectQuery connection;
  Scheme scheme = Scheme::kHttps;
  std::string_view method;
  const CanonicalTarget* target = nullptr;
  std::span<const HeaderView> headers{};
  Upgrade upgrade = Upgrade::kNone;
  /// Null: not read. Then the answer may be Decision::body_needed, and the question is asked again with those readings.
  const RequestBody* body = nullptr;
};

/// A connect to a path socket. The path is absolute and lexically normal.
struct UnixQuery {
  const Process* process = nullptr;
  std::string_view path;
  WallTime now{};
};

}  // namespace sluice::policy
