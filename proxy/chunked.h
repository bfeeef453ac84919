#pragma once

// The chunked transfer coding (RFC 9112 section 7.1), decoded strictly and encoded anew: extensions are dropped, sizes are
// plain hexadecimal, line ends are CRLF. Trailer fields pass only where the head announced them.

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <string_view>

#include "proxy/buffer.h"
#include "proxy/http1.h"

namespace sluice::proxy {

inline constexpr size_t kMaxChunkExtensionBytes = 4096;  ///< over a whole message
inline constexpr size_t kMaxTrailerBytes = 8192;
inline constexpr size_t kMaxChunkSizeDigits = 16;  ///< leading zeros included

/// Takes the coded bytes in pieces of any size. Holds no body bytes.
class ChunkedDecoder {
 public:
  struct Step {
    size_t consumed = 0;    ///< coded bytes used up, `data` included
    std::string_view data;  ///< body bytes, pointing into the input; may be empty
  };
  /// Uses input up to and including the first run of body bytes. Call again with the rest until done() or consumed is 0.
  /// Faults have status 400; for a response the caller says 502.
  [[nodiscard]] std::expected<Step, Fault> Next(std::string_view in);
  /// The last chunk and the trailer section have been read; what follows belongs to another message.
  [[nodiscard]] bool done() const { return state_ == State::kDone; }
  /// Raw trailer lines, each with its CRLF; complete once done().
  [[nodiscard]] std::string& trailers() { return trailers_; }
  void Reset();

 private:
  enum class State : uint8_t { kSizeFirst, kSize, kExtension, kSizeLf, kData, kDataCr, kDataLf, kTrailer, kDone };
  Fault Control(char c);
  Fault Trailer(char c);

  State state_ = State::kSizeFirst;
  uint64_t left_ = 0;
  size_t size_digits_ = 0;
  size_t extension_bytes_ = 0;
  size_t line_start_ = 0;
  std::string trailers_;
};

/// Appends one chunk. Nothing for empty data, since an empty chunk would end the body.
void AppendChunk(Buffer* out, std::string_view data);

/// Appends the last chunk and those trailer fields that `announced` (a Trailer field's value) names and that do not bear
/// on framing, routing or credentials (RFC 9110 section 6.5.1).
void AppendLastChunk(Buffer* out, std::string& trailer_lines, std::string_view announced);

/// Whether a trailer of this name (lower case) may ever be passed on; '_' counts as '-', as servers behind CGI read it.
[[nodiscard]] bool IsTrailerAllowed(std::string_view lower_name);

/// Of trailer lines, takes those away that `announced` does not name.
void DropUnannounced(std::string* lines, std::string_view announced);
/// And those of these names (lower case), with '_' as '-'.
void DropNamed(std::string* lines, std::span<const std::string> names);

}  // namespace sluice::proxy
