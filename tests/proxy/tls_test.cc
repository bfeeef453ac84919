// TLS as clients and upstreams see it: versions, the leaf, what is never offered, and the hello that upstreams get.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "proxy/client_hello.h"
#include "tests/proxy/testbed.h"

namespace sluice::proxy::testing {
namespace {

constexpr int kExtensionEch = 0xfe0d;
constexpr int kExtensionEarlyData = 42;
constexpr int kExtensionVersions = 43;
constexpr int kExtensionGroups = 10;
constexpr int kExtensionRenegotiation = 0xff01;

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using SslPtr = std::unique_ptr<SSL, Deleter<SSL_free>>;
using ContextPtr = std::unique_ptr<SSL_CTX, Deleter<SSL_CTX_free>>;
using CertPtr = std::unique_ptr<X509, Deleter<X509_free>>;

/// A client of OpenSSL's own making, before or after its handshake.
struct Client {
  ContextPtr context{SSL_CTX_new(TLS_client_method())};
  UniqueFd fd{};
  SslPtr ssl{};

  Client() { SSL_CTX_set_security_level(context.get(), 0); }
  bool Connect(Testbed& bed, FlowTarget target) {
    const std::string host = target.host;
    fd = bed.ConnectRaw(std::move(target));
    ssl.reset(SSL_new(context.get()));
    SSL_set_fd(ssl.get(), fd.get());
    if (!host.empty()) SSL_set_tlsext_host_name(ssl.get(), host.c_str());
    return SSL_connect(ssl.get()) == 1;
  }
  [[nodiscard]] CertPtr leaf() const { return CertPtr(SSL_get1_peer_certificate(ssl.get())); }
  bool Write(std::string_view bytes) { return SSL_write(ssl.get(), bytes.data(), static_cast<int>(bytes.size())) > 0; }
  std::string Read() {
    char bytes[4096];
    const int n = SSL_read(ssl.get(), bytes, sizeof bytes);
    return n > 0 ? std::string(bytes, static_cast<size_t>(n)) : "";
  }
};

FlowTarget To(const std::string& host, uint16_t port) {
  FlowTarget target;
  target.host = host;
  target.destination = {host.empty() ? kLoopback : IpAddress::FromV4(0xc6120001), port};
  return target;
}

std::vector<std::string> AlternativeNames(X509* cert) {
  std::vector<std::string> names;
  auto* all = static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(cert, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(all); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(all, i);
    const ASN1_STRING* text = name->type == GEN_DNS ? name->d.dNSName : name->d.iPAddress;
    names.push_back(
        (name->type == GEN_DNS ? "DNS:" : "IP:") +
        std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)), static_cast<size_t>(ASN1_STRING_length(text))));
  }
  GENERAL_NAMES_free(all);
  return names;
}

TEST(Tls, IsSpokenInTwoVersionsAndNoOther) {
  OneOrigin one(Echo);
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    Client client;
    SSL_CTX_set_min_proto_version(client.context.get(), version);
    SSL_CTX_set_max_proto_version(client.context.get(), version);
    ASSERT_TRUE(client.Connect(one.bed, To("a.test", one.origin.port()))) << version;
    EXPECT_EQ(SSL_version(client.ssl.get()), version);
  }
  for (const int version : {TLS1_VERSION, TLS1_1_VERSION}) {
    Client client;
    SSL_CTX_set_cipher_list(client.context.get(), "ALL:@SECLEVEL=0");
    SSL_CTX_set_min_proto_version(client.context.get(), version);
    SSL_CTX_set_max_proto_version(client.context.get(), version);
    EXPECT_FALSE(client.Connect(one.bed, To("a.test", one.origin.port()))) << version;
    ERR_clear_error();
  }
}

