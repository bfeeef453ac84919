#pragma once

// The client of a supervisor's administration: HTTP/1.1 over connections that are handed to it, with the parsers of the proxy.
// What answers is Sluice's own program, of the same version; it is read as strictly as if it were not.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "proxy/chunked.h"

namespace sluice::library {

inline constexpr size_t kMaxAnswerBytes = 32u << 20;  ///< head and body
inline constexpr size_t kMaxReadBytes = 1u << 20;     ///< of lines, before they are taken
inline constexpr std::chrono::seconds kAnswerDeadline{30};

struct Answer {
  int status = 0;
  std::string entity_tag;
  std::string body;
};

struct Question {
  std::string method;
  std::string target;
  std::string body{};
  std::optional<uint64_t> if_revision{};
};

/// kInvalid: a method or target that would break the request. One connection for one request; blocks.
[[nodiscard]] Result<Answer> Ask(int channel, const Question& question, std::chrono::milliseconds longest);

/// An answer of JSON Lines that goes on.
class LineStream {
 public:
  /// Sends the request; its answer is read by Read.
  static Result<LineStream> Open(int channel, const std::string& target);
  [[nodiscard]] int fd() const { return socket_.get(); }
  enum class Reading : uint8_t {
    kWait,  ///< all that was there was read
    kMore,  ///< there may be more; take the lines first
    kOver,
  };
  /// Reads what is there, without waiting. kProtocol: it is no such answer.
  [[nodiscard]] Result<Reading> Read();
  /// Whether a positive answer has begun.
  [[nodiscard]] bool begun() const { return begun_; }
  /// The next whole line without its feed; nothing where there is none yet. Blank ones are left out.
  [[nodiscard]] std::optional<std::string> Next();

 private:
  explicit LineStream(UniqueFd socket) : socket_(std::move(socket)) {}
  Result<void> Take(std::string_view bytes);

  UniqueFd socket_;
  std::string head_;
  bool begun_ = false;
  proxy::ChunkedDecoder chunks_;
  std::string lines_;
  size_t at_ = 0;  // of lines_ that was taken
};

}  // namespace sluice::library
