#include "base/listen_error.h"

#include <cerrno>

namespace sluice {

Error ListenError(std::string_view what, int sys_errno) {
  Error error = SystemError(what, sys_errno);
  const auto advise = [&error](const char* advice) {
    error.code = Code::kInvalid;
    error.message += advice;
  };
  if (sys_errno == EADDRINUSE) advise("; another program listens there: choose another port, or 0 for any that is free");
  if (sys_errno == EADDRNOTAVAIL) advise("; no interface of this machine has that address");
  if (sys_errno == EACCES) advise("; a port below 1024 takes root or CAP_NET_BIND_SERVICE: choose a higher one");
  return error;
}

}  // namespace sluice
