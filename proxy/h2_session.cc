#include "proxy/h2_session.h"

#include <fmt/format.h>
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <vector>

namespace sluice::proxy {
namespace {

constexpr size_t kFeedPiece = 16 << 10;

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using CallbacksPtr = std::unique_ptr<nghttp2_session_callbacks, Deleter<nghttp2_session_callbacks_del>>;
using OptionPtr = std::unique_ptr<nghttp2_option, Deleter<nghttp2_option_del>>;

std::string_view Text(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

// nghttp2 copies what these point to.
std::vector<nghttp2_nv> Pairs(const H2Output& section) {
  std::vector<nghttp2_nv> pairs;
  pairs.reserve(section.fields().size());
  for (const H2Field& field : section.fields()) {
    // nghttp2 only reads through these.
    auto* name = reinterpret_cast<uint8_t*>(const_cast<char*>(field.name.data()));
    auto* value = reinterpret_cast<uint8_t*>(const_cast<char*>(field.value.data()));
    const bool secret = field.secret || field.name == "authorization" || field.name == "proxy-authorization";
    pairs.push_back({name, value, field.name.size(), field.value.size(),
                     static_cast<uint8_t>(secret ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE)});
  }
  return pairs;
}

void Check(int result) {
  if (result == NGHTTP2_ERR_NOMEM) throw std::bad_alloc();
}

}  // namespace

struct H2Callbacks {
  static H2Session& Of(void* user) { return *static_cast<H2Session*>(user); }

  static int BeginFrame(nghttp2_session* /*session*/, const nghttp2_frame_hd* frame, void* user) {
    H2Session& self = Of(user);
    const bool last = (frame->flags & NGHTTP2_FLAG_END_HEADERS) != 0;
    self.section_stream_ = frame->stream_id;
    self.section_flags_ = frame->flags;
    if (frame->type == NGHTTP2_CONTINUATION) {
      if (!self.section_told_) self.PassOverSection(frame->flags);
    } else {
      // Nothing else may follow a section that is not whole.
      self.section_since_.reset();
      self.section_told_ = false;
      if (frame->type == NGHTTP2_HEADERS && !last) self.section_since_ = self.fed_at_;
    }
    // nghttp2 leaves priorities alone, where they are in the wrong place too.
    if (frame->type == NGHTTP2_PRIORITY && frame->stream_id == 0) self.Fail(kH2ProtocolError, "PRIORITY on stream 0");
    if (frame->type == NGHTTP2_HEADERS) self.CheckStream(frame->stream_id);
    self.Count(frame->type, frame->flags, frame->length);
    return 0;
  }

  static int BeginHeaders(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user) {
    H2Session& self = Of(user);
    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) self.last_opened_ = frame->hd.stream_id;
    self.section_.Clear();
    self.section_since_ = self.fed_at_;
    self.section_told_ = true;
    return 0;
  }

  static int Header(nghttp2_session* /*session*/, const nghttp2_frame* frame, const uint8_t* name, size_t name_size,
                    const uint8_t* value, size_t value_size, uint8_t /*flags*/, void* user) {
    H2Session& self = Of(user);
    self.section_.Add(Text(name, name_size), Text(value, value_size));
    if (self.section_.octets() <= kH2MaxSectionOctets) return 0;
    self.Fail(kH2EnhanceYourCalm, "a header section that unpacks to too much");
    self.PassOverSection(frame->hd.flags);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  }

  // nghttp2 would drop such a field and go on with the rest of the message.
  static int InvalidHeader(nghttp2_session* /*session*/, const nghttp2_frame* frame, const uint8_t* /*name*/,
                           size_t /*name_size*/, const uint8_t* /*value*/, size_t /*value_size*/, uint8_t /*flags*/, void* user) {
    Of(user).PassOverSection(frame->hd.flags);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  }

  static int FrameReceived(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user) {
    H2Session& self = Of(user);
    const int32_t stream = frame->hd.stream_id;
    const bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    switch (frame->hd.type) {
      case NGHTTP2_HEADERS: {
        self.section_since_.reset();
        // A request, a final response, or for a client what is neither the first response nor trailers: an interim one.
        const bool head = frame->headers.cat == NGHTTP2_HCAT_REQUEST || frame->headers.cat == NGHTTP2_HCAT_RESPONSE ||
                          (self.role_ == H2Role::kClient && !end);
        if (head) {
          self.listener_.OnHead(stream, self.section_, end ? H2End::kEndStream : H2End::kOpen);
        } else {
          self.listener_.OnTrailers(stream, self.section_);
        }
        if (end) self.listener_.OnEnd(stream);
        return 0;
      }
      case NGHTTP2_DATA:
        if (end) self.listener_.OnEnd(stream);
        return 0;
      case NGHTTP2_GOAWAY:
        self.draining_ = true;
        return 0;
      case NGHTTP2_SETTINGS:
        self.peer_settings_seen_ |= (frame->hd.flags & NGHTTP2_FLAG_ACK) == 0;
        return 0;
      default:
        return 0;
    }
  }

