#include "tests/proxy/testbed.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include "base/random.h"
#include "policy/io/load.h"

namespace sluice::proxy::testing {
namespace {

UniqueFd Listen(uint16_t* port) {
  // For OpenSSL's writes on the test's own ends.
  std::signal(SIGPIPE, SIG_IGN);
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(fd.get(), 1024) != 0) std::abort();
  socklen_t size = sizeof address;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  *port = ntohs(address.sin_port);
  return fd;
}

void LimitReads(int fd) {
  const timeval limit{10, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::string TempFile(const std::string& suffix, const std::string& text) {
  const char* tmp = std::getenv("TMPDIR");
  std::string path = fmt::format("{}/sluice-proxy-{}{}", tmp != nullptr ? tmp : "/tmp", RandomHex(8), suffix);
  std::ofstream(path) << text;
  return path;
}

void Extend(X509* cert, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, cert, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  X509_add_ext(cert, extension, -1);
  X509_EXTENSION_free(extension);
}

X509* NewCertificate(EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key, const std::string& alternatives) {
  X509* cert = X509_new();
  X509_set_version(cert, X509_VERSION_3);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(cert), RandomU64() >> 2);
  X509_gmtime_adj(X509_getm_notBefore(cert), -60);
  X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
  X509_set_pubkey(cert, key);
  const std::string name = issuer == nullptr ? "Test root " + RandomHex(4) : "Test origin";
  X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509* const signer = issuer != nullptr ? issuer : cert;
  X509_set_issuer_name(cert, X509_get_subject_name(signer));
  Extend(cert, signer, NID_basic_constraints, issuer == nullptr ? "critical,CA:TRUE" : "critical,CA:FALSE");
  if (issuer != nullptr) Extend(cert, signer, NID_subject_alt_name, alternatives);
  X509_sign(cert, issuer_key, EVP_sha256());
  return cert;
}

int InsistOnH2(SSL* /*ssl*/, const unsigned char** out, unsigned char* size, const unsigned char* in, unsigned in_size,
               void* /*arg*/) {
  static constexpr unsigned char kH2[] = {2, 'h', '2'};
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, size, kH2, sizeof kH2, in, in_size) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

Peer::Peer(Peer&& other) noexcept
    : fd_(std::move(other.fd_)),
      ssl_(std::exchange(other.ssl_, nullptr)),
      pending_(std::move(other.pending_)),
      was_reset_(other.was_reset_) {}

Peer& Peer::operator=(Peer&& other) noexcept {
  Close();
  fd_ = std::move(other.fd_);
  ssl_ = std::exchange(other.ssl_, nullptr);
  pending_ = std::move(other.pending_);
  was_reset_ = other.was_reset_;
  return *this;
}

Peer::~Peer() { Close(); }

void Peer::Close() {
  if (ssl_ != nullptr) {
    if (fd_.valid()) SSL_shutdown(ssl_);
    SSL_free(ssl_);
    ssl_ = nullptr;
  }
  fd_.Reset();
}

void Peer::Reset() {
  const linger hard{1, 0};
  setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  SSL_free(ssl_);
  ssl_ = nullptr;
  fd_.Reset();
}

bool Peer::resumed() const { return ssl_ != nullptr && SSL_session_reused(ssl_) == 1; }

std::string Peer::alpn() const {
  const unsigned char* name = nullptr;
  unsigned size = 0;
  if (ssl_ != nullptr) SSL_get0_alpn_selected(ssl_, &name, &size);
  return {reinterpret_cast<const char*>(name), size};
}

void Peer::CloseWrite() {
  if (ssl_ != nullptr) SSL_shutdown(ssl_);
  shutdown(fd_.get(), SHUT_WR);
}

bool Peer::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ssl_ != nullptr ? SSL_write(ssl_, bytes.data(), static_cast<int>(std::min<size_t>(bytes.size(), 1 << 20)))
                                      : send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

std::string Peer::ReadSome() {
  if (!pending_.empty()) return std::exchange(pending_, {});
  if (!fd_.valid()) return {};
  char buffer[65536];
  errno = 0;
  const ssize_t n = ssl_ != nullptr ? SSL_read(ssl_, buffer, sizeof buffer) : recv(fd_.get(), buffer, sizeof buffer, 0);
  if (n <= 0) was_reset_ = errno == ECONNRESET;
  return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : std::string();
}

std::string Peer::ReadUntil(std::string_view mark) {
  std::string text;
  for (;;) {
    const std::string more = ReadSome();
    if (more.empty()) return {};
    text += more;
    const size_t at = text.find(mark);
    if (at == std::string::npos) continue;
    pending_ = text.substr(at + mark.size());
    return text.substr(0, at + mark.size());
  }
}

std::string Peer::ReadExactly(size_t n) {
  std::string text;
  while (text.size() < n) {
    const std::string more = ReadSome();
    if (more.empty()) return text;
    text += more;
  }
  pending_ = text.substr(n);
  return text.substr(0, n);
}

std::string Peer::ReadToEnd() {
  std::string text;
  for (std::string more = ReadSome(); !more.empty(); more = ReadSome()) text += more;
  return text;
}

std::string Peer::Message::Field(std::string_view lower_name) const {
  size_t at = head.find("\r\n");
  while (at != std::string::npos && at + 2 < head.size()) {
    const size_t end = head.find("\r\n", at + 2);
    const std::string line = head.substr(at + 2, end - at - 2);
    const size_t colon = line.find(':');
    std::string name = line.substr(0, colon);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (colon != std::string::npos && name == lower_name)
      return line.substr(std::min(line.find_first_not_of(' ', colon + 1), line.size()));
    at = end;
  }
  return {};
}

Peer::Message Peer::ReadMessage(Body body) {
  Message message;
  message.head = ReadUntil("\r\n\r\n");
  if (message.head.empty() || body == Body::kNone) return message;
  if (message.Field("transfer-encoding") == "chunked") {
    for (;;) {
      const std::string line = ReadUntil("\r\n");
      if (line.empty()) return message;
      const size_t size = std::stoul(line, nullptr, 16);
      if (size == 0) break;
      message.body += ReadExactly(size);
      ReadExactly(2);
    }
    for (std::string line = ReadUntil("\r\n"); line.size() > 2; line = ReadUntil("\r\n")) message.trailers += line;
    return message;
  }
  if (const std::string length = message.Field("content-length"); !length.empty()) message.body = ReadExactly(std::stoul(length));
  return message;
}

struct TestAuthority::State {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* cert = nullptr;
  EVP_PKEY* leaf_key = EVP_EC_gen("P-256");
};

TestAuthority::TestAuthority() : state_(std::make_unique<State>()) {
  state_->cert = NewCertificate(state_->key, nullptr, state_->key, "");
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(bio, state_->cert);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  file_ = TempFile(".pem", std::string(data, static_cast<size_t>(size)));
  BIO_free(bio);
}

TestAuthority::~TestAuthority() {
  std::remove(file_.c_str());
  X509_free(state_->cert);
  EVP_PKEY_free(state_->key);
  EVP_PKEY_free(state_->leaf_key);
}

std::shared_ptr<SSL_CTX> TestAuthority::ServerContext(const std::string& alternatives, const std::string& alpn) const {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  X509* cert = NewCertificate(state_->leaf_key, state_->cert, state_->key, alternatives);
  SSL_CTX_use_certificate(context.get(), cert);
  SSL_CTX_use_PrivateKey(context.get(), state_->leaf_key);
  X509_free(cert);
  if (alpn == "h2") SSL_CTX_set_alpn_select_cb(context.get(), InsistOnH2, nullptr);
  return context;
}

TestAuthority& SharedAuthority() {
  static TestAuthority authority;
  return authority;
}

Origin::Origin(std::shared_ptr<SSL_CTX> tls, std::function<void(Peer)> serve)
    : tls_(std::move(tls)), serve_(std::move(serve)), listener_(Listen(&port_)), thread_([this] { Run(); }) {}

Origin::~Origin() {
  stop_ = true;
  shutdown(listener_.get(), SHUT_RDWR);
  thread_.join();
  for (auto& thread : serving_) thread.join();
}

void Origin::Run() {
  while (!stop_) {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd) continue;
    ++accepted_;
    LimitReads(fd.get());
    serving_.emplace_back([this, moved = std::move(fd)]() mutable {
      SSL* ssl = nullptr;
      if (tls_ != nullptr) {
        ssl = SSL_new(tls_.get());
        SSL_set_fd(ssl, moved.get());
        if (SSL_accept(ssl) != 1) {
          SSL_free(ssl);
          return;
        }
      }
      serve_(Peer(std::move(moved), ssl));
    });
  }
}

TestResolver::TestResolver() : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::abort();
  socklen_t size = sizeof address;
  getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Run(); });
}

