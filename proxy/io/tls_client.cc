// The client side: roots, names, pins, client certificates, sessions.

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <algorithm>
#include <future>
#include <mutex>

#include "base/keyed_hash.h"
#include "proxy/io/tls.h"
#include "proxy/io/tls_context.h"

namespace sluice::proxy {
namespace {

constexpr int kSecurityLevel = 2;  // of certificates and keys of upstreams
// What common clients offer, and no more: a hello that stands out is told from theirs.
constexpr char kGroups[] = "X25519:P-256:P-384";
constexpr char kSignatures[] =
    "ECDSA+SHA256:RSA-PSS+SHA256:RSA+SHA256:ECDSA+SHA384:RSA-PSS+SHA384:RSA+SHA384:RSA-PSS+SHA512:RSA+SHA512:ECDSA+SHA512:"
    "ed25519";
constexpr size_t kMaxRootFiles = 64;  ///< kept as read, one per `ca_file` of an upstream proxy

using StorePtr = std::unique_ptr<X509_STORE, SslDeleter<X509_STORE_free>>;

/// What a session of ours carries along, until it is freed.
struct Carried {
  std::string session_key;
  std::vector<SpkiPin> pins;
  std::string shown;  ///< a chain without a pinned key: the pin that would fit the server's own certificate
};

void FreeCarried(void* /*ssl*/, void* data, CRYPTO_EX_DATA* /*all*/, int /*index*/, long /*number*/, void* /*argument*/) {
  delete static_cast<Carried*>(data);
}

int CarriedIndex() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, FreeCarried);
  return index;
}

Carried* CarriedBy(const SSL* ssl) { return static_cast<Carried*>(SSL_get_ex_data(ssl, CarriedIndex())); }

SpkiPin PinOf(X509* certificate) {
  SpkiPin pin{};
  unsigned char* der = nullptr;
  const int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &der);
  if (size > 0) SHA256(der, static_cast<size_t>(size), pin.data());
  OPENSSL_free(der);
  return pin;
}

// Called for each certificate from the root to the server's own, which comes last and after every other check: within the
// handshake, so that a server without a pinned key is shown no client certificate.
int VerifyPins(int verified, X509_STORE_CTX* store) {
  if (verified != 1 || X509_STORE_CTX_get_error_depth(store) != 0) return verified;
  const auto* ssl = static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  Carried* const carried = ssl != nullptr ? CarriedBy(ssl) : nullptr;
  STACK_OF(X509)* const chain = X509_STORE_CTX_get0_chain(store);
  std::vector<SpkiPin> keys;
  keys.reserve(static_cast<size_t>(std::max(sk_X509_num(chain), 0)));
  for (int i = 0; i < sk_X509_num(chain); ++i) keys.push_back(PinOf(sk_X509_value(chain, i)));
  if (carried != nullptr && AnyPinned(carried->pins, keys)) return 1;
  if (carried != nullptr && !keys.empty()) carried->shown = SpkiPinText(keys.front());
  X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
  return 0;
}

