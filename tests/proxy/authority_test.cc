// An authority of the user's own: what is taken, what is refused and why, and that clients believe what it signs.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "proxy/io/tls.h"
#include "tests/proxy/testbed.h"

namespace sluice::proxy::testing {
namespace {

struct Ca {
  Ca() = default;
  Ca(Ca&& other) noexcept : key(std::exchange(other.key, nullptr)), cert(std::exchange(other.cert, nullptr)) {}
  Ca& operator=(Ca&&) = delete;
  ~Ca() {
    EVP_PKEY_free(key);
    X509_free(cert);
  }
  [[nodiscard]] std::string CertPem() const {
    BIO* bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, cert);
    return Taken(bio);
  }
  [[nodiscard]] std::string KeyPem(const char* password = nullptr) const {
    BIO* bio = BIO_new(BIO_s_mem());
    PEM_write_bio_PrivateKey(bio, key, password != nullptr ? EVP_aes_128_cbc() : nullptr, nullptr, 0, nullptr,
                             const_cast<char*>(password));
    return Taken(bio);
  }
  static std::string Taken(BIO* bio) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio, &data);
    std::string text(data, static_cast<size_t>(size));
    BIO_free(bio);
    return text;
  }
  EVP_PKEY* key = nullptr;
  X509* cert = nullptr;
};

struct CaSpec {
  EVP_PKEY* key = nullptr;  ///< null: P-256
  const char* constraints = "critical,CA:TRUE";
  const char* usage = "critical,keyCertSign";
  const char* extended = nullptr;
  long from = -3600;
  long until = 30L * 24 * 3600;
  const Ca* issuer = nullptr;
};

Ca MakeCa(const CaSpec& spec) {
  Ca ca;
  ca.key = spec.key != nullptr ? spec.key : EVP_EC_gen("P-256");
  ca.cert = X509_new();
  X509_set_version(ca.cert, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(ca.cert), spec.issuer != nullptr ? 2 : 1);
  X509_gmtime_adj(X509_getm_notBefore(ca.cert), spec.from);
  X509_gmtime_adj(X509_getm_notAfter(ca.cert), spec.until);
  X509_set_pubkey(ca.cert, ca.key);
  const char* name = spec.issuer != nullptr ? "Own intermediate" : "Own root";
  X509_NAME_add_entry_by_txt(X509_get_subject_name(ca.cert), "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name), -1,
                             -1, 0);
  X509* const signer = spec.issuer != nullptr ? spec.issuer->cert : ca.cert;
  X509_set_issuer_name(ca.cert, X509_get_subject_name(signer));
  const auto extend = [&](int nid, const char* value) {
    if (value == nullptr) return;
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, signer, ca.cert, nullptr, nullptr, 0);
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value);
    X509_add_ext(ca.cert, extension, -1);
    X509_EXTENSION_free(extension);
  };
  extend(NID_basic_constraints, spec.constraints);
  extend(NID_key_usage, spec.usage);
  extend(NID_ext_key_usage, spec.extended);
  EVP_PKEY* const signing = spec.issuer != nullptr ? spec.issuer->key : ca.key;
  X509_sign(ca.cert, signing, EVP_PKEY_get_base_id(signing) == EVP_PKEY_ED25519 ? nullptr : EVP_sha256());
  return ca;
}

std::string Refusal(const std::string& certificates, const std::string& key) {
  std::vector<std::string> warnings;
  const auto authority = TlsAuthority::FromPem(certificates, key, &warnings);
  return authority ? "" : authority.error().message;
}

