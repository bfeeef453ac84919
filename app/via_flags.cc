#include "app/via_flags.h"

#include <fmt/format.h>

#include "app/file.h"
#include "policy/credential_keys.h"
#include "policy/node.h"

namespace sluice::app {
namespace {

using policy::Node;
using policy::UpstreamProxy;

Node Scalar(std::string text) {
  Node node;
  node.style = Node::Style::kQuoted;
  node.text = std::move(text);
  return node;
}

void Put(Node* map, std::string key, Node value) { map->members.push_back({Scalar(std::move(key)), std::move(value)}); }

// As a policy would have it below `proxies:`, so that the same words mean the same.
Node AsPolicy(const ViaFlags& flags) {
  Node proxy;
  proxy.kind = Node::Kind::kMapping;
  Put(&proxy, "url", Scalar(flags.url));
  if (!flags.auth.empty()) {
    const size_t space = flags.auth.find(' ');
    Put(&proxy, flags.auth.substr(0, space), Scalar(flags.auth.substr(space + 1)));
  }
  if (!flags.ca.empty()) Put(&proxy, "ca", Scalar(Absolute(flags.ca)));
  Node except;
  except.kind = Node::Kind::kSequence;
  for (const std::string& host : flags.except) except.items.push_back(Scalar(host));
  Put(&proxy, "except", std::move(except));
  Node named;
  named.kind = Node::Kind::kMapping;
  Put(&named, "--via", std::move(proxy));
  return named;
}

}  // namespace

Result<std::optional<UpstreamProxy>> ReadVia(const ViaFlags& flags) {
  if (flags.url.empty()) return std::nullopt;
  if (!flags.auth.empty() && !flags.auth.starts_with("basic ") && !flags.auth.starts_with("bearer "))
    return Fail(Code::kInvalid, "--via-auth: write `basic` or `bearer`, then where the secret is, as in `basic env PROXY_LOGIN`");
  auto proxies = policy::ReadProxies(AsPolicy(flags));
  if (!proxies) return Fail(Code::kInvalid, fmt::format("--via: {}", proxies.error().message));
  proxies->front().span = {"--via", 1, 1, 1};
  return std::move(proxies->front());
}

}  // namespace sluice::app
