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

#include "base/keyed_hash.h"
#include "base/random.h"
#include "proxy/io/mirror.h"
#include "proxy/io/stream.h"
#include "proxy/io/tls_context.h"

namespace sluice::proxy {
namespace {

constexpr long kBackdate = -3600;  // a workload's clock may lag
constexpr long kAuthorityLife = 30L * 24 * 3600;
constexpr long kLeafLife = 7L * 24 * 3600;
constexpr size_t kMaxAuthorityChain = 8;  // certificates above an own authority's
constexpr int kLongAuthorityDays = 398;   // what clients let a server's certificate live at most
constexpr int kSecurityBits = 112;
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

// Ed25519 and Ed448 have theirs built in.
const EVP_MD* DigestFor(EVP_PKEY* key) {
  const int id = EVP_PKEY_get_base_id(key);
  return id == EVP_PKEY_ED25519 || id == EVP_PKEY_ED448 ? nullptr : EVP_sha256();
}

struct CertificateSpec {
  std::string common_name;
  std::string subject;      ///< DER of a whole X.501 name, in place of the common name; empty: none
  std::string alternative;  ///< "DNS:a.test,DNS:*.test", "IP:1.2.3.4"; empty for the authority
  long life = 0;
};

bool SetSubject(X509* cert, const CertificateSpec& spec) {
  if (spec.subject.empty()) return SetName(X509_get_subject_name(cert), spec.common_name, "Sluice");
  const unsigned char* der = Octets(spec.subject);
  X509_NAME* const name = d2i_X509_NAME(nullptr, &der, static_cast<long>(spec.subject.size()));
  const bool set = name != nullptr && X509_set_subject_name(cert, name) == 1;
  X509_NAME_free(name);
  return set;
}

CertPtr MakeCertificate(const CertificateSpec& spec, EVP_PKEY* subject_key, X509* issuer, EVP_PKEY* issuer_key) {
  CertPtr cert(X509_new());
  if (!cert) return nullptr;
  X509* const x = cert.get();
  X509* const signer = issuer != nullptr ? issuer : x;
  X509_set_version(x, X509_VERSION_3);
  if (!SetSerial(x) || X509_gmtime_adj(X509_getm_notBefore(x), kBackdate) == nullptr ||
      X509_gmtime_adj(X509_getm_notAfter(x), spec.life) == nullptr ||
      !(issuer == nullptr ? SetEncodedKey(x, subject_key) : X509_set_pubkey(x, subject_key) == 1) || !SetSubject(x, spec) ||
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
         // An authority of the user's own need not say which key it has.
         (X509_get0_subject_key_id(issuer) == nullptr || AddExtension(x, &context, NID_authority_key_identifier, "keyid")) &&
         // RFC 5280 section 4.2.1.6: critical where it is all that names the subject.
         AddExtension(x, &context, NID_subject_alt_name,
                      (X509_NAME_entry_count(X509_get_subject_name(x)) == 0 ? "critical," : "") + spec.alternative);
  }
  // Nothing outlives what vouches for it.
  if (issuer != nullptr && ASN1_TIME_compare(X509_get0_notAfter(x), X509_get0_notAfter(issuer)) > 0)
    ok = ok && X509_set1_notAfter(x, X509_get0_notAfter(issuer)) == 1;
  if (!ok || X509_sign(x, issuer_key, DigestFor(issuer_key)) == 0) return nullptr;
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

// What an authority of the user's own must be, and what it had better be.
Result<void> CheckAuthority(X509* cert, EVP_PKEY* key, std::vector<std::string>* warnings) {
  const auto bad = [](std::string_view what) {
    return Fail(Code::kInvalid, fmt::format("the authority's certificate {}", what));
  };
  if (X509_check_private_key(cert, key) != 1) {
    ERR_clear_error();
    return bad("is not of that key");
  }
  // First, since without it nothing counts as an authority.
  if ((X509_get_key_usage(cert) & KU_KEY_CERT_SIGN) == 0)
    return bad("may not sign certificates: its key usage lacks keyCertSign");
  if (X509_check_ca(cert) != 1) return bad("is no authority: its basic constraints do not say CA:TRUE");
  if ((X509_get_extended_key_usage(cert) & XKU_SSL_SERVER) == 0)
    return bad("may not vouch for servers: its extended key usage lacks serverAuth");
  if (X509_cmp_current_time(X509_get0_notBefore(cert)) > 0) return bad("is not valid yet");
  if (X509_cmp_current_time(X509_get0_notAfter(cert)) < 0) return bad("has expired");
  if (EVP_PKEY_get_security_bits(key) < kSecurityBits) return bad("has a key that clients take for too weak");
  int days = 0;
  int seconds = 0;
  if (ASN1_TIME_diff(&days, &seconds, nullptr, X509_get0_notAfter(cert)) != 1) return bad("has no readable end");
  if (days > kLongAuthorityDays)
    warnings->push_back(fmt::format(
        "the authority's certificate is valid for {} more days: whoever gets its key may pose as any server to all who trust it",
        days));
  if (days < 1) warnings->push_back("the authority's certificate expires within a day");
  if (X509_get_ext_by_NID(cert, NID_name_constraints, -1) >= 0)
    warnings->push_back("the authority's certificate has name constraints: clients refuse what Sluice shows for other names");
  return {};
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
    cert_ = MakeCertificate({.common_name = name, .subject = "", .alternative = "", .life = kAuthorityLife}, key_.get(), nullptr,
                            key_.get());
    if (!cert_) return TlsFail("cannot make the certificate authority");
    pem_ = ToPem(cert_.get());
    return {};
  }

  Result<void> InitFrom(const std::string& certificates, std::string_view key, std::vector<std::string>* warnings) {
    ERR_clear_error();
    const BioPtr source(BIO_new_mem_buf(certificates.data(), static_cast<int>(certificates.size())));
    const BioPtr key_source(BIO_new_mem_buf(key.data(), static_cast<int>(key.size())));
    leaf_key_.reset(EVP_EC_gen("P-256"));
    if (!source || !key_source || !leaf_key_) return TlsFail("cannot make a key");
    while (X509* next = PEM_read_bio_X509(source.get(), nullptr, NoPassword, nullptr)) {
      pem_ += ToPem(next);
      if (!cert_) {
        cert_.reset(next);
      } else {
        above_.emplace_back(next);
      }
      if (above_.size() > kMaxAuthorityChain) return Fail(Code::kInvalid, "the authority's file holds too many certificates");
    }
    ERR_clear_error();
    if (!cert_) return Fail(Code::kInvalid, "the authority's file holds no PEM certificate");
    key_.reset(PEM_read_bio_PrivateKey(key_source.get(), nullptr, NoPassword, nullptr));
    ERR_clear_error();
    if (!key_) return Fail(Code::kInvalid, "the authority's key file holds no PEM key, or one with a password");
    return CheckAuthority(cert_.get(), key_.get(), warnings);
  }

  const std::string& pem() const override { return pem_; }

  ContextPtr ContextFor(const std::string& name, const IpAddress& literal, const MirroredNames* mirrored) override {
    const std::string subject = name.empty() ? literal.ToString() : name;
    const std::string key = KeyOf(subject, mirrored);
    const std::lock_guard lock(mutex_);
    const auto now = SystemClock().Steady();
    if (const auto found = leaves_.find(key); found != leaves_.end()) {
      if (found->second->expires > now) {
        order_.splice(order_.begin(), order_, found->second);
        return found->second->context;
      }
      order_.erase(found->second);
      leaves_.erase(found);
    }
    ContextPtr context = MakeContext(SpecFor(subject, name.empty(), mirrored));
    if (!context) return nullptr;
    order_.push_front({key, context, now + std::chrono::seconds(kLeafLife / 2)});
    leaves_[key] = order_.begin();
    if (leaves_.size() > kMaxLeaves) {
      leaves_.erase(order_.back().key);
      order_.pop_back();
    }
    return context;
  }

 private:
  struct Leaf {
    std::string key;
    ContextPtr context;
    SteadyTime expires;
  };

  static std::string KeyOf(const std::string& subject, const MirroredNames* mirrored) {
    if (mirrored == nullptr) return subject;
    std::string key = subject;
    for (const std::string& name : mirrored->names) key += ' ' + name;
    return key + ' ' + mirrored->subject;
  }

  static CertificateSpec SpecFor(const std::string& subject, bool address, const MirroredNames* mirrored) {
    CertificateSpec spec;
    spec.life = kLeafLife;
    if (mirrored == nullptr) {
      // X.520 bounds a common name at 64 characters; clients read the alternative name.
      spec.common_name = subject.substr(0, 64);
      spec.alternative = (address ? "IP:" : "DNS:") + subject;
      return spec;
    }
    spec.subject = mirrored->subject;
    for (const std::string& name : mirrored->names) spec.alternative += (spec.alternative.empty() ? "" : ",") + name;
    return spec;
  }

  ContextPtr MakeContext(const CertificateSpec& spec) {
    ERR_clear_error();
    const CertPtr cert = MakeCertificate(spec, leaf_key_.get(), cert_.get(), key_.get());
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
    // What a client trusts need not be what signs: everything up to it is shown, and a root, which vouches for itself alone, not.
    if (!above_.empty() && SSL_CTX_add1_chain_cert(c, cert_.get()) != 1) return nullptr;
    for (const CertPtr& next : above_)
      if (X509_self_signed(next.get(), 0) != 1 && SSL_CTX_add1_chain_cert(c, next.get()) != 1) return nullptr;
    return context;
  }

  KeyPtr key_;
  KeyPtr leaf_key_;
  CertPtr cert_;
  std::vector<CertPtr> above_;  ///< of an own authority: what vouches for it
  std::string pem_;
  std::mutex mutex_;
  std::list<Leaf> order_;  ///< most recently used first
  KeyedMap<std::string, std::list<Leaf>::iterator> leaves_;
};

}  // namespace

Result<std::unique_ptr<TlsAuthority>> TlsAuthority::Create() {
  auto authority = std::make_unique<Authority>();
  if (auto ok = authority->Init(); !ok) return std::unexpected(ok.error());
  return authority;
}

Result<std::unique_ptr<TlsAuthority>> TlsAuthority::FromPem(const std::string& certificates, std::string_view key,
                                                            std::vector<std::string>* warnings) {
  auto authority = std::make_unique<Authority>();
  if (auto ok = authority->InitFrom(certificates, key, warnings); !ok) return std::unexpected(ok.error());
  return authority;
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

}  // namespace sluice::proxy
