#pragma once

// Which clients of an explicit proxy are known by a token. A file holds a line for each:
//
//   ci       sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae   team=build env=prod
//
// a name, the SHA-256 of the token in hexadecimal, and labels for its records. `#` begins a comment. A token is random, at least
// 128 bits (`openssl rand -hex 32`): a hash alone does not keep a weak password. A client sends it as `Proxy-Authorization:
// Bearer TOKEN`, as Basic or SOCKS5 password with the name as user.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "policy/query.h"

namespace sluice::proxy {

inline constexpr size_t kMaxTokens = 10'000;
inline constexpr size_t kMaxTokenBytes = 1024;  ///< as a client sends it: a longer one is not looked at

class TokenTable {
 public:
  /// Errors name the line of `file`. A name or a hash that comes twice is one, and so is a file without any.
  static Result<TokenTable> Parse(std::string_view text, std::string_view file);

  /// The client with this name and token; with no name, the one with this token. Null: there is none. Takes as long whichever
  /// entry matches.
  [[nodiscard]] policy::ProcessPtr Find(std::string_view name, std::string_view token) const;
  /// From a Proxy-Authorization field's value.
  [[nodiscard]] policy::ProcessPtr FromField(std::string_view value) const;
  /// Whether one of these calls gave the client, of this table or of one that it took over from.
  [[nodiscard]] bool Knows(const policy::ProcessPtr& client) const { return clients_.contains(client.get()); }
  /// The clients that `before` has with the same name, token and labels are the same ones from now on.
  void TakeOver(const TokenTable& before);
  [[nodiscard]] size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string name;
    std::array<uint8_t, 32> hash{};
    policy::ProcessPtr client;  ///< an unknown process with the name and labels
  };
  Result<void> ParseLine(std::string_view line, std::string_view where);
  std::vector<Entry> entries_;
  std::unordered_set<const policy::Process*> clients_;  ///< of the entries
};

}  // namespace sluice::proxy
