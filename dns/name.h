#pragma once

// A domain name as RFC 1035 carries it: labels of arbitrary bytes, at most 63 each and 255 in all. Comparison ignores ASCII
// case (RFC 4343); the spelling is kept, since answers echo it.
//
//   auto name = dns::Name::FromText("API.example");    // name->Canonical() == "api.example"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice::dns {

inline constexpr size_t kMaxNameOctets = 255;
inline constexpr size_t kMaxLabelOctets = 63;

class Name {
 public:
  /// The root.
  Name() : wire_(1, '\0') {}
  /// Dotted text without escapes, with or without the final dot. Nothing for an empty or too long label, or a too long name.
  [[nodiscard]] static std::optional<Name> FromText(std::string_view text);
  /// Reads a name at `*position` of `message`, following compression pointers. Each pointer must lead before the labels read so
  /// far, so reading always ends (RFC 1035 section 4.1.4). `*position` moves behind the name; on failure it is unspecified.
  [[nodiscard]] static std::optional<Name> Read(std::span<const uint8_t> message, size_t* position);

  /// Labels with their lengths and the final zero, without compression.
  [[nodiscard]] const std::string& wire() const { return wire_; }
  [[nodiscard]] bool is_root() const { return wire_.size() == 1; }
  [[nodiscard]] size_t label_count() const;
  [[nodiscard]] size_t longest_label() const;
  /// Dotted text without the final dot ("." for the root); dots and backslashes inside labels as \. and \\, others outside
  /// 0x21..0x7e as \DDD.
  [[nodiscard]] std::string ToText() const;
  /// ToText in lower case: the key that tables use.
  [[nodiscard]] std::string Canonical() const;
  [[nodiscard]] bool EqualsIgnoringCase(const Name& other) const;
  /// Each letter's case as the next bit of `bits` says (draft-vixie-dnsext-dns0x20). Needs at least 32 bytes.
  void RandomizeCase(std::span<const uint8_t> bits);

  bool operator==(const Name&) const = default;

 private:
  std::string wire_;
};

/// ASCII letters to lower case, everything else as it is.
[[nodiscard]] constexpr char LowerAscii(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

}  // namespace sluice::dns
