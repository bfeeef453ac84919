#include "base/result.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace sluice {

Error SystemError(std::string_view what, int sys_errno) {
  Code code = Code::kIo;
  switch (sys_errno) {
    case ENOENT:
      code = Code::kNotFound;
      break;
    case EISDIR:  // another file was meant
    case ENOTDIR:
      code = Code::kInvalid;
      break;
    case EPERM:
    case EACCES:
      code = Code::kPermission;
      break;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      code = Code::kExhausted;
      break;
    case ETIMEDOUT:
      code = Code::kTimeout;
      break;
    case ENOSYS:
    case EOPNOTSUPP:
      code = Code::kUnsupported;
      break;
    default:
      break;
  }
  return Error{code, fmt::format("{}: {}", what, std::generic_category().message(sys_errno)), sys_errno, std::nullopt};
}

}  // namespace sluice