  static int InvalidFrame(nghttp2_session* /*session*/, const nghttp2_frame* frame, int /*error*/, void* user) {
    H2Session& self = Of(user);
    if (frame->hd.type == NGHTTP2_HEADERS) self.PassOverSection(frame->hd.flags);
    // Its reset is on the way.
    self.past_.Note(frame->hd.stream_id, H2PastStreams::How::kResetHere);
    if (!self.resets_.Spend()) self.Fail(kH2EnhanceYourCalm, "too many streams that had to be reset");
    return 0;
  }

  static int DataChunk(nghttp2_session* /*session*/, uint8_t /*flags*/, int32_t stream, const uint8_t* data, size_t size,
                       void* user) {
    Of(user).listener_.OnData(stream, Text(data, size));
    return 0;
  }

  static int StreamClosed(nghttp2_session* /*session*/, int32_t stream, uint32_t code, void* user) {
    H2Session& self = Of(user);
    self.past_.Note(stream, code == NGHTTP2_NO_ERROR ? H2PastStreams::How::kEnded : H2PastStreams::How::kResetByPeer);
    self.LeaveSection(stream);
    self.listener_.OnClosed(stream, code);
    return 0;
  }

  static int FrameSent(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user) {
    H2Session& self = Of(user);
    if (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) self.control_.Earn(kH2ControlEarned);
    if (frame->hd.type == NGHTTP2_RST_STREAM) self.past_.Note(frame->hd.stream_id, H2PastStreams::How::kResetHere);
    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR && self.failure_.empty()) {
      self.failure_code_ = frame->goaway.error_code;
      const std::string_view why = Text(frame->goaway.opaque_data, frame->goaway.opaque_data_len);
      self.failure_ = why.empty() ? nghttp2_http2_strerror(self.failure_code_) : std::string(why);
    }
    return 0;
  }

  static ssize_t ReadData(nghttp2_session* /*session*/, int32_t stream, uint8_t* room, size_t size, uint32_t* flags,
                          nghttp2_data_source* /*source*/, void* user) {
    H2Session& self = Of(user);
    const auto piece = self.listener_.ReadBody(stream, {reinterpret_cast<char*>(room), size});
    if (!piece.ended) return piece.size != 0 ? static_cast<ssize_t>(piece.size) : NGHTTP2_ERR_DEFERRED;
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (piece.trailer_lines != nullptr) {
      WriteTrailerSection(&self.trailers_, *piece.trailer_lines);
      const auto pairs = Pairs(self.trailers_);
      if (!pairs.empty() && nghttp2_submit_trailer(self.session_, stream, pairs.data(), pairs.size()) == 0)
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    }
    return static_cast<ssize_t>(piece.size);
  }

  static nghttp2_session_callbacks* All() {
    static const CallbacksPtr all = [] {
      nghttp2_session_callbacks* made = nullptr;
      Check(nghttp2_session_callbacks_new(&made));
      nghttp2_session_callbacks_set_on_begin_frame_callback(made, BeginFrame);
      nghttp2_session_callbacks_set_on_begin_headers_callback(made, BeginHeaders);
      nghttp2_session_callbacks_set_on_header_callback(made, Header);
      nghttp2_session_callbacks_set_on_invalid_header_callback(made, InvalidHeader);
      nghttp2_session_callbacks_set_on_frame_recv_callback(made, FrameReceived);
      nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(made, InvalidFrame);
      nghttp2_session_callbacks_set_on_data_chunk_recv_callback(made, DataChunk);
      nghttp2_session_callbacks_set_on_stream_close_callback(made, StreamClosed);
      nghttp2_session_callbacks_set_on_frame_send_callback(made, FrameSent);
      return CallbacksPtr(made);
    }();
    return all.get();
  }

