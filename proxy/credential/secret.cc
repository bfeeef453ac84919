#include "proxy/credential/secret.h"

#include <cstring>

namespace sluice::proxy {

void Wipe(std::string* text) noexcept {
  // What was written before a resize still lies behind the end.
  explicit_bzero(text->data(), text->capacity());
  text->clear();
}

Secret::Secret(std::string&& bytes) : bytes_(bytes.data(), bytes.size()) { Wipe(&bytes); }

Result<void> CheckSecretText(std::string_view secret) {
  if (secret.empty()) return Fail(Code::kInvalid, "is empty");
  if (secret.size() > kMaxSecretOctets) return Fail(Code::kInvalid, "is longer than 64 KiB");
  for (const char c : secret) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\r' || c == '\n') return Fail(Code::kInvalid, "has more than one line");
    if (byte == 0) return Fail(Code::kInvalid, "holds a NUL");
    if (byte < 0x20 || byte == 0x7f) return Fail(Code::kInvalid, "holds a control character");
  }
  if (secret.front() == ' ' || secret.back() == ' ') return Fail(Code::kInvalid, "begins or ends with a blank");
  return {};
}

}  // namespace sluice::proxy
