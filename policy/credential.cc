#include "policy/credential.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace sluice::policy {
namespace {

// With its length, so that no two lists of texts are spelt alike.
std::string Counted(std::string_view text) { return fmt::format("{}:{}", text.size(), text); }

std::string SourceText(const SecretSource& source) {
  std::string out = fmt::format("{} {}", static_cast<int>(source.kind), Counted(source.text));
  for (const std::string& word : source.command) out += " word=" + Counted(word);
  if (!source.client_id.empty()) out += " client=" + Counted(source.client_id);
  if (!source.scope.empty()) out += " scope=" + Counted(source.scope);
  for (const SecretSource& secret : source.secret) out += fmt::format(" secret=({})", SourceText(secret));
  return out;
}

std::string PortsText(const std::vector<PortRange>& ports) {
  std::string out;
  for (const PortRange& range : ports) out += fmt::format("{}{}-{}", out.empty() ? "" : ",", range.first, range.last);
  return out;
}

}  // namespace

std::string CanonicalText(const Credential& credential) {
  const CredentialUse& use = credential.send;
  std::string out =
      fmt::format("credential {} from={} send={} {} {} {} {}", Counted(credential.name), SourceText(credential.from),
                  static_cast<int>(use.kind), Counted(use.text), Counted(use.prefix), Counted(use.region), Counted(use.service));
  std::vector<std::string> scopes;
  for (const CredentialScope& scope : credential.to) scopes.push_back(Counted(scope.text));
  std::sort(scopes.begin(), scopes.end());
  return out + fmt::format(" to={}", fmt::join(scopes, ","));
}

std::string CanonicalText(const UpstreamProxy& proxy) {
  std::string out = fmt::format("proxy {} {} {} {}", Counted(proxy.name), static_cast<int>(proxy.kind),
                                proxy.address ? proxy.address->ToString() : proxy.host, proxy.port);
  if (proxy.basic) out += fmt::format(" basic=({})", SourceText(*proxy.basic));
  if (proxy.bearer) out += fmt::format(" bearer=({})", SourceText(*proxy.bearer));
  out += " ca=" + Counted(proxy.ca_file);
  std::vector<std::string> excepts;
  for (const UpstreamProxy::Except& except : proxy.except)
    excepts.push_back(Counted(fmt::format("{} {}", except.host ? except.host->text : "", PortsText(except.ports))));
  std::sort(excepts.begin(), excepts.end());
  return out + fmt::format(" except={}", fmt::join(excepts, ","));
}

}  // namespace sluice::policy
