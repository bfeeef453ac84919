#pragma once

// HTTP/2 header sections (RFC 9113 section 8) as the heads that http1.h knows, and back: what is judged, edited and forwarded is
// one form, whichever protocol carries it. Held to the same bounds and the same strictness as HTTP/1.1.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/denial.h"
#include "proxy/forward.h"
#include "proxy/http1.h"
#include "proxy/websocket_handshake.h"

namespace sluice::proxy {

struct H2Field {
  std::string_view name;
  std::string_view value;
  bool secret = false;  ///< to be sent: in no table that outlives it (RFC 7541 section 7.1.3)
};

/// One decoded section, its bytes in one piece. What is over kMaxHeadBytes or kMaxFields is counted and not kept.
class H2Section {
 public:
  void Add(std::string_view name, std::string_view value);
  void Clear();
  /// The section was too large; what is held is its beginning.
  [[nodiscard]] bool overflowed() const { return overflowed_; }
  /// Octets of names and values, kept or not.
  [[nodiscard]] size_t octets() const { return octets_; }
  /// Views into this section.
  [[nodiscard]] std::vector<H2Field> Fields() const;

 private:
  struct Place {
    uint32_t at;
    uint32_t name_size;
    uint32_t value_size;
  };
  std::string bytes_;
  std::vector<Place> places_;
  size_t octets_ = 0;
  bool overflowed_ = false;
};

/// Whether a section was the last thing of its message.
enum class H2End : uint8_t { kOpen, kEndStream };

/// What ReadRequestSection and ReadResponseSection need memory for, beside the section: cookies that were joined.
struct H2HeadStore {
  H2Section section;
  std::string cookie;
};

/// `store->section` becomes `head`, whose views point into `store`. `scheme` is the connection's. Faults are for the stream, and
/// have the status to answer with.
Fault ReadRequestSection(H2HeadStore* store, H2End end, std::string_view scheme, RequestHead* head, Framing* framing);
/// Interim responses too. Every fault has status 502.
Fault ReadResponseSection(H2HeadStore* store, H2End end, std::string_view request_method, ResponseHead* head, Framing* framing);
/// The trailer fields that may pass, each as a "name: value\r\n" line.
[[nodiscard]] std::string ReadTrailerSection(const H2Section& section);

/// Fields to be sent. Views point into what they were made from, or into this.
class H2Output {
 public:
  /// Room for `octets` of text of its own; views into it are stable until then.
  void Reset(size_t octets);
  void Add(std::string_view name, std::string_view value) { fields_.push_back({name, value}); }
  void AddSecret(std::string_view name, std::string_view value) { fields_.push_back({name, value, true}); }
  /// Copies the name, in lower case.
  void AddLower(std::string_view name, std::string_view value);
  /// Copies the value.
  void AddCopy(std::string_view name, std::string_view value);
  [[nodiscard]] const std::vector<H2Field>& fields() const { return fields_; }

 private:
  std::string own_;
  std::vector<H2Field> fields_;
};

void WriteRequestSection(H2Output* out, const RequestHead& head, const RequestForward& forward, std::string_view scheme);
/// The extended CONNECT that asks for a WebSocket (RFC 8441). `forward.key` is not used.
void WriteWebSocketSection(H2Output* out, const RequestHead& head, const WebSocketOffer& offer, const WebSocketForward& forward,
                           std::string_view scheme);
/// The 200 that opens it.
void WriteWebSocketAnswer(H2Output* out, const ResponseHead& head, const WebSocketAgreement& agreement);
/// `framing` as the body leaves; for interim responses none.
void WriteResponseSection(H2Output* out, const ResponseHead& head, const Framing& framing);
/// Lines as ReadTrailerSection and ChunkedDecoder give them, filtered again. Changed: names become lower case.
void WriteTrailerSection(H2Output* out, std::string& lines);

/// The head of a denial. gRPC clients show the status of a response without a body, so that is what they get.
enum class H2DenialForm : uint8_t { kJson, kText, kGrpc };
[[nodiscard]] H2DenialForm H2FormFor(const RequestHead& request);
/// `body_size` is not used for kGrpc.
void WriteDenialSection(H2Output* out, const Denial& denial, H2DenialForm form, size_t body_size);

}  // namespace sluice::proxy
