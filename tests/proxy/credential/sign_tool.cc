// Signs requests that come as JSON, one a line, for sigv4_oracle_test.py to compare:
// {"method","target","host","fields":[[name,value]],"secret","region","service","now","hash"} → {"target","fields"} or {"error"}.

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "proxy/credential/sigv4.h"

namespace {

using namespace sluice::proxy;

const unsigned char* Octets(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

Sha256Digest Sha256(std::string_view bytes) {
  Sha256Digest out{};
  EVP_Digest(bytes.data(), bytes.size(), out.data(), nullptr, EVP_sha256(), nullptr);
  return out;
}

Sha256Digest HmacSha256(std::string_view key, std::string_view bytes) {
  Sha256Digest out{};
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), Octets(bytes), bytes.size(), out.data(), &size);
  return out;
}

nlohmann::json Answer(const nlohmann::json& in) {
  std::vector<std::pair<std::string, std::string>> held = in.at("fields");
  std::vector<Field> fields;
  for (const auto& [name, value] : held) {
    Field field;
    field.name = name;
    field.value = value;
    fields.push_back(field);
  }
  OutgoingHead head(fields, in.at("target").get<std::string>());
  const auto error = [](const sluice::Error& fault) { return nlohmann::json{{"error", fault.message}}; };
  const auto signature = ReadSignature(head);
  if (!signature) return error(signature.error());
  const std::string secret = in.at("secret");
  const auto keys = ParseAwsKeys(secret);
  if (!keys) return error(keys.error());
  const std::string method = in.at("method");
  const std::string host = in.at("host");
  const std::string region = in.at("region");
  const std::string service = in.at("service");
  const std::string body_hash = in.at("hash");
  const PayloadHash kind = PayloadHashFor(*signature, service.empty() ? signature->service : service);
  SignRequest request{method, host, region, service, in.at("now").get<int64_t>(), body_hash};
  if (kind == PayloadHash::kDeclared) request.payload_hash = signature->payload_hash;
  if (kind == PayloadHash::kUnsigned) request.payload_hash = "UNSIGNED-PAYLOAD";
  if (auto signed_anew = SignAnew(request, *signature, *keys, {Sha256, HmacSha256}, &head); !signed_anew)
    return error(signed_anew.error());
  nlohmann::json out{{"target", head.target}, {"fields", nlohmann::json::array()}};
  for (const Field& field : head.fields) out["fields"].push_back({std::string(field.name), std::string(field.value)});
  return out;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) std::cout << Answer(nlohmann::json::parse(line)).dump() << '\n';
  return 0;
}