TEST(OwnAuthority, IsCheckedBeforeItIsUsed) {
  const Ca good = MakeCa({});
  const Ca other = MakeCa({});
  EXPECT_EQ(Refusal(good.CertPem(), good.KeyPem()), "");
  const auto of = [](const CaSpec& spec) {
    const Ca ca = MakeCa(spec);
    return Refusal(ca.CertPem(), ca.KeyPem());
  };
  const std::pair<std::string, const char*> cases[] = {
      {Refusal("", good.KeyPem()), "holds no PEM certificate"},
      {Refusal(good.CertPem(), ""), "holds no PEM key"},
      {Refusal(good.CertPem(), good.KeyPem("word")), "one with a password"},
      {Refusal(good.CertPem(), other.KeyPem()), "is not of that key"},
      {of({.constraints = "critical,CA:FALSE"}), "CA:TRUE"},
      {of({.constraints = nullptr}), "CA:TRUE"},
      {of({.usage = "critical,digitalSignature"}), "keyCertSign"},
      {of({.extended = "clientAuth"}), "serverAuth"},
      {of({.until = -60}), "has expired"},
      {of({.from = 3600}), "is not valid yet"},
      {of({.key = EVP_RSA_gen(1024)}), "too weak"},
  };
  for (const auto& [got, want] : cases) EXPECT_NE(got.find(want), std::string::npos) << got << " / " << want;
}

TEST(OwnAuthority, ALongLifeIsWarnedOf) {
  const Ca ca = MakeCa({.until = 3650L * 24 * 3600});
  std::vector<std::string> warnings;
  ASSERT_TRUE(TlsAuthority::FromPem(ca.CertPem(), ca.KeyPem(), &warnings));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("is valid for 36"), std::string::npos) << warnings[0];
}

// What a client that trusts `root` alone makes of the engine's leaf.
bool Believes(Testbed& bed, uint16_t port, X509* root) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), root);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  FlowTarget target;
  target.host = "a.test";
  target.destination = {IpAddress::FromV4(0xc6120001), port};
  const UniqueFd fd = bed.ConnectRaw(std::move(target));
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), SSL_free);
  SSL_set_fd(ssl.get(), fd.get());
  SSL_set_tlsext_host_name(ssl.get(), "a.test");
  SSL_set1_host(ssl.get(), "a.test");
  if (SSL_connect(ssl.get()) != 1) return false;
  X509* const leaf = SSL_get0_peer_certificate(ssl.get());
  EXPECT_LE(ASN1_TIME_compare(X509_get0_notAfter(leaf), X509_get0_notAfter(root)), 0);
  return true;
}

TEST(OwnAuthority, ClientsBelieveWhatItSigns) {
  std::vector<std::string> warnings;
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), Echo);
  const std::string rules = LoopbackRule(fmt::format("http a.test:{}/**", origin.port()));
  EVP_PKEY* ed25519 = EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
  EVP_PKEY* keys[] = {nullptr, EVP_RSA_gen(2048), EVP_EC_gen("P-384"), ed25519};
  for (EVP_PKEY* key : keys) {
    // Its own end comes before a leaf's.
    const Ca root = MakeCa({.key = key, .until = 3L * 24 * 3600});
    auto authority = TlsAuthority::FromPem(root.CertPem(), root.KeyPem(), &warnings);
    ASSERT_TRUE(authority) << authority.error().message;
    EngineOptions options;
    options.authority = *std::move(authority);
    Testbed bed(rules, std::move(options));
    EXPECT_TRUE(Believes(bed, origin.port(), root.cert));
  }
  const Ca root = MakeCa({});
  const Ca between = MakeCa({.constraints = "critical,CA:TRUE,pathlen:0", .issuer = &root});
  auto authority = TlsAuthority::FromPem(between.CertPem() + root.CertPem(), between.KeyPem(), &warnings);
  ASSERT_TRUE(authority) << authority.error().message;
  EngineOptions options;
  options.authority = *std::move(authority);
  Testbed bed(rules, std::move(options));
  EXPECT_TRUE(Believes(bed, origin.port(), root.cert));
  EXPECT_EQ(warnings, std::vector<std::string>{});
}

}  // namespace
}  // namespace sluice::proxy::testing
