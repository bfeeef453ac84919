#pragma once

// What both sides of TLS share. For tls.cc and tls_client.cc alone: OpenSSL's own headers are here.

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string_view>

#include "base/result.h"
#include "proxy/io/stream.h"

namespace sluice::proxy {

// AES-128 first: half the rounds, and no client that speaks TLS 1.3 lacks it.
inline constexpr char kSuites13[] = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
inline constexpr char kSuites12[] =
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"
    "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";

/// Read of a socket at a time, where so much has come: four records. Only what is read into takes memory.
inline constexpr size_t kReadAhead = size_t{4} * (SSL3_RT_MAX_PLAIN_LENGTH + SSL3_RT_MAX_ENCRYPTED_OVERHEAD);

template <auto Free>
struct SslDeleter {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using KeyPtr = std::unique_ptr<EVP_PKEY, SslDeleter<EVP_PKEY_free>>;
using CertPtr = std::unique_ptr<X509, SslDeleter<X509_free>>;
using BioPtr = std::unique_ptr<BIO, SslDeleter<BIO_free_all>>;
using ContextPtr = std::shared_ptr<SSL_CTX>;

[[nodiscard]] inline std::unexpected<Error> TlsFail(std::string_view what) {
  return Fail(Code::kInternal, fmt::format("{}: {}", what, TakeSslError()));
}

inline void SetCommonOptions(SSL_CTX* context) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // Record buffers are given back by Stream::Trim when a connection idles, rather than after each record.
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, kReadAhead);
}

/// For PEM readers: no key that asks for a password is taken.
inline int NoPassword(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) { return -1; }

}  // namespace sluice::proxy
