#include "base/path_error.h"

#include <cerrno>

namespace sluice {

Error PathError(std::string_view what, int sys_errno) {
  Error error = SystemError(what, sys_errno);
  switch (sys_errno) {
    case EACCES:
    case EPERM:
    case EROFS:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO:  // a socket, or a pipe that nobody reads
      error.code = Code::kInvalid;
      break;
    default:
      break;
  }
  return error;
}

}  // namespace sluice
