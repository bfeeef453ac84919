#include "proxy/credential/sigv4.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/hex.h"
#include "proxy/credential/encoding.h"
#include "proxy/credential/secret.h"

namespace sluice::proxy {
namespace {

using Place = WorkloadSignature::Place;
using Pairs = std::vector<std::pair<std::string, std::string>>;

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";
constexpr std::string_view kStreamingUnsigned = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

std::string_view Bytes(const Sha256Digest& digest) { return {reinterpret_cast<const char*>(digest.data()), digest.size()}; }

template <class Visit>
void ForEachPart(std::string_view text, char separator, Visit visit) {
  for (;;) {
    const size_t end = text.find(separator);
    visit(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

std::string_view QueryOf(std::string_view target) {
  const size_t mark = target.find('?');
  return mark == std::string_view::npos ? std::string_view{} : target.substr(mark + 1);
}

std::string_view FieldValue(const OutgoingHead& head, std::string_view lower) {
  for (const Field& field : head.fields)
    if (EqualsLower(field.name, lower)) return field.value;
  return {};
}

// Decoded, and encoded again in the one way that is signed.
std::string Reencode(std::string_view raw) { return PercentEncode(PercentDecode(raw, Plus::kSpace)); }

Pairs CanonicalPairs(std::string_view query, std::string_view left_out) {
  Pairs pairs;
  if (query.empty()) return pairs;
  ForEachPart(query, '&', [&](std::string_view part) {
    if (part.empty()) return;
    const size_t equals = part.find('=');
    std::string name = Reencode(part.substr(0, equals));
    if (name == left_out) return;
    pairs.emplace_back(std::move(name), equals == std::string_view::npos ? "" : Reencode(part.substr(equals + 1)));
  });
  std::ranges::sort(pairs);
  return pairs;
}

std::string QueryValue(std::string_view target, std::string_view lower_name) {
  std::string found;
  ForEachPart(QueryOf(target), '&', [&](std::string_view part) {
    const size_t equals = part.find('=');
    if (equals != std::string_view::npos && EqualsLower(PercentDecode(part.substr(0, equals), Plus::kSpace), lower_name))
      found = PercentDecode(part.substr(equals + 1), Plus::kSpace);
  });
  return found;
}

// S3 signs the path as it stands, every other service what encoding makes of it once more.
std::string CanonicalPath(std::string_view path, std::string_view service) {
  if (service == "s3" || service == "s3express" || service == "s3-outposts" || service == "s3-object-lambda")
    return PercentEncode(PercentDecode(path, Plus::kLiteral), '/');
  return PercentEncode(path, '/');
}

std::string CollapseBlanks(std::string_view value) {
  std::string out;
  for (const char c : value) {
    const char blank = c == '\t' ? ' ' : c;
    if (blank == ' ' && (out.empty() || out.back() == ' ')) continue;
    out.push_back(blank);
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

Result<void> ReadScope(std::string_view credential, WorkloadSignature* signature) {
  // id/date/region/service/aws4_request; an id may hold a slash, what follows may not.
  std::vector<std::string> parts;
  ForEachPart(credential, '/', [&](std::string_view part) { parts.emplace_back(part); });
  if (parts.size() < 5 || parts.back() != "aws4_request")
    return Fail(Code::kInvalid, "its AWS signature has no scope of date, region and service");
  signature->service = parts[parts.size() - 2];
  signature->region = parts[parts.size() - 3];
  return {};
}

Result<WorkloadSignature> ReadHeaderSignature(std::string_view value, const OutgoingHead& head) {
  WorkloadSignature signature;
  signature.place = Place::kHeader;
  std::string credential;
  ForEachListItem(value.substr(kAlgorithm.size()), [&](std::string_view item) {
    if (item.starts_with("Credential=")) credential = item.substr(11);
    if (item.starts_with("SignedHeaders=")) signature.signed_headers = LowerCase(item.substr(14));
  });
  if (auto scope = ReadScope(credential, &signature); !scope) return std::unexpected(scope.error());
  signature.payload_hash = FieldValue(head, "x-amz-content-sha256");
  return signature;
}

Result<WorkloadSignature> ReadQuerySignature(const OutgoingHead& head) {
  WorkloadSignature signature;
  signature.place = Place::kQuery;
  signature.signed_headers = LowerCase(QueryValue(head.target, "x-amz-signedheaders"));
  if (auto scope = ReadScope(QueryValue(head.target, "x-amz-credential"), &signature); !scope)
    return std::unexpected(scope.error());
  signature.payload_hash = QueryValue(head.target, "x-amz-content-sha256");
  if (signature.payload_hash.empty()) signature.payload_hash = FieldValue(head, "x-amz-content-sha256");
  return signature;
}

// What is on the way changed or added by whoever carries the request cannot be signed.
bool IsSignable(std::string_view name) {
  static constexpr auto kNever =
      std::to_array<std::string_view>({"authorization", "connection", "content-length", "expect", "host", "te", "trailer",
                                       "transfer-encoding", "upgrade", "user-agent", "x-amzn-trace-id"});
  return std::ranges::find(kNever, name) == kNever.end();
}

// Those that the workload signed and that are still there, and all x-amz-….
std::string SignedHeaders(const OutgoingHead& head, std::string_view workload) {
  std::set<std::string> wanted;
  ForEachPart(workload, ';', [&](std::string_view name) { wanted.emplace(name); });
  std::set<std::string> names = {"host"};
  for (const Field& field : head.fields) {
    std::string name = LowerCase(field.name);
    if (field.forward && IsSignable(name) && (wanted.contains(name) || name.starts_with("x-amz-"))) names.insert(std::move(name));
  }
  return fmt::format("{}", fmt::join(names, ";"));
}

std::string Signature(std::string_view stamp, std::string_view scope, std::string_view region, std::string_view service,
                      std::string_view key, const HashFunctions& hash, std::string_view canonical) {
  const std::string to_sign = fmt::format("{}\n{}\n{}\n{}", kAlgorithm, stamp, scope, HexText(hash.sha256(canonical)));
  std::string first = fmt::format("AWS4{}", key);
  const Sha256Digest date_key = hash.hmac_sha256(first, stamp.substr(0, 8));
  Wipe(&first);
  const Sha256Digest region_key = hash.hmac_sha256(Bytes(date_key), region);
  const Sha256Digest service_key = hash.hmac_sha256(Bytes(region_key), service);
  const Sha256Digest signing_key = hash.hmac_sha256(Bytes(service_key), "aws4_request");
  return HexText(hash.hmac_sha256(Bytes(signing_key), to_sign));
}

void SetParameter(OutgoingHead* head, std::string_view name, std::string_view value) {
  head->target = WithQueryParameter(head->target, name, value);
}

}  // namespace

Result<AwsKeys> ParseAwsKeys(std::string_view secret) {
  AwsKeys keys;
  const size_t colon = secret.find(':');
  if (colon == std::string_view::npos || colon == 0)
    return Fail(Code::kInvalid, "is not \"key id:secret key\", nor with a session token behind that");
  keys.id = secret.substr(0, colon);
  const std::string_view rest = secret.substr(colon + 1);
  const size_t second = rest.find(':');
  keys.key = rest.substr(0, second);
  if (second != std::string_view::npos) keys.token = rest.substr(second + 1);
  if (keys.key.empty()) return Fail(Code::kInvalid, "has no secret key behind the key id");
  return keys;
}

Result<WorkloadSignature> ReadSignature(const OutgoingHead& head) {
  const std::string_view authorization = FieldValue(head, "authorization");
  Result<WorkloadSignature> read = WorkloadSignature{};
  const std::string algorithm = QueryValue(head.target, "x-amz-algorithm");
  if (authorization.starts_with("AWS4-HMAC-SHA256 ")) {
    if (!algorithm.empty()) return Fail(Code::kInvalid, "it carries two AWS signatures, in a header field and in the query");
    read = ReadHeaderSignature(authorization, head);
  } else if (authorization.starts_with("AWS4-") || authorization.starts_with("AWS ")) {
    return Fail(Code::kInvalid, fmt::format("an AWS signature of the kind {} is not signed anew",
                                            authorization.substr(0, authorization.find(' '))));
  } else if (algorithm == kAlgorithm) {
    read = ReadQuerySignature(head);
  } else if (!algorithm.empty()) {
    return Fail(Code::kInvalid, "an AWS signature in the query of another kind than AWS4-HMAC-SHA256 is not signed anew");
  } else {
    read->payload_hash = FieldValue(head, "x-amz-content-sha256");
  }
  if (!read) return read;
  if (read->payload_hash.starts_with("STREAMING-") && read->payload_hash != kStreamingUnsigned)
    return Fail(Code::kInvalid,
                "its body is signed chunk by chunk, which is not signed anew: let the client sign the whole payload or none "
                "(for the AWS SDKs: https, and no chunked encoding)");
  return read;
}

PayloadHash PayloadHashFor(const WorkloadSignature& signature, std::string_view service) {
  if (!signature.payload_hash.empty()) return PayloadHash::kDeclared;
  const bool s3 = service == "s3" || service == "s3express" || service == "s3-outposts" || service == "s3-object-lambda";
  return s3 ? PayloadHash::kUnsigned : PayloadHash::kOfBody;
}

std::string CanonicalRequest(std::string_view method, std::string_view target, std::string_view service, std::string_view host,
                             const OutgoingHead& head, std::string_view signed_headers, std::string_view payload_hash) {
  std::string out = fmt::format("{}\n{}\n", method, CanonicalPath(target.substr(0, target.find('?')), service));
  bool first = true;
  for (const auto& [name, value] : CanonicalPairs(QueryOf(target), "X-Amz-Signature")) {
    fmt::format_to(std::back_inserter(out), "{}{}={}", first ? "" : "&", name, value);
    first = false;
  }
  out.push_back('\n');
  ForEachPart(signed_headers, ';', [&](std::string_view name) {
    std::string values;
    if (name == "host") values = host;
    if (name != "host")
      for (const Field& field : head.fields) {
        if (!field.forward || !EqualsLower(field.name, name)) continue;
        if (!values.empty()) values.push_back(',');
        values += CollapseBlanks(field.value);
      }
    fmt::format_to(std::back_inserter(out), "{}:{}\n", name, values);
  });
  fmt::format_to(std::back_inserter(out), "\n{}\n{}", signed_headers, payload_hash);
  return out;
}

Result<void> SignAnew(const SignRequest& request, const WorkloadSignature& signature, const AwsKeys& keys,
                      const HashFunctions& hash, OutgoingHead* head) {
  const std::string region(request.region.empty() ? std::string_view(signature.region) : request.region);
  const std::string service(request.service.empty() ? std::string_view(signature.service) : request.service);
  if (region.empty() || service.empty())
    return Fail(Code::kInvalid, "it is not signed, and the credential names no region and service to sign it for");
  const std::string stamp = fmt::format("{:%Y%m%dT%H%M%SZ}", fmt::gmtime(static_cast<time_t>(request.now)));
  const std::string scope = fmt::format("{}/{}/{}/aws4_request", stamp.substr(0, 8), region, service);
  head->Remove("authorization");
  head->Remove("x-amz-date");
  head->Remove("x-amz-security-token");
  if (signature.place == Place::kQuery) {
    head->target = WithoutQueryParameter(head->target, "X-Amz-Signature");
    SetParameter(head, "X-Amz-Credential", fmt::format("{}/{}", keys.id, scope));
    SetParameter(head, "X-Amz-Date", stamp);
    head->target = WithoutQueryParameter(head->target, "X-Amz-Security-Token");
    if (!keys.token.empty()) SetParameter(head, "X-Amz-Security-Token", keys.token);
    const std::string names = SignedHeaders(*head, signature.signed_headers);
    SetParameter(head, "X-Amz-SignedHeaders", names);
    const std::string canonical =
        CanonicalRequest(request.method, head->target, service, request.host, *head, names, request.payload_hash);
    head->target += fmt::format("&X-Amz-Signature={}", Signature(stamp, scope, region, service, keys.key, hash, canonical));
    return {};
  }
  head->Set("x-amz-date", std::string(stamp));
  if (!keys.token.empty()) head->Set("x-amz-security-token", std::string(keys.token));
  const bool s3 = PayloadHashFor(WorkloadSignature{}, service) == PayloadHash::kUnsigned;
  if (s3 || !FieldValue(*head, "x-amz-content-sha256").empty())
    head->Set("x-amz-content-sha256", std::string(request.payload_hash));
  const std::string names = SignedHeaders(*head, signature.signed_headers.empty() ? "content-type" : signature.signed_headers);
  const std::string canonical =
      CanonicalRequest(request.method, head->target, service, request.host, *head, names, request.payload_hash);
  head->Set("authorization", fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}", kAlgorithm, keys.id, scope, names,
                                         Signature(stamp, scope, region, service, keys.key, hash, canonical)));
  return {};
}

}  // namespace sluice::proxy
