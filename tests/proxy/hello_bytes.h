#pragma once

// ClientHellos by hand, with whatever extensions a test asks for.

#include <string>

namespace sluice::proxy::testing {

inline std::string Number8(size_t v) { return {static_cast<char>(v)}; }
inline std::string Number16(size_t v) { return {static_cast<char>(v >> 8), static_cast<char>(v)}; }
inline std::string Number24(size_t v) { return {static_cast<char>(v >> 16), static_cast<char>(v >> 8), static_cast<char>(v)}; }
inline std::string Counted16(const std::string& s) { return Number16(s.size()) + s; }
inline std::string Extension(int type, const std::string& body) { return Number16(static_cast<size_t>(type)) + Counted16(body); }
inline std::string ServerName(const std::string& name) { return Extension(0, Counted16(Number8(0) + Counted16(name))); }

/// The message; its record is around it.
inline std::string HelloMessage(const std::string& extensions) {
  const std::string body =
      "\x03\x03" + std::string(32, 'r') + Number8(0) + Counted16("\x13\x01") + Number8(1) + Number8(0) + Counted16(extensions);
  return Number8(1) + Number24(body.size()) + body;
}
inline std::string HelloRecord(const std::string& fragment) { return "\x16\x03\x01" + Counted16(fragment); }

}  // namespace sluice::proxy::testing