// The certificates of the text in their order, and its key. What is wrong is said without a word of the text.
Result<void> UseCertificate(SSL* ssl, const std::string& pem) {
  const auto bad = [](std::string_view what) { return Fail(Code::kInvalid, fmt::format("the client certificate {}", what)); };
  ERR_clear_error();
  const BioPtr certificates(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const BioPtr keys(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  if (!certificates || !keys) return TlsFail("out of memory");
  const CertPtr own(PEM_read_bio_X509(certificates.get(), nullptr, NoPassword, nullptr));
  if (!own) return bad("has no PEM certificate");
  if (SSL_use_certificate(ssl, own.get()) != 1) return bad(fmt::format("cannot be used: {}", TakeSslError()));
  for (;;) {
    const CertPtr next(PEM_read_bio_X509(certificates.get(), nullptr, NoPassword, nullptr));
    if (!next) break;
    if (SSL_add1_chain_cert(ssl, next.get()) != 1) return bad("has a chain that cannot be used");
  }
  ERR_clear_error();
  const KeyPtr key(PEM_read_bio_PrivateKey(keys.get(), nullptr, NoPassword, nullptr));
  if (!key) return bad("has no PEM key, or one with a password");
  if (SSL_use_PrivateKey(ssl, key.get()) != 1 || SSL_check_private_key(ssl) != 1)
    return bad("has the key of another certificate");
  ERR_clear_error();
  return {};
}

class Client final : public TlsClient {
 public:
  explicit Client(std::vector<std::string> ca_files) : ca_files_(std::move(ca_files)) {
    // What has nothing to read has nothing to complain about: it is set up by the first handshake, which many a run never makes.
    // Without a thread to be had it is done by whoever needs it first.
    if (!ca_files_.empty()) beside_ = std::async(std::launch::async | std::launch::deferred, [this] { SetUpOnce(); });
  }
  ~Client() override {
    if (beside_.valid()) beside_.wait();
    for (auto& [key, session] : sessions_) SSL_SESSION_free(session);
  }

  Result<void> Ready() override {
    if (ca_files_.empty()) return {};
    SetUpOnce();
    return set_up_;
  }

  SSL_CTX* context() override {
    SetUpOnce();
    return context_.get();
  }

  Result<void> Prepare(SSL* ssl, const TlsOffer& offer) override {
    if (const auto rooted = SetRoots(ssl, offer.roots_file); !rooted) return rooted;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    const bool named =
        offer.name.empty()
            ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), offer.literal.ToString().c_str()) == 1
            : SSL_set1_host(ssl, offer.name.c_str()) == 1 && SSL_set_tlsext_host_name(ssl, offer.name.c_str()) == 1;
    if (!named) return TlsFail("cannot set the name to verify");
    if (!OfferAlpn(ssl, offer.alpn)) return TlsFail("cannot set ALPN");
    if (!offer.certificate.empty())
      if (const auto used = UseCertificate(ssl, offer.certificate); !used) return used;
    auto carried = std::make_unique<Carried>(Carried{offer.session_key, offer.pins, {}});
    if (SSL_set_ex_data(ssl, CarriedIndex(), carried.get()) != 1) return TlsFail("out of memory");
    Carried* const kept = carried.release();
    if (!kept->pins.empty()) SSL_set_verify(ssl, SSL_VERIFY_PEER, VerifyPins);
    // A session was made under the same key, so with the same pins and certificate: its chain was verified with them.
    const std::lock_guard lock(mutex_);
    if (const auto found = sessions_.find(kept->session_key); found != sessions_.end()) SSL_set_session(ssl, found->second);
    return {};
  }

 private:
  void SetUpOnce() {
    std::call_once(setup_once_, [this] {
      set_up_ = SetUp();
      if (!set_up_) context_.reset();
    });
  }

  Result<void> SetUp() {
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
        SSL_CTX_set1_groups_list(c, kGroups) != 1 || SSL_CTX_set1_sigalgs_list(c, kSignatures) != 1)
      return TlsFail("cannot set up TLS");
    for (const auto& file : ca_files_) {
      if (SSL_CTX_load_verify_file(c, file.c_str()) != 1)
        return Fail(Code::kInvalid, fmt::format("cannot read certificates from {}: {}", file, TakeSslError()));
    }
    SSL_CTX_set_app_data(c, this);
    return {};
  }

  Result<void> SetRoots(SSL* ssl, const std::string& file) {
    if (file.empty()) {
      // Reading the system's roots takes some ten milliseconds, which a run that never speaks TLS upstream need not wait for.
      // Every handshake comes by here first, so the store is whole before anything is verified.
      std::call_once(roots_once_, [this] { roots_read_ = SSL_CTX_set_default_verify_paths(context_.get()) == 1; });
      if (!roots_read_) return TlsFail("cannot read the system's roots");
      return {};
    }
    const std::lock_guard lock(mutex_);
    struct stat now{};
    if (stat(file.c_str(), &now) != 0) return FailErrno(fmt::format("cannot read certificates from {}", file), errno);
    Roots& roots = roots_[file];
    const bool same = roots.store && roots.inode == now.st_ino && roots.changed.tv_sec == now.st_mtim.tv_sec &&
                      roots.changed.tv_nsec == now.st_mtim.tv_nsec;
    if (!same) {
      ERR_clear_error();
      StorePtr store(X509_STORE_new());
      if (!store || X509_STORE_load_file(store.get(), file.c_str()) != 1) {
        roots_.erase(file);
        return Fail(Code::kInvalid, fmt::format("cannot read certificates from {}: {}", file, TakeSslError()));
      }
      roots = {std::move(store), now.st_ino, now.st_mtim};
    }
    const bool set = SSL_set1_verify_cert_store(ssl, roots.store.get()) == 1;
    if (roots_.size() > kMaxRootFiles) roots_.clear();
    if (!set) return TlsFail("cannot set the roots");
    return {};
  }

  static int OnNewSession(SSL* ssl, SSL_SESSION* session) {
    auto* self = static_cast<Client*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
    const Carried* const carried = CarriedBy(ssl);
    if (carried == nullptr || carried->session_key.empty() || SSL_SESSION_is_resumable(session) != 1) return 0;
    const std::lock_guard lock(self->mutex_);
    auto& sessions = self->sessions_;
    if (sessions.size() >= kMaxUpstreamSessions && !sessions.contains(carried->session_key)) {
      SSL_SESSION_free(sessions.begin()->second);
      sessions.erase(sessions.begin());
    }
    auto [slot, fresh] = sessions.try_emplace(carried->session_key, session);
    if (!fresh) {
      SSL_SESSION_free(slot->second);
      slot->second = session;
    }
    return 1;
  }

  struct Roots {
    StorePtr store;
    ino_t inode = 0;
    timespec changed{};
  };

  const std::vector<std::string> ca_files_;
  std::once_flag setup_once_;
  Result<void> set_up_;
  ContextPtr context_;
  std::once_flag roots_once_;
  bool roots_read_ = false;
  std::mutex mutex_;
  KeyedMap<std::string, Roots> roots_;
  KeyedMap<std::string, SSL_SESSION*> sessions_;
  std::future<void> beside_;
};

}  // namespace

std::unique_ptr<TlsClient> TlsClient::Begin(std::vector<std::string> ca_files) {
  return std::make_unique<Client>(std::move(ca_files));
}

bool CertificateWasRefused(SSL* ssl) { return SSL_get_verify_result(ssl) != X509_V_OK; }

std::string DescribeHandshakeFailure(SSL* ssl) {
  const long verify = SSL_get_verify_result(ssl);
  if (verify == X509_V_OK) return TakeSslError();
  ERR_clear_error();
  if (const Carried* const carried = CarriedBy(ssl); carried != nullptr && !carried->shown.empty())
    return fmt::format("no key of its chain is one that the rule pins; its own is {}", carried->shown);
  return X509_verify_cert_error_string(verify);
}

}  // namespace sluice::proxy
