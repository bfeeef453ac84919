#include "policy/decision.h"

namespace sluice::policy {

std::string_view ReasonText(Reason reason) {
  switch (reason) {
    case Reason::kAllowed:
      return "allowed";
    case Reason::kNoRule:
      return "no_rule";
    case Reason::kMethod:
      return "method";
    case Reason::kPath:
      return "path";
    case Reason::kQuery:
      return "query";
    case Reason::kHeader:
      return "header";
    case Reason::kOperation:
      return "operation";
    case Reason::kBinary:
      return "binary";
    case Reason::kPort:
      return "port";
    case Reason::kDns:
      return "dns";
    case Reason::kPrivateAddress:
      return "private_ip";
    case Reason::kDenyRule:
      return "deny_rule";
    case Reason::kExpired:
      return "expired";
    case Reason::kAuthorityMismatch:
      return "authority_mismatch";
    case Reason::kProtocol:
      return "protocol";
    case Reason::kUnsupported:
      return "unsupported";
    case Reason::kUnattributed:
      return "unattributed";
    case Reason::kLimit:
      return "limit";
    case Reason::kUpstream:
      return "upstream";
    case Reason::kInternal:
      break;
  }
  return "internal";
}

}  // namespace sluice::policy
