// A head with a credential put in: one value of it and no line end, the query parameter once and the others as they stood, Basic
// read back as it was written, nothing of a secret left by the redactor, no signature reader that fails on what it reads.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/credential/encoding.h"
#include "proxy/credential/inject.h"
#include "proxy/credential/oauth.h"
#include "proxy/credential/redact.h"
#include "proxy/credential/secret.h"
#include "proxy/credential/sigv4.h"
#include "proxy/credential/stand_in.h"

using namespace sluice::proxy;
using Kind = sluice::policy::CredentialUse::Kind;

namespace {

std::string_view Line(std::string_view* in) {
  const size_t end = in->find('\n');
  const std::string_view line = in->substr(0, end);
  in->remove_prefix(end == std::string_view::npos ? in->size() : end + 1);
  return line;
}

void Check(bool holds) {
  if (!holds) std::abort();
}

void CheckFields(Kind kind, std::string_view secret, const OutgoingHead& head, std::string_view folded) {
  size_t values = 0;
  for (const Field& field : head.fields) {
    if (!FoldsTo(field.name, folded)) continue;
    ++values;
    Check(field.value.find_first_of("\r\n") == std::string_view::npos);
    if (kind == Kind::kBasic) Check(Base64Decode(field.value.substr(6)) == "user:" + std::string(secret));
  }
  Check(values == 1);
}

void CheckQuery(std::string_view before, std::string_view after, std::string_view secret) {
  const std::string expected = "api_key=" + PercentEncode(secret);
  Check(after.ends_with(expected));
  Check(WithoutQueryParameter(after, "api_key").size() <= before.size() + 1);
  const std::string_view others = after.substr(0, after.size() - expected.size());
  Check(WithoutQueryParameter(others, "api_key") == others || others.ends_with("?") || others.ends_with("&"));
  Check(after.starts_with(before.substr(0, before.find('?'))));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 4096) return 0;
  std::string_view in(reinterpret_cast<const char*>(data), size);
  const std::string_view secret = Line(&in);
  const std::string_view target = Line(&in);
  std::vector<Field> fields;
  while (!in.empty() && fields.size() < 32) {
    const std::string_view line = Line(&in);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    Field field;
    field.name = line.substr(0, colon);
    field.value = line.substr(colon + 1);
    fields.push_back(field);
  }
  for (const Kind kind : {Kind::kBearer, Kind::kBasic, Kind::kHeader, Kind::kQuery}) {
    sluice::policy::CredentialUse use;
    use.kind = kind;
    use.text = kind == Kind::kBasic ? "user" : kind == Kind::kHeader ? "X-Api-Key" : "api_key";
    OutgoingHead head(fields, std::string(target), "X-Api-Key, X-Sum");
    const bool added = AddCredential(use, secret, &head).has_value();
    Check(added == CheckSecretText(secret).has_value());
    if (!added) continue;
    if (kind == Kind::kQuery) {
      CheckQuery(target, head.target, secret);
    } else {
      CheckFields(kind, secret, head, kind == Kind::kHeader ? "x-api-key" : "authorization");
    }
    Redactor redactor;
    redactor.Add(secret);
    for (const Field& field : head.fields)
      if (auto clean = redactor.Redact(field.value)) Check(!redactor.Redact(*clean) || secret.size() <= kRedacted.size());
  }
  OutgoingHead head(fields, std::string(target));
  (void)ReadSignature(head);
  (void)ParseTokenEndpoint(target);
  (void)ReadTokenAnswer(200, secret);
  const std::vector<std::string> stand_ins = {"sk-stand-in"};
  (void)FindStandIn(stand_ins, fields, target);
  return 0;
}