TEST(Tls, ALeafIsForTheNameAloneShortAndMadeOnce) {
  OneOrigin one(Echo);
  Client first;
  ASSERT_TRUE(first.Connect(one.bed, To("a.test", one.origin.port())));
  const CertPtr leaf = first.leaf();
  EXPECT_EQ(AlternativeNames(leaf.get()), std::vector<std::string>{"DNS:a.test"});
  char common[100] = {};
  X509_NAME_get_text_by_NID(X509_get_subject_name(leaf.get()), NID_commonName, common, sizeof common);
  EXPECT_STREQ(common, "a.test");
  EXPECT_EQ(X509_get_key_usage(leaf.get()), uint32_t{KU_DIGITAL_SIGNATURE});
  EXPECT_EQ(X509_get_extended_key_usage(leaf.get()), uint32_t{XKU_SSL_SERVER});
  EXPECT_EQ(X509_check_ca(leaf.get()), 0);
  int days = 0;
  int seconds = 0;
  ASSERT_EQ(ASN1_TIME_diff(&days, &seconds, X509_get0_notBefore(leaf.get()), X509_get0_notAfter(leaf.get())), 1);
  EXPECT_LE(days, 8);
  for (int i = 0; i < 4; ++i) {
    Client again;
    ASSERT_TRUE(again.Connect(one.bed, To("a.test", one.origin.port())));
    EXPECT_EQ(X509_cmp(again.leaf().get(), leaf.get()), 0) << "each worker shows the same";
  }
}

TEST(Tls, ALiteralsLeafHasItsAddress) {
  Origin origin(SharedAuthority().ServerContext("IP:127.0.0.1"), Echo);
  Testbed bed(LoopbackRule(fmt::format("http 127.0.0.1:{}", origin.port())));
  Client client;
  ASSERT_TRUE(client.Connect(bed, To("", origin.port())));
  EXPECT_EQ(AlternativeNames(client.leaf().get()), std::vector<std::string>{std::string("IP:\x7f\0\0\x01", 7)});
}

EngineOptions Mirroring() {
  EngineOptions options;
  options.mirror_certificates = true;
  return options;
}

std::string SubjectOf(X509* cert) {
  char line[256] = {};
  X509_NAME_oneline(X509_get_subject_name(cert), line, sizeof line);
  return line;
}

TEST(Tls, AMirroredLeafHasTheUpstreamsSubjectAndTheNamesThatCoverTheAskedOne) {
  Origin origin(SharedAuthority().ServerContext("DNS:b.test,DNS:*.a.test,DNS:X.a.test,DNS:*.b.test,IP:127.0.0.1"), Echo);
  Testbed bed(LoopbackRule(fmt::format("http *.a.test:{}/**", origin.port())), Mirroring());
  for (const char* alpn : {"", "\x02h2\x08http/1.1"}) {
    Client client;
    SSL_CTX_set_alpn_protos(client.context.get(), reinterpret_cast<const unsigned char*>(alpn),
                            static_cast<unsigned>(std::string_view(alpn).size()));
    ASSERT_TRUE(client.Connect(bed, To("x.a.test", origin.port())));
    const CertPtr leaf = client.leaf();
    EXPECT_EQ(AlternativeNames(leaf.get()), (std::vector<std::string>{"DNS:*.a.test", "DNS:x.a.test"}));
    EXPECT_EQ(SubjectOf(leaf.get()), "/CN=Test origin");
    EXPECT_EQ(X509_get_key_usage(leaf.get()), uint32_t{KU_DIGITAL_SIGNATURE});
    EXPECT_EQ(X509_get_extended_key_usage(leaf.get()), uint32_t{XKU_SSL_SERVER});
    EXPECT_EQ(X509_check_ca(leaf.get()), 0);
  }
  // The connection that was made for its certificate carries the first request, and what it showed is kept.
  Peer peer = bed.Connect("x.a.test", origin.port());
  ASSERT_TRUE(peer.ok());
  peer.Write(fmt::format("GET /1 HTTP/1.1\r\nHost: x.a.test:{}\r\n\r\n", origin.port()));
  EXPECT_EQ(peer.ReadMessage().body, "GET /1 HTTP/1.1|");
  EXPECT_LE(origin.accepted(), 3);
  Client again;
  ASSERT_TRUE(again.Connect(bed, To("x.a.test", origin.port())));
  Client other;
  ASSERT_TRUE(other.Connect(bed, To("x.a.test", origin.port())));
  EXPECT_EQ(X509_cmp(again.leaf().get(), other.leaf().get()), 0) << "one leaf for a name and a certificate";
}