TestResolver::~TestResolver() {
  stop_ = true;
  thread_.join();
}

void TestResolver::Answer(const std::string& name, uint32_t v4) {
  const std::lock_guard lock(mutex_);
  answers_[name] = v4;
}

std::string TestResolver::Reply(std::string_view question) {
  std::string name;
  size_t at = 12;
  while (at < question.size() && question[at] != 0) {
    const auto size = static_cast<unsigned char>(question[at]);
    if (!name.empty()) name += '.';
    name += question.substr(at + 1, size);
    at += size + 1u;
  }
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const size_t end = at + 5;
  if (end > question.size()) return {};
  const bool wants_a = question[at + 2] == 1;
  std::string reply(question.substr(0, end));
  reply[2] = static_cast<char>(0x81);
  reply[3] = static_cast<char>(name == "missing.test" ? 0x83 : 0x80);
  for (size_t i = 4; i < 12; ++i) reply[i] = 0;
  reply[5] = 1;
  if (!wants_a || name == "missing.test") return reply;
  uint32_t v4 = 0x7f000001;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = answers_.find(name); found != answers_.end()) v4 = found->second;
  }
  reply[7] = 1;
  reply += std::string("\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04", 12);
  for (int shift = 24; shift >= 0; shift -= 8) reply += static_cast<char>(v4 >> shift);
  return reply;
}

