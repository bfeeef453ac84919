#include "proxy/io/mirror.h"

#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cstring>

#include "proxy/certificate_name.h"
#include "proxy/io/tls_context.h"

namespace sluice::proxy {
namespace {

using NamesPtr = std::unique_ptr<GENERAL_NAMES, SslDeleter<GENERAL_NAMES_free>>;

std::string_view View(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)), static_cast<size_t>(ASN1_STRING_length(text))};
}

std::string Lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return out;
}

// Empty where it does not cover what was asked.
std::string CoveringName(const GENERAL_NAME& alternative, const std::string& name, const IpAddress& literal) {
  if (alternative.type == GEN_DNS && !name.empty()) {
    const std::string_view shown = View(alternative.d.dNSName);
    return CoversHost(shown, name) ? "DNS:" + Lowered(shown) : "";
  }
  if (alternative.type != GEN_IPADD || !name.empty()) return "";
  const std::string_view shown = View(alternative.d.iPAddress);
  const std::string text = literal.ToString();
  ASN1_OCTET_STRING* const own = a2i_IPADDRESS(text.c_str());
  const bool same = own != nullptr && View(own) == shown;
  ASN1_OCTET_STRING_free(own);
  return same ? "IP:" + text : "";
}

std::string SubjectOf(X509* certificate) {
  unsigned char* der = nullptr;
  const int size = i2d_X509_NAME(X509_get_subject_name(certificate), &der);
  std::string subject;
  if (size > 0 && static_cast<size_t>(size) <= kMaxMirroredSubject)
    subject.assign(reinterpret_cast<const char*>(der), static_cast<size_t>(size));
  OPENSSL_free(der);
  return subject;
}

}  // namespace

MirroredPtr MirroredFrom(const SSL* ssl, const std::string& name, const IpAddress& literal) {
  X509* const certificate = SSL_get0_peer_certificate(ssl);
  if (certificate == nullptr || SSL_get_verify_result(ssl) != X509_V_OK) return nullptr;
  auto mirrored = std::make_shared<MirroredNames>();
  mirrored->subject = SubjectOf(certificate);
  if (mirrored->subject.empty()) return nullptr;
  const NamesPtr names(static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    std::string covering = CoveringName(*sk_GENERAL_NAME_value(names.get(), i), name, literal);
    if (!covering.empty() && std::ranges::find(mirrored->names, covering) == mirrored->names.end())
      mirrored->names.push_back(std::move(covering));
  }
  if (mirrored->names.empty()) return nullptr;
  return mirrored;
}

MirroredPtr MirrorCache::Find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(key);
  return found != kept_.end() ? found->second : nullptr;
}

void MirrorCache::Remember(const std::string& key, MirroredPtr mirrored) {
  const std::lock_guard lock(mutex_);
  if (kept_.size() >= kMaxMirrored && !kept_.contains(key)) kept_.clear();
  kept_[key] = std::move(mirrored);
}

}  // namespace sluice::proxy