  static nghttp2_option* Options() {
    static const OptionPtr all = [] {
      nghttp2_option* made = nullptr;
      Check(nghttp2_option_new(&made));
      // A window opens when bytes are consumed, not when they arrive.
      nghttp2_option_set_no_auto_window_update(made, 1);
      nghttp2_option_set_no_closed_streams(made, 1);
      nghttp2_option_set_max_continuations(made, kH2MaxContinuations);
      nghttp2_option_set_max_settings(made, kH2MaxSettings);
      nghttp2_option_set_max_outbound_ack(made, kH2MaxOutboundAcks);
      nghttp2_option_set_peer_max_concurrent_streams(made, kH2MaxStreams);
      return OptionPtr(made);
    }();
    return all.get();
  }
};

void H2Budget::Refill(SteadyTime now) {
  if (at_ != SteadyTime{} && now > at_) Earn(per_second_ * std::chrono::duration<double>(now - at_).count());
  at_ = now;
}

void H2Budget::Earn(double tokens) { left_ = std::min(burst_, left_ + tokens); }

bool H2Budget::Spend() {
  if (left_ < 1) return false;
  left_ -= 1;
  return true;
}

void H2PastStreams::Latest::Note(int32_t stream, How how) {
  if (kept.size() < room) {
    kept.emplace_back(stream, how);
  } else {
    kept[oldest++ % room] = {stream, how};
  }
}

void H2PastStreams::Note(int32_t stream, How how) { (how == How::kResetHere ? reset_here_ : others_).Note(stream, how); }

H2PastStreams::How H2PastStreams::Find(int32_t stream) const {
  for (const Latest* latest : {&reset_here_, &others_})
    for (const auto& [id, how] : latest->kept)
      if (id == stream) return how;
  return How::kUnknown;
}

H2Session::H2Session(H2Role role, H2Listener& listener) : listener_(listener), role_(role) {
  const bool server = role == H2Role::kServer;
  Check(server ? nghttp2_session_server_new2(&session_, H2Callbacks::All(), this, H2Callbacks::Options())
               : nghttp2_session_client_new2(&session_, H2Callbacks::All(), this, H2Callbacks::Options()));
  const uint32_t window = server ? kH2DownstreamWindow : kH2UpstreamWindow;
  std::vector<nghttp2_settings_entry> entries = {
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, server ? kH2MaxStreams : 0},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kMaxHeadBytes},
      {server ? NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES : NGHTTP2_SETTINGS_ENABLE_PUSH, server ? 1u : 0u},
  };
  if (server) entries.push_back({NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL, 1});
  Check(nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, entries.data(), entries.size()));
  Check(nghttp2_session_set_local_window_size(
      session_, NGHTTP2_FLAG_NONE, 0,
      static_cast<int32_t>(server ? kH2DownstreamConnectionWindow : kH2UpstreamConnectionWindow)));
}

H2Session::~H2Session() { nghttp2_session_del(session_); }

void H2Session::Count(uint8_t type, uint8_t flags, size_t length) {
  switch (type) {
    case NGHTTP2_HEADERS:
      control_.Earn(kH2ControlEarned);
      return;
    case NGHTTP2_CONTINUATION:
      return;
    case NGHTTP2_RST_STREAM:
      if (!resets_.Spend()) Fail(kH2EnhanceYourCalm, "too many streams reset");
      return;
    case NGHTTP2_DATA:
      if (length != 0) {
        control_.Earn(kH2ControlEarned);
        return;
      }
      if ((flags & NGHTTP2_FLAG_END_STREAM) != 0) return;
      break;
    default:
      break;
  }
  if (!control_.Spend()) Fail(kH2EnhanceYourCalm, "too many frames that carry nothing");
}

void H2Session::Fail(uint32_t code, std::string_view why) {
  if (!failure_.empty()) return;
  failure_code_ = code;
  failure_ = why;
}

// RFC 9113 sections 5.1 and 5.1.1, which nghttp2 leaves alone. What crossed a reset of this side's on the way is let go by.
void H2Session::CheckStream(int32_t stream) {
  if (role_ != H2Role::kServer || stream % 2 == 0 || stream > last_opened_) return;
  if (nghttp2_session_find_stream(session_, stream) != nullptr) return;
  switch (past_.Find(stream)) {
    case H2PastStreams::How::kResetHere:
      return;
    case H2PastStreams::How::kEnded:
      return Fail(kH2StreamClosed, "a section on a stream that has ended");
    case H2PastStreams::How::kUnknown:
      return Fail(kH2ProtocolError, "a stream number that goes back");
    case H2PastStreams::How::kResetByPeer:
      Reset(stream, kH2StreamClosed);
      if (!resets_.Spend()) Fail(kH2EnhanceYourCalm, "too many streams that had to be reset");
  }
}