void TestResolver::Run() {
  while (!stop_) {
    pollfd wait{fd_.get(), POLLIN, 0};
    if (poll(&wait, 1, 50) <= 0) continue;
    char buffer[1500];
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const ssize_t n = recvfrom(fd_.get(), buffer, sizeof buffer, 0, reinterpret_cast<sockaddr*>(&from), &size);
    if (n < 17) continue;
    ++questions_;
    const std::string reply = Reply({buffer, static_cast<size_t>(n)});
    sendto(fd_.get(), reply.data(), reply.size(), 0, reinterpret_cast<sockaddr*>(&from), size);
  }
}

bool KeepingSink::Record(policy::DecisionEvent event) noexcept {
  if (full) return false;
  const std::lock_guard lock(mutex_);
  decisions_.push_back(std::move(event));
  changed_.notify_all();
  return true;
}

bool KeepingSink::Record(policy::ExchangeEvent event) noexcept {
  if (full) return false;
  const std::lock_guard lock(mutex_);
  exchanges_.push_back(std::move(event));
  changed_.notify_all();
  return true;
}

std::string KeepingSink::NextDenialId() { return fmt::format("d-{}", ++ids_); }

std::vector<policy::DecisionEvent> KeepingSink::decisions() {
  const std::lock_guard lock(mutex_);
  return decisions_;
}

std::vector<policy::ExchangeEvent> KeepingSink::exchanges(size_t at_least) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::seconds(10), [&] { return exchanges_.size() >= at_least; });
  return exchanges_;
}

