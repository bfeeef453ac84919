#pragma once

// Heads as they leave: written anew from what was parsed, never copied. The target is canonical, Host is rebuilt, hop-by-hop
// fields and those that Connection names are gone, and an upstream cannot forge Sluice's own fields.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ip.h"
#include "proxy/buffer.h"
#include "proxy/http1.h"

namespace sluice::proxy {

/// What a rebuilt Host says: "a.test", "a.test:8443", "[::1]:8080". `default_port` is 443 or 80 by scheme.
[[nodiscard]] std::string HostField(std::string_view name, const IpAddress& literal, uint16_t port, uint16_t default_port);

/// What is changed in a request's head between the judgement and the wire, in HTTP/1.1 and HTTP/2 alike: credentials. Neither
/// framing nor hop-by-hop fields can be added.
struct HeadEdits {
  std::vector<std::string> removed;                        ///< names in lower case: the client's own fields that do not leave
  std::vector<std::pair<std::string, std::string>> added;  ///< names in lower case
  std::optional<std::string> target;                       ///< takes the place of path and query
  [[nodiscard]] bool Removes(const Field& field) const;
  void Clear() {
    removed.clear();
    added.clear();
    target.reset();
  }
};

struct RequestForward {
  std::string_view target;  ///< CanonicalTarget::ForUpstream()
  std::string_view host;    ///< HostField
  Framing framing;
  const HeadEdits* edits = nullptr;  ///< but for their target, which is in `target`
};
void AppendRequestHead(Buffer* out, const RequestHead& head, const RequestForward& forward);

/// What becomes of the downstream connection after this response.
enum class Keep : uint8_t { kKeepAlive, kClose };

struct ResponseForward {
  Framing framing;  ///< as it leaves: kUntilClose only to an HTTP/1.0 client
  Version client = Version::k11;
  Keep keep = Keep::kKeepAlive;
};
void AppendResponseHead(Buffer* out, const ResponseHead& head, const ResponseForward& forward);

/// A 1xx response, without framing fields.
void AppendInterimHead(Buffer* out, const ResponseHead& head);

}  // namespace sluice::proxy
