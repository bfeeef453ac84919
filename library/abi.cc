// Versions, errors and texts of the C interface.

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>

#include "library/handles.h"
#include "policy/io/load.h"

namespace sluice::library {
namespace {

sluice_code CodeOf(Code code) {
  switch (code) {
    case Code::kInvalid:
      return SLUICE_INVALID;
    case Code::kNotFound:
      return SLUICE_NOT_FOUND;
    case Code::kPermission:
      return SLUICE_PERMISSION;
    case Code::kUnsupported:
      return SLUICE_UNSUPPORTED;
    case Code::kExhausted:
      return SLUICE_EXHAUSTED;
    case Code::kTimeout:
      return SLUICE_TIMEOUT;
    case Code::kIo:
      return SLUICE_IO;
    case Code::kProtocol:
      return SLUICE_PROTOCOL;
    case Code::kInternal:
      break;
  }
  return SLUICE_INTERNAL;
}

const char* NameOf(sluice_code code) {
  constexpr std::array kNames{"ok", "invalid",  "not_found", "permission", "unsupported", "exhausted", "timeout",
                              "io", "protocol", "internal",  "conflict",   "widens",      "ended",     "forked"};
  const auto at = static_cast<size_t>(code);
  return at < kNames.size() ? kNames[at] : "internal";
}

std::string JsonOf(const Error& fault, sluice_code code) {
  nlohmann::json out{{"code", NameOf(code)}, {"error", fault.message}};
  if (fault.span && fault.span->line != 0)
    out.update(
        {{"file", fault.span->file}, {"line", fault.span->line}, {"column", fault.span->column}, {"length", fault.span->length}});
  return out.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace

sluice_code Leave(sluice_error** error, const Error& fault, std::optional<sluice_code> code) noexcept {
  const sluice_code said = code.value_or(CodeOf(fault.code));
  if (error == nullptr) return said;
  try {
    auto made = std::make_unique<sluice_error>();
    made->code = said;
    made->message = fault.span ? policy::RenderError(fault, false) : fault.message;
    while (made->message.ends_with('\n')) made->message.pop_back();
    made->json = JsonOf(fault, said);
    *error = made.release();
  } catch (...) {
    *error = nullptr;  // out of memory: the code alone says so
  }
  return said;
}

sluice_code LeaveException(sluice_error** error) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    if (error != nullptr) *error = nullptr;  // which says so, and needs no memory
    return SLUICE_EXHAUSTED;
  } catch (const std::exception& fault) {
    try {
      return Leave(error, Error{Code::kInternal, std::string("unexpected fault: ") + fault.what(), 0, std::nullopt});
    } catch (...) {
    }
  } catch (...) {
  }
  if (error != nullptr) *error = nullptr;
  return SLUICE_INTERNAL;
}

}  // namespace sluice::library

using sluice::library::Leave;

uint32_t sluice_abi_version() noexcept { return SLUICE_ABI_VERSION; }
const char* sluice_version() noexcept { return SLUICE_VERSION; }

sluice_code sluice_error_code(const sluice_error* error) noexcept { return error == nullptr ? SLUICE_EXHAUSTED : error->code; }
const char* sluice_error_message(const sluice_error* error) noexcept {
  return error == nullptr ? "out of memory" : error->message.c_str();
}
const char* sluice_error_json(const sluice_error* error) noexcept {
  return error == nullptr ? R"({"code":"exhausted","error":"out of memory"})" : error->json.c_str();
}
void sluice_error_free(sluice_error* error) noexcept { delete error; }

const char* sluice_text_data(const sluice_text* text) noexcept { return text == nullptr ? "" : text->text.c_str(); }
size_t sluice_text_size(const sluice_text* text) noexcept { return text == nullptr ? 0 : text->text.size(); }
void sluice_text_free(sluice_text* text) noexcept { delete text; }