Testbed::Testbed(const std::string& rules, EngineOptions options) {
  auto process = std::make_shared<policy::Process>();
  process->pid = 4711;
  process->exe = {"/usr/bin/node", true, {}};
  process->ancestors = {{"/usr/bin/npm", true, {}}};
  process_ = process;
  policy_ = std::make_unique<policy::CurrentPolicy>(Load(rules));
  options.lookups.servers = {{.endpoint = resolver_.endpoint()}};
  options.upstream_ca_files = {SharedAuthority().file()};
  if (options.workers == 0) options.workers = 2;
  auto engine = Engine::Start(std::move(options), *policy_, sink_);
  if (!engine) {
    ADD_FAILURE() << engine.error().message;
    std::abort();
  }
  engine_ = std::move(*engine);
  client_.reset(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  BIO* bio = BIO_new_mem_buf(engine_->AuthorityPem().data(), static_cast<int>(engine_->AuthorityPem().size()));
  X509* root = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  X509_STORE_add_cert(SSL_CTX_get_cert_store(client_.get()), root);
  X509_free(root);
  BIO_free(bio);
  SSL_CTX_set_verify(client_.get(), SSL_VERIFY_PEER, nullptr);
}

Testbed::~Testbed() = default;

policy::SnapshotPtr Testbed::Load(const std::string& rules) {
  const std::string path = TempFile(".yaml", "version: 1\nname: test\nrules:\n" + rules);
  auto snapshot = policy::LoadFile(path, {.extra_allows = {}, .check_executables = false});
  std::remove(path.c_str());
  if (!snapshot) {
    ADD_FAILURE() << policy::RenderError(snapshot.error(), false) << rules;
    std::abort();
  }
  return *snapshot;
}

std::shared_ptr<SecretStore> SecretsOf(const std::string& rules,
                                       const std::vector<std::pair<const char*, const char*>>& variables) {
  for (const auto& [name, value] : variables) setenv(name, value, 1);
  auto store = std::make_shared<SecretStore>(SecretStoreOptions{});
  const auto snapshot = policy::LoadText("version: 1\nname: test\nrules:\n" + rules, "policy.yaml");
  EXPECT_TRUE(snapshot) << snapshot.error().message;
  const auto loaded = store->Load((*snapshot)->credentials());
  EXPECT_TRUE(loaded) << loaded.error().message;
  return store;
}

void Testbed::SetPolicy(const std::string& rules) {
  policy_->Set(Load(rules));
  engine_->PolicyChanged();
}

UniqueFd Testbed::ConnectRaw(FlowTarget target, uint64_t id) {
  uint16_t port = 0;
  const UniqueFd listener = Listen(&port);
  UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::abort();
  LimitReads(client.get());
  Flow flow;
  flow.id = id != 0 ? id : next_id_++;
  flow.downstream.Reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  flow.target = std::move(target);
  if (flow.target.process == nullptr) flow.target.process = process_;
  engine_->Accept(std::move(flow));
  return client;
}

Peer Testbed::Speaking(UniqueFd fd, Speak speak, const std::string& sni) {
  if (speak == Speak::kPlain) return {std::move(fd), nullptr};
  SSL* ssl = SSL_new(client_.get());
  SSL_set_fd(ssl, fd.get());
  if (!sni.empty()) {
    SSL_set_tlsext_host_name(ssl, sni.c_str());
    SSL_set1_host(ssl, sni.c_str());
  } else {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), "127.0.0.1");
  }
  if (SSL_connect(ssl) == 1) return {std::move(fd), ssl};
  ERR_clear_error();
  SSL_free(ssl);
  return {};
}

void Testbed::OfferAlpn(const std::vector<std::string>& protocols) {
  std::string wire;
  for (const std::string& protocol : protocols) wire += static_cast<char>(protocol.size()) + protocol;
  SSL_CTX_set_alpn_protos(client_.get(), reinterpret_cast<const unsigned char*>(wire.data()), static_cast<unsigned>(wire.size()));
}

Peer Testbed::Connect(const std::string& host, uint16_t port, Speak speak, std::string sni) {
  FlowTarget target;
  target.host = host;
  target.destination = {IpAddress::FromV4(0xc6120001), port};
  UniqueFd fd = ConnectRaw(std::move(target));
  return Speaking(std::move(fd), speak, sni.empty() ? host : sni);
}

Peer Testbed::ConnectLiteral(IpAddress address, uint16_t port, Speak speak) {
  FlowTarget target;
  target.destination = {address, port};
  UniqueFd fd = ConnectRaw(std::move(target));
  return Speaking(std::move(fd), speak, "");
}

std::string LoopbackRule(const std::string& verb_target) {
  return fmt::format("  - allow: {}\n    ip: [127.0.0.1/32]\n", verb_target);
}

void Echo(Peer peer) {
  for (;;) {
    const Peer::Message request = peer.ReadMessage();
    if (request.head.empty()) return;
    const std::string body = request.FirstLine() + "|" + request.body;
    if (!peer.Write(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Origin: yes\r\n\r\n{}", body.size(), body))) return;
  }
}

std::string Get(const std::string& path, uint16_t port, const std::string& fields) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: a.test:{}\r\n{}\r\n", path, port, fields);
}

OneOrigin::OneOrigin(std::function<void(Peer)> serve, const std::string& verb)
    : origin(SharedAuthority().ServerContext("DNS:a.test"), std::move(serve)),
      bed(LoopbackRule(fmt::format("{} a.test:{}/**", verb, origin.port()))) {}

}  // namespace sluice::proxy::testing