// nghttp2 reads the rest of such a section without a word: it is known to be over once its last frame has begun.
void H2Session::PassOverSection(uint8_t flags) {
  section_told_ = false;
  if ((flags & NGHTTP2_FLAG_END_HEADERS) != 0) section_since_.reset();
}

bool H2Session::Feed(std::string_view bytes, SteadyTime now) {
  fed_at_ = now;
  control_.Refill(now);
  resets_.Refill(now);
  while (!bytes.empty() && !terminated_) {
    const std::string_view piece = bytes.substr(0, kFeedPiece);
    const ssize_t n = nghttp2_session_mem_recv(session_, reinterpret_cast<const uint8_t*>(piece.data()), piece.size());
    if (n == NGHTTP2_ERR_NOMEM) throw std::bad_alloc();
    if (n == NGHTTP2_ERR_BAD_CLIENT_MAGIC) Fail(kH2ProtocolError, "a connection preface that is none");
    if (n == NGHTTP2_ERR_FLOODED) Fail(kH2EnhanceYourCalm, "too many frames that must be answered");
    if (n < 0) Fail(kH2InternalError, nghttp2_strerror(static_cast<int>(n)));
    // Callbacks cannot end the session themselves: nghttp2 is in the middle of a frame then.
    if (!failure_.empty()) Terminate(failure_code_, failure_);
    if (n <= 0) break;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return failure_.empty();
}

bool H2Session::Write(Buffer* out) {
  while (out->size() < kH2WriteAhead) {
    const uint8_t* data = nullptr;
    const ssize_t n = nghttp2_session_mem_send(session_, &data);
    if (n == NGHTTP2_ERR_NOMEM) throw std::bad_alloc();
    if (n < 0) Fail(kH2InternalError, nghttp2_strerror(static_cast<int>(n)));
    if (n <= 0) break;
    out->Append(Text(data, static_cast<size_t>(n)));
  }
  return failure_.empty();
}

bool H2Session::done() const { return nghttp2_session_want_read(session_) == 0 && nghttp2_session_want_write(session_) == 0; }

int32_t H2Session::Request(const H2Output& section, H2End end) {
  const auto pairs = Pairs(section);
  const nghttp2_data_provider body{{.ptr = nullptr}, H2Callbacks::ReadData};
  const int32_t stream =
      nghttp2_submit_request(session_, nullptr, pairs.data(), pairs.size(), end == H2End::kOpen ? &body : nullptr, nullptr);
  Check(stream);
  return stream;
}

bool H2Session::PeerTakesConnect() const {
  return nghttp2_session_get_remote_settings(session_, NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL) == 1;
}

uint32_t H2Session::PeerMaxStreams() const {
  return std::min(kH2MaxStreams, nghttp2_session_get_remote_settings(session_, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS));
}

void H2Session::Interim(int32_t stream, const H2Output& section) {
  const auto pairs = Pairs(section);
  Check(nghttp2_submit_headers(session_, NGHTTP2_FLAG_NONE, stream, nullptr, pairs.data(), pairs.size(), nullptr));
}

void H2Session::Respond(int32_t stream, const H2Output& section, H2End end) {
  const auto pairs = Pairs(section);
  const nghttp2_data_provider body{{.ptr = nullptr}, H2Callbacks::ReadData};
  Check(nghttp2_submit_response(session_, stream, pairs.data(), pairs.size(), end == H2End::kOpen ? &body : nullptr));
}

void H2Session::Resume(int32_t stream) { Check(nghttp2_session_resume_data(session_, stream)); }

void H2Session::Consume(int32_t stream, size_t n) { Check(nghttp2_session_consume(session_, stream, n)); }

void H2Session::LeaveSection(int32_t stream) {
  if (section_since_ && section_stream_ == stream) PassOverSection(section_flags_);
}

void H2Session::Reset(int32_t stream, uint32_t code) {
  LeaveSection(stream);
  Check(nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream, code));
}

void H2Session::Ping() { Check(nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr)); }

void H2Session::Shutdown() {
  const int32_t last = nghttp2_session_get_last_proc_stream_id(session_);
  Check(nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, nullptr, 0));
}

void H2Session::Terminate(uint32_t code, std::string_view why) {
  if (terminated_) return;
  terminated_ = true;
  Fail(code, why);
  Check(nghttp2_session_terminate_session(session_, code));
}

}  // namespace sluice::proxy
