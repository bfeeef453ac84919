#include "proxy/io/listener_tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>

#include <algorithm>

#include "proxy/io/limits.h"

namespace sluice::proxy {
namespace {

constexpr size_t kMaxPeerName = 128;
constexpr auto kLookAfterEnd = std::chrono::seconds(1);
constexpr unsigned char kAlpnHttp11[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};

int SelectAlpn(SSL* /*ssl*/, const unsigned char** out, unsigned char* out_size, const unsigned char* in, unsigned int in_size,
               void* /*arg*/) {
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_size, kAlpnHttp11, sizeof kAlpnHttp11, in, in_size) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_NOACK;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

std::unexpected<Error> Unreadable(const char* what, const std::string& file) {
  return Fail(Code::kInvalid, fmt::format("cannot read {} from {}: {}", what, file, TakeSslError()));
}

std::string Printed(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kMaxPeerName)) out += c > 0x20 && c < 0x7f ? c : '?';
  return out;
}

std::string_view Text(const ASN1_STRING* string) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(string)), static_cast<size_t>(ASN1_STRING_length(string))};
}

std::string AlternativeName(X509* certificate) {
  auto* names = static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  std::string found;
  for (int i = 0; found.empty() && i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type == GEN_DNS || name->type == GEN_URI || name->type == GEN_EMAIL) found = Printed(Text(name->d.ia5));
  }
  GENERAL_NAMES_free(names);
  return found;
}

std::string CommonName(X509* certificate) {
  X509_NAME* subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  return at < 0 ? "" : Printed(Text(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at))));
}

/// One direction.
struct Lane {
  Stream& from;
  Stream& to;
  Buffer bytes{};
  bool read_done = false;
  bool ended = false;
  uint8_t from_needs = 0;
  uint8_t to_needs = 0;
  bool failed = false;
};

// Moves until it would have to wait. True: it moved something.
bool Turn(Lane* lane) {
  lane->from_needs = lane->to_needs = 0;
  bool moved = false;
  for (int round = 0; round < kRoundsPerTurn; ++round) {
    if (lane->bytes.empty() && !lane->read_done) {
      const Io io = lane->from.Read(lane->bytes.Prepare(kReadPiece));
      if (io.status == IoStatus::kWouldBlock) lane->from_needs = lane->from.read_needs;
      if (io.status == IoStatus::kError) lane->failed = true;
      if (io.status == IoStatus::kEof) lane->read_done = true;
      if (io.status == IoStatus::kOk) lane->bytes.Commit(io.n);
    }
    if (lane->bytes.empty()) break;
    const Io io = lane->to.Write(lane->bytes.view());
    if (io.status == IoStatus::kWouldBlock) lane->to_needs = lane->to.write_needs;
    if (io.status == IoStatus::kError || io.status == IoStatus::kEof) lane->failed = true;
    if (io.status != IoStatus::kOk) break;
    lane->bytes.Consume(io.n);
    moved = true;
  }
  if (lane->read_done && lane->bytes.empty() && !lane->ended) {
    lane->to.ShutdownWrite();
    lane->ended = true;
  }
  return moved;
}

bool HasHungUp(int fd) {
  pollfd look{fd, 0, 0};
  return poll(&look, 1, 0) > 0 && (look.revents & (POLLHUP | POLLERR)) != 0;
}

}  // namespace

Result<std::shared_ptr<ListenerTls>> ListenerTls::Create(const ListenerTlsFiles& files) {
  ERR_clear_error();
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (!context) return Fail(Code::kInternal, fmt::format("cannot set up TLS: {}", TakeSslError()));
  SSL_CTX* const c = context.get();
  SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION);
  SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
  SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_num_tickets(c, 0);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_alpn_select_cb(c, SelectAlpn, nullptr);
  if (SSL_CTX_use_certificate_chain_file(c, files.certificate.c_str()) != 1)
    return Unreadable("a certificate", files.certificate);
  if (SSL_CTX_use_PrivateKey_file(c, files.key.c_str(), SSL_FILETYPE_PEM) != 1) return Unreadable("a key", files.key);
  if (SSL_CTX_check_private_key(c) != 1)
    return Fail(Code::kInvalid, fmt::format("{} is not the key of {}", files.key, files.certificate));
  if (files.client_ca.empty()) return std::shared_ptr<ListenerTls>(new ListenerTls(std::move(context)));
  if (SSL_CTX_load_verify_file(c, files.client_ca.c_str()) != 1) return Unreadable("certificates", files.client_ca);
  STACK_OF(X509_NAME)* names = SSL_load_client_CA_file(files.client_ca.c_str());
  if (names == nullptr) return Unreadable("certificates", files.client_ca);
  SSL_CTX_set_client_CA_list(c, names);
  SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return std::shared_ptr<ListenerTls>(new ListenerTls(std::move(context)));
}

std::string PeerName(SSL* ssl) {
  X509* certificate = SSL_get1_peer_certificate(ssl);
  if (certificate == nullptr) return {};
  std::string name;
  if (SSL_get_verify_result(ssl) == X509_V_OK) {
    name = AlternativeName(certificate);
    if (name.empty()) name = CommonName(certificate);
    if (name.empty()) name = "?";
  }
  X509_free(certificate);
  return name;
}

Task<> Shuttle(Reactor& reactor, Waiter& waiter, Stream& tls, Stream& plain) {
  Lane up{tls, plain};
  Lane down{plain, tls};
  SteadyTime idle_until = reactor.now() + kRelayIdle;
  for (;;) {
    bool moved = Turn(&up);
    moved |= Turn(&down);
    if (up.failed || down.failed || (up.ended && down.ended)) co_return;
    if (moved) {
      idle_until = reactor.now() + kRelayIdle;
      const Wake turn = co_await waiter.Yield(idle_until);
      if (turn != Wake::kReady) co_return;
      continue;
    }
    // Once the plain end has said its last, whether it still listens is looked up now and then: nothing tells of it.
    if (down.ended && HasHungUp(plain.channel.fd())) co_return;
    const SteadyTime deadline = down.ended ? std::min(idle_until, reactor.now() + kLookAfterEnd) : idle_until;
    const Wake wake = co_await waiter.Wait({&tls.channel, static_cast<uint8_t>(up.from_needs | down.to_needs)},
                                           {&plain.channel, static_cast<uint8_t>(down.from_needs | up.to_needs)}, deadline);
    const bool broken = (tls.channel.ready & kBroken) != 0;
    if (broken || wake == Wake::kCancelled || (wake == Wake::kTimeout && reactor.now() >= idle_until)) co_return;
  }
}

}  // namespace sluice::proxy
