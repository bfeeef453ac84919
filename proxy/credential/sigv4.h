#pragma once

// AWS Signature Version 4: the workload signs with keys that mean nothing, and its request is signed anew with the real ones, in
// the form it chose (Authorization field or presigned query). What was signed is read from the workload's own signature; the rest
// is computed from what is sent. Hashes come from outside, so that this stays free of any library.
//
// Not signed anew: chunk-signed bodies (STREAMING-AWS4-…), whose every chunk carries a signature, and asymmetric signatures
// (AWS4-ECDSA-P256-SHA256). Both are refused with their reason.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "proxy/credential/inject.h"

namespace sluice::proxy {

inline constexpr size_t kMaxSignedBody = size_t{4} << 20;  ///< a body that must be hashed before its head can be sent

using Sha256Digest = std::array<uint8_t, 32>;
struct HashFunctions {
  Sha256Digest (*sha256)(std::string_view bytes);
  Sha256Digest (*hmac_sha256)(std::string_view key, std::string_view bytes);
};

/// "id:key" or "id:key:session token". Views into `secret`. kInvalid says what is missing.
struct AwsKeys {
  std::string_view id;
  std::string_view key;
  std::string_view token;
};
[[nodiscard]] Result<AwsKeys> ParseAwsKeys(std::string_view secret);

/// What the workload's own signature says.
struct WorkloadSignature {
  enum class Place : uint8_t { kNone, kHeader, kQuery };
  Place place = Place::kNone;
  std::string region;
  std::string service;
  std::string signed_headers;  ///< "host;x-amz-date", lower case
  std::string payload_hash;    ///< as declared; empty: it was computed over the body and is not in the request
};
/// kInvalid: a signature that cannot be read, or a kind that is not signed anew; the message is a sentence about the request.
[[nodiscard]] Result<WorkloadSignature> ReadSignature(const OutgoingHead& head);

/// What payload hash to sign with.
enum class PayloadHash : uint8_t {
  kDeclared,  ///< WorkloadSignature::payload_hash
  kOfBody,    ///< the body must be read, at most kMaxSignedBody, and hashed
  kUnsigned,  ///< "UNSIGNED-PAYLOAD"
};
[[nodiscard]] PayloadHash PayloadHashFor(const WorkloadSignature& signature, std::string_view service);

struct SignRequest {
  std::string_view method;
  std::string_view host;     ///< as it is sent
  std::string_view region;   ///< empty: as the workload signed
  std::string_view service;  ///< the same
  int64_t now = 0;           ///< seconds since 1970, UTC
  /// Lower-case hexadecimal, or a word such as "UNSIGNED-PAYLOAD".
  std::string_view payload_hash;
};
/// Replaces the signature in `head`: Authorization or the X-Amz-… parameters, the date and the session token. kInvalid: no region
/// or service is known, or a request that the workload did not sign at all and no region and service are given.
[[nodiscard]] Result<void> SignAnew(const SignRequest& request, const WorkloadSignature& signature, const AwsKeys& keys,
                                    const HashFunctions& hash, OutgoingHead* head);

/// For tests and for whoever compares: the canonical request that is signed, `signed_headers` lower case and sorted.
[[nodiscard]] std::string CanonicalRequest(std::string_view method, std::string_view target, std::string_view service,
                                           std::string_view host, const OutgoingHead& head, std::string_view signed_headers,
                                           std::string_view payload_hash);

}  // namespace sluice::proxy
