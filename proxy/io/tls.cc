#include "proxy/io/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <unordered_map>

#include "base/random.h"
#include "proxy/io/stream.h"

namespace sluice::proxy {
namespace {

constexpr long kBackdate = -3600;  // a workload's clock may lag
constexpr long kAuthorityLife = 30L * 24 * 3600;
constexpr long kLeafLife = 7L * 24 * 3600;
constexpr int kSecurityLevel = 2;  // of certificates and keys of upstreams
// AES-128 first: half the rounds, and no client that speaks TLS 1.3 lacks it.
constexpr char kSuites13[] = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
constexpr char kSuites12[] =
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"
    "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";
constexpr std::string_view kH2 = "h2";
// As ALPN has them (RFC 7301): each behind its length.
constexpr std::string_view kAlpnHttp11 = "\x08http/1.1";
constexpr std::string_view kAlpnHttp11First = "\x08http/1.1\x02h2";
constexpr std::string_view kAlpnH2First = "\x02h2\x08http/1.1";

const std::string_view& ListOf(AlpnOffer offer) {
  switch (offer) {
    case AlpnOffer::kHttp11First:
      return kAlpnHttp11First;
    case AlpnOffer::kH2First:
      return kAlpnH2First;
    default:
      return kAlpnHttp11;
  }
}

const unsigned char* Octets(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using KeyPtr = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using CertPtr = std::unique_ptr<X509, Deleter<X509_free>>;
using ContextPtr = std::shared_ptr<SSL_CTX>;

std::unexpected<Error> TlsFail(std::string_view what) {
  return Fail(Code::kInternal, fmt::format("{}: {}", what, TakeSslError()));
}

bool AddExtension(X509* cert, X509V3_CTX* context, int nid, const std::string& value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, context, nid, value.c_str());
  if (extension == nullptr) return false;
  const int added = X509_add_ext(cert, extension, -1);
  X509_EXTENSION_free(extension);
  return added == 1;
}

bool SetName(X509_NAME* name, std::string_view common, std::string_view organisation) {
  const auto add = [&](const char* field, std::string_view text) {
    return X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(text.data()),
                                      static_cast<int>(text.size()), -1, 0) == 1;
  };
  return add("O", organisation) && add("CN", common);
}

bool SetSerial(X509* cert) {
  // 126 random bits: positive, and at most 20 octets as RFC 5280 section 4.1.2.2 wants.
  unsigned char bytes[16];
  FillRandom(bytes);
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x3f) | 0x40);
  BIGNUM* number = BN_bin2bn(bytes, sizeof bytes, nullptr);
  const bool ok = number != nullptr && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert)) != nullptr;
  BN_free(number);
  return ok;
}

// X509_set_pubkey encodes the key by way of OpenSSL's table of encoders, which takes longer to fill than all else an authority
// needs. A certificate whose key was set like this cannot be given to an SSL_CTX, which would want the key back.
bool SetEncodedKey(X509* cert, EVP_PKEY* p256) {
  unsigned char* point = nullptr;
  const size_t size = EVP_PKEY_get1_encoded_public_key(p256, &point);
  if (size == 0) return false;
  if (X509_PUBKEY_set0_param(X509_get_X509_PUBKEY(cert), OBJ_nid2obj(NID_X9_62_id_ecPublicKey), V_ASN1_OBJECT,
                             OBJ_nid2obj(NID_X9_62_prime256v1), point, static_cast<int>(size)) == 1)
    return true;
  OPENSSL_free(point);
  return false;
}

struct CertificateSpec {
  std::string common_name;
  std::string alternative;  ///< "DNS:a.test", "IP:1.2.3.4"; empty for the authority
  long life = 0;
};

CertPtr MakeCertificate(const CertificateSpec& spec, EVP_PKEY* subject_key, X509* issuer, EVP_PKEY* issuer_key) {
  CertPtr cert(X509_new());
  if (!cert) return nullptr;
  X509* const x = cert.get();
  X509* const signer = issuer != nullptr ? issuer : x;
  X509_set_version(x, X509_VERSION_3);
  if (!SetSerial(x) || X509_gmtime_adj(X509_getm_notBefore(x), kBackdate) == nullptr ||
      X509_gmtime_adj(X509_getm_notAfter(x), spec.life) == nullptr ||
      !(issuer == nullptr ? SetEncodedKey(x, subject_key) : X509_set_pubkey(x, subject_key) == 1) ||
      !SetName(X509_get_subject_name(x), spec.common_name, "Sluice") ||
      X509_set_issuer_name(x, X509_get_subject_name(signer)) != 1)
    return nullptr;
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, signer, x, nullptr, nullptr, 0);
  bool ok = false;
  if (issuer == nullptr) {
    ok = AddExtension(x, &context, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
         AddExtension(x, &context, NID_key_usage, "critical,keyCertSign,cRLSign") &&
         AddExtension(x, &context, NID_subject_key_identifier, "hash");
  } else {
    ok = AddExtension(x, &context, NID_basic_constraints, "critical,CA:FALSE") &&
         AddExtension(x, &context, NID_key_usage, "critical,digitalSignature") &&
         AddExtension(x, &context, NID_ext_key_usage, "serverAuth") &&
         AddExtension(x, &context, NID_subject_key_identifier, "hash") &&
         AddExtension(x, &context, NID_authority_key_identifier, "keyid") &&
         AddExtension(x, &context, NID_subject_alt_name, spec.alternative);
  }
  if (!ok || X509_sign(x, issuer_key, EVP_sha256()) == 0) return nullptr;
  return cert;
}