TEST(Tls, AMirroredLeafOfALiteralHasItsAddressAlone) {
  Origin origin(SharedAuthority().ServerContext("DNS:a.test,IP:10.0.0.1,IP:127.0.0.1"), Echo);
  Testbed bed(LoopbackRule(fmt::format("http 127.0.0.1:{}/**", origin.port())), Mirroring());
  Client client;
  ASSERT_TRUE(client.Connect(bed, To("", origin.port())));
  EXPECT_EQ(AlternativeNames(client.leaf().get()), (std::vector<std::string>{std::string("IP:\x7f\0\0\x01", 7)}));
  EXPECT_EQ(SubjectOf(client.leaf().get()), "/CN=Test origin");
}

TEST(Tls, NothingIsMirroredOfAnUpstreamThatDoesNotVerify) {
  // Neither a certificate for another name nor one of a stranger.
  TestAuthority stranger;
  for (auto context : {SharedAuthority().ServerContext("DNS:b.test"), stranger.ServerContext("DNS:a.test")}) {
    Origin origin(context, Echo);
    Testbed bed(LoopbackRule(fmt::format("http a.test:{}/**", origin.port())), Mirroring());
    Client client;
    ASSERT_TRUE(client.Connect(bed, To("a.test", origin.port())));
    EXPECT_EQ(AlternativeNames(client.leaf().get()), std::vector<std::string>{"DNS:a.test"});
    EXPECT_EQ(SubjectOf(client.leaf().get()), "/O=Sluice/CN=a.test");
    ASSERT_TRUE(client.Write(Get("/", origin.port())));
    EXPECT_TRUE(client.Read().starts_with("HTTP/1.1 502 "));
  }
}

TEST(Tls, NothingIsMetForAConnectionThatIsRefused) {
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), Echo);
  Testbed bed(fmt::format("  - allow: http a.test:{}/**\n", origin.port()), Mirroring());  // 127.0.0.1 is not unlocked
  Client client;
  ASSERT_TRUE(client.Connect(bed, To("a.test", origin.port())));
  EXPECT_EQ(SubjectOf(client.leaf().get()), "/O=Sluice/CN=a.test");
  EXPECT_EQ(origin.accepted(), 0);
}

TEST(Tls, NothingIsResumedSentEarlyOrNegotiatedAgain) {
  OneOrigin one(Echo);
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    Client client;
    SSL_CTX_set_max_proto_version(client.context.get(), version);
    SSL_CTX_set_session_cache_mode(client.context.get(), SSL_SESS_CACHE_CLIENT);
    ASSERT_TRUE(client.Connect(one.bed, To("a.test", one.origin.port())));
    ASSERT_TRUE(client.Write(Get("/x", one.origin.port())));
    EXPECT_TRUE(client.Read().starts_with("HTTP/1.1 200 "));
    SSL_SESSION* const session = SSL_get0_session(client.ssl.get());
    EXPECT_EQ(SSL_SESSION_has_ticket(session), 0) << version;
    EXPECT_EQ(SSL_SESSION_get_max_early_data(session), 0u) << version;
    unsigned id_size = 0;
    SSL_SESSION_get_id(session, &id_size);
    EXPECT_EQ(id_size, 0u) << version;
    if (version == TLS1_2_VERSION) {
      EXPECT_EQ(SSL_renegotiate(client.ssl.get()), 1);
      EXPECT_NE(SSL_do_handshake(client.ssl.get()), 1) << "the client asked to negotiate again";
      ERR_clear_error();
    }
  }
}

