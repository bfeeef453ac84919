// Any text as an upstream resolver and as a domain with resolvers of its own. What is accepted means the same once written out.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "dns/resolv_conf.h"
#include "dns/upstream_server.h"

using namespace sluice::dns;  // NOLINT: a fuzz target is one function

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto server = ParseUpstreamServer(text)) {
    const auto again = ParseUpstreamServer(server->ToString());
    if (!again || *again != *server || server->endpoint.port == 0) std::abort();
    if (server->kind == UpstreamServer::Kind::kPlain && !server->name.empty()) std::abort();
  }
  if (const auto stub = ParseStubDomain(text)) {
    if (stub->domain.empty() || stub->servers.empty() || stub->servers.size() > kMaxServers) std::abort();
    std::string written = stub->domain + "=";
    for (const UpstreamServer& server : stub->servers) written += (written.back() == '=' ? "" : ",") + server.ToString();
    const auto again = ParseStubDomain(written);
    if (!again || *again != *stub) std::abort();
  }
  if (ParseResolvConf(text).size() > kMaxServers) std::abort();
  return 0;
}