std::string ToPem(X509* cert) {
  BIO* bio = BIO_new(BIO_s_mem());
  std::string pem;
  if (bio != nullptr && PEM_write_bio_X509(bio, cert) == 1) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio, &data);
    pem.assign(data, static_cast<size_t>(size));
  }
  BIO_free(bio);
  return pem;
}

int SelectAlpn(SSL* ssl, const unsigned char** out, unsigned char* out_size, const unsigned char* in, unsigned int in_size,
               void* /*arg*/) {
  const auto* offered = static_cast<const std::string_view*>(SSL_get_app_data(ssl));
  const std::string_view list = offered != nullptr ? *offered : kAlpnHttp11;
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_size, Octets(list), static_cast<unsigned>(list.size()), in, in_size) !=
      OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_NOACK;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

void SetCommonOptions(SSL_CTX* context) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // Record buffers are given back by Stream::Trim when a connection idles, rather than after each record.
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(context, 1);
}

class Authority final : public TlsAuthority {
 public:
  Result<void> Init() {
    // Random numbers by hash: the usual generator would fetch every cipher there is, before the first of them is needed. Where
    // one is set up already, it stays.
    RAND_set_DRBG_type(nullptr, "HASH-DRBG", nullptr, nullptr, "SHA256");
    ERR_clear_error();
    key_.reset(EVP_EC_gen("P-256"));
    leaf_key_.reset(EVP_EC_gen("P-256"));
    if (!key_ || !leaf_key_) return TlsFail("cannot make a key");
    const std::string name = fmt::format("Sluice sandbox {}", RandomHex(4));
    cert_ = MakeCertificate({name, "", kAuthorityLife}, key_.get(), nullptr, key_.get());
    if (!cert_) return TlsFail("cannot make the certificate authority");
    pem_ = ToPem(cert_.get());
    return {};
  }

  const std::string& pem() const override { return pem_; }

  ContextPtr ContextFor(const std::string& name, const IpAddress& literal) override {
    const std::string subject = name.empty() ? literal.ToString() : name;
    const std::lock_guard lock(mutex_);
    const auto now = SystemClock().Steady();
    if (const auto found = leaves_.find(subject); found != leaves_.end()) {
      if (found->second->expires > now) {
        order_.splice(order_.begin(), order_, found->second);
        return found->second->context;
      }
      order_.erase(found->second);
      leaves_.erase(found);
    }
    ContextPtr context = MakeContext(subject, name.empty());
    if (!context) return nullptr;
    order_.push_front({subject, context, now + std::chrono::seconds(kLeafLife / 2)});
    leaves_[subject] = order_.begin();
    if (leaves_.size() > kMaxLeaves) {
      leaves_.erase(order_.back().subject);
      order_.pop_back();
    }
    return context;
  }

 private:
  struct Leaf {
    std::string subject;
    ContextPtr context;
    SteadyTime expires;
  };

  ContextPtr MakeContext(const std::string& subject, bool address) {
    ERR_clear_error();
    // X.520 bounds a common name at 64 characters; clients read the alternative name.
    const CertPtr cert = MakeCertificate({subject.substr(0, 64), (address ? "IP:" : "DNS:") + subject, kLeafLife},
                                         leaf_key_.get(), cert_.get(), key_.get());
    ContextPtr context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
    if (!cert || !context) return nullptr;
    SSL_CTX* const c = context.get();
    SetCommonOptions(c);
    // No tickets and no cache: a session of one name can never be resumed under another, and there is no 0-RTT.
    SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_num_tickets(c, 0);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_early_data(c, 0);
    SSL_CTX_set_alpn_select_cb(c, SelectAlpn, nullptr);
    if (SSL_CTX_use_certificate(c, cert.get()) != 1 || SSL_CTX_use_PrivateKey(c, leaf_key_.get()) != 1 ||
        SSL_CTX_set_ciphersuites(c, kSuites13) != 1 || SSL_CTX_set_cipher_list(c, kSuites12) != 1)
      return nullptr;
    return context;
  }

  KeyPtr key_;
  KeyPtr leaf_key_;
  CertPtr cert_;
  std::string pem_;
  std::mutex mutex_;
  std::list<Leaf> order_;  ///< most recently used first
  std::unordered_map<std::string, std::list<Leaf>::iterator> leaves_;
};

class Client final : public TlsClient {
 public:
  ~Client() override {
    for (auto& [key, session] : sessions_) SSL_SESSION_free(session);
  }

  Result<void> Init(const std::vector<std::string>& ca_files) {
    // What has nothing to read has nothing to complain about: it is set up by the first handshake, which many a run never makes.
    if (ca_files.empty()) return {};
    Result<void> ready;
    std::call_once(setup_once_, [&] { ready = SetUp(ca_files); });
    return ready;
  }