int AddEch(SSL* /*ssl*/, unsigned /*type*/, unsigned /*context*/, const unsigned char** out, size_t* size, X509* /*cert*/,
           size_t /*index*/, int* /*alert*/, void* /*arg*/) {
  // As browsers send it to everybody (draft-ietf-tls-esni, section 6.2): nobody can tell it from one that means it.
  static constexpr unsigned char kGrease[] = {0, 0, 1, 0, 1, 0x2a, 0, 0, 0, 4, 1, 2, 3, 4};
  *out = kGrease;
  *size = sizeof kGrease;
  return 1;
}

/// Cipher suites and extensions of a ClientHello that came whole in one record.
struct Hello {
  ClientHello parsed;
  std::vector<int> suites;
  std::map<int, std::string> extensions;
};

Hello Read(const std::string& bytes) {
  Hello hello;
  hello.parsed = ParseClientHello(bytes).hello;
  size_t at = 5 + 4 + 2 + 32;
  const auto number = [&](size_t size) {
    int value = 0;
    for (; size != 0; --size) value = value << 8 | static_cast<unsigned char>(bytes.at(at++));
    return value;
  };
  at += static_cast<size_t>(number(1));
  for (int left = number(2); left != 0; left -= 2) hello.suites.push_back(number(2));
  at += static_cast<size_t>(number(1));
  for (const size_t end = at + 2 + static_cast<size_t>(number(2)); at < end;) {
    const int type = number(2);
    const auto size = static_cast<size_t>(number(2));
    hello.extensions[type] = bytes.substr(at, size);
    at += size;
  }
  return hello;
}

TEST(Tls, TheHelloToAnUpstreamIsOneOfManyAndCarriesNothingOfTheClients) {
  std::promise<std::string> came;
  std::atomic_flag told;
  Origin origin(nullptr, [&](Peer peer) {
    std::string bytes;
    while (ParseClientHello(bytes).status == HelloStatus::kNeedMore) {
      const std::string more = peer.ReadSome();
      if (more.empty()) break;
      bytes += more;
    }
    if (!told.test_and_set()) came.set_value(bytes);
  });
  Testbed bed(LoopbackRule(fmt::format("GET a.test:{}/**", origin.port())));
  Client client;
  ASSERT_EQ(SSL_CTX_add_custom_ext(client.context.get(), kExtensionEch, SSL_EXT_CLIENT_HELLO, AddEch, nullptr, nullptr, nullptr,
                                   nullptr),
            1);
  ASSERT_TRUE(client.Connect(bed, To("a.test", origin.port()))) << "its outer name is the connection's";
  ASSERT_TRUE(client.Write(Get("/x", origin.port())));
  auto bytes = came.get_future();
  ASSERT_EQ(bytes.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  const Hello hello = Read(bytes.get());
  EXPECT_EQ(hello.parsed.sni, "a.test");
  EXPECT_FALSE(hello.extensions.contains(kExtensionEch));
  EXPECT_FALSE(hello.extensions.contains(kExtensionEarlyData));
  EXPECT_EQ(hello.extensions.at(kExtensionVersions), std::string("\x04\x03\x04\x03\x03", 5));
  EXPECT_EQ(hello.extensions.at(kExtensionGroups), std::string("\x00\x06\x00\x1d\x00\x17\x00\x18", 8)) << "X25519, P-256, P-384";
  // AEAD suites, and the mark against renegotiation in one of its two forms (RFC 5746).
  std::vector<int> suites = hello.suites;
  const bool marked = std::erase(suites, 0x00ff) == 1 || hello.extensions.contains(kExtensionRenegotiation);
  EXPECT_TRUE(marked);
  EXPECT_EQ(suites, (std::vector<int>{0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8}));
  // Certificate status, session ticket, encrypt-then-MAC, extended master secret and the like: all of them common.
  constexpr int kCommon[] = {0, 5, 10, 11, 13, 16, 21, 22, 23, 35, 43, 45, 51, kExtensionRenegotiation};
  for (const auto& [type, body] : hello.extensions) EXPECT_NE(std::ranges::find(kCommon, type), std::end(kCommon)) << type;
}

}  // namespace
}  // namespace sluice::proxy::testing
