#include "app/java_keystore.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

namespace sluice::app {
namespace {

std::string SelfSigned() {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new(BIO_s_mem()), BIO_free);
  PEM_write_bio_X509(bio.get(), certificate.get());
  char* text = nullptr;
  const long length = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, static_cast<size_t>(length));
}

uint32_t Count(const std::string& store) {
  return (static_cast<uint32_t>(static_cast<uint8_t>(store[10])) << 8) | static_cast<uint8_t>(store[11]);
}

Result<std::string> Extended(std::string_view store, std::string_view bundle_pem, std::string_view authority_pem) {
  auto parts = ExtendJavaKeystore(store, bundle_pem, authority_pem);
  if (!parts) return std::unexpected(parts.error());
  return parts->head + std::string(parts->kept) + parts->tail;
}

TEST(JavaKeystore, BuildsAStoreOfRootsAndAuthority) {
  const std::string roots = SelfSigned() + SelfSigned();
  const auto store = Extended("not a key store", roots, SelfSigned());
  ASSERT_TRUE(store);
  EXPECT_EQ(store->substr(0, 4), "\xfe\xed\xfe\xed");
  EXPECT_EQ(Count(*store), 3u);
}

TEST(JavaKeystore, KeepsWhatAStoreHolds) {
  const auto first = Extended("", SelfSigned(), SelfSigned());
  ASSERT_TRUE(first);
  const auto second = Extended(*first, "", SelfSigned());
  ASSERT_TRUE(second);
  EXPECT_EQ(Count(*second), 3u);
  // All but header and digest of the first is still there.
  EXPECT_NE(second->find(first->substr(12, first->size() - 32)), std::string::npos);
}

std::string DerOfOne(const std::string& pem) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr),
                                                                X509_free);
  unsigned char* der = nullptr;
  const int length = i2d_X509(certificate.get(), &der);
  std::string bytes(reinterpret_cast<char*>(der), static_cast<size_t>(length));
  OPENSSL_free(der);
  return bytes;
}

TEST(JavaKeystore, HoldsEachCertificateAsItIs) {
  const std::string root = SelfSigned();
  const std::string authority = SelfSigned();
  const auto store = Extended("", "# a comment\n" + root + "\n", authority);
  ASSERT_TRUE(store);
  EXPECT_NE(store->find(DerOfOne(root)), std::string::npos);
  EXPECT_NE(store->find(DerOfOne(authority)), std::string::npos);
}

TEST(JavaKeystore, LeavesOutWhatIsNoCertificate) {
  const std::string damaged =
      "-----BEGIN CERTIFICATE-----\nMIIB*!!!\n-----END CERTIFICATE-----\n"
      "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
      "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
      "-----BEGIN CERTIFICATE-----\nMIIB";
  const auto store = Extended("", SelfSigned() + damaged, SelfSigned());
  ASSERT_TRUE(store);
  EXPECT_EQ(Count(*store), 2u);
}

}  // namespace
}  // namespace sluice::app