  SSL_CTX* context() override {
    std::call_once(setup_once_, [this] {
      if (const auto ready = SetUp({}); !ready) context_.reset();
    });
    return context_.get();
  }

  bool Prepare(SSL* ssl, const std::string& name, const IpAddress& literal, const std::string& key) override {
    // Reading the system's roots takes some ten milliseconds, which a run that never speaks TLS upstream need not wait for. Every
    // handshake comes by here first, so the store is whole before anything is verified.
    std::call_once(roots_once_, [this] { roots_read_ = SSL_CTX_set_default_verify_paths(context_.get()) == 1; });
    if (!roots_read_) return false;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    if (name.empty()) {
      if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), literal.ToString().c_str()) != 1) return false;
    } else if (SSL_set1_host(ssl, name.c_str()) != 1 || SSL_set_tlsext_host_name(ssl, name.c_str()) != 1) {
      return false;
    }
    const std::lock_guard lock(mutex_);
    // The map's own key outlives the SSL: keys are never removed before the client is.
    if (keys_.size() < kMaxUpstreamSessions) keys_.try_emplace(key);
    const auto kept = keys_.find(key);
    if (kept == keys_.end()) return true;
    SSL_set_app_data(ssl, const_cast<std::string*>(&kept->first));
    if (const auto found = sessions_.find(key); found != sessions_.end()) SSL_set_session(ssl, found->second);
    return true;
  }

 private:
  Result<void> SetUp(const std::vector<std::string>& ca_files) {
    ERR_clear_error();
    context_.reset(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
    if (!context_) return TlsFail("cannot set up TLS");
    SSL_CTX* const c = context_.get();
    SetCommonOptions(c);
    // 112 bits: no RSA below 2048, no SHA-1 in a chain. Some machines' openssl.cnf and builds of OpenSSL take less.
    SSL_CTX_set_security_level(c, std::max(SSL_CTX_get_security_level(c), kSecurityLevel));
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(c, OnNewSession);
    if (SSL_CTX_set_ciphersuites(c, kSuites13) != 1 || SSL_CTX_set_cipher_list(c, kSuites12) != 1 ||
        SSL_CTX_set_alpn_protos(c, Octets(kAlpnHttp11), kAlpnHttp11.size()) != 0)
      return TlsFail("cannot set up TLS");
    for (const auto& file : ca_files) {
      if (SSL_CTX_load_verify_file(c, file.c_str()) != 1)
        return Fail(Code::kInvalid, fmt::format("cannot read certificates from {}: {}", file, TakeSslError()));
    }
    SSL_CTX_set_app_data(c, this);
    return {};
  }

  static int OnNewSession(SSL* ssl, SSL_SESSION* session) {
    auto* self = static_cast<Client*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
    const auto* key = static_cast<const std::string*>(SSL_get_app_data(ssl));
    if (key == nullptr || SSL_SESSION_is_resumable(session) != 1) return 0;
    const std::lock_guard lock(self->mutex_);
    auto [slot, fresh] = self->sessions_.try_emplace(*key, session);
    if (!fresh) {
      SSL_SESSION_free(slot->second);
      slot->second = session;
    }
    return 1;
  }

  std::once_flag setup_once_;
  ContextPtr context_;
  std::once_flag roots_once_;
  bool roots_read_ = false;
  std::mutex mutex_;
  std::unordered_map<std::string, char> keys_;
  std::unordered_map<std::string, SSL_SESSION*> sessions_;
};

}  // namespace

Result<std::unique_ptr<TlsAuthority>> TlsAuthority::Create() {
  auto authority = std::make_unique<Authority>();
  if (auto ok = authority->Init(); !ok) return std::unexpected(ok.error());
  return authority;
}

Result<std::unique_ptr<TlsClient>> TlsClient::Create(const std::vector<std::string>& ca_files) {
  auto client = std::make_unique<Client>();
  if (auto ok = client->Init(ca_files); !ok) return std::unexpected(ok.error());
  return client;
}

bool OfferAlpn(SSL* ssl, AlpnOffer offer) {
  const std::string_view& list = ListOf(offer);
  if (SSL_is_server(ssl) == 0) return SSL_set_alpn_protos(ssl, Octets(list), static_cast<unsigned>(list.size())) == 0;
  return SSL_set_app_data(ssl, const_cast<std::string_view*>(&list)) == 1;
}

bool ChoseH2(SSL* ssl) {
  const unsigned char* name = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(ssl, &name, &size);
  return std::string_view(reinterpret_cast<const char*>(name), size) == kH2;
}

bool RefusedAlpn() { return ERR_GET_REASON(ERR_peek_error()) == SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL; }

bool CertificateWasRefused(SSL* ssl) { return SSL_get_verify_result(ssl) != X509_V_OK; }

std::string DescribeHandshakeFailure(SSL* ssl) {
  const long verify = SSL_get_verify_result(ssl);
  if (verify == X509_V_OK) return TakeSslError();
  ERR_clear_error();
  return X509_verify_cert_error_string(verify);
}

}  // namespace sluice::proxy
