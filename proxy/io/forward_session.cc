#include "proxy/io/forward_session.h"

#include "proxy/connect_request.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
namespace {

// What a client tells its proxy is not for the server; and "Proxy" would become HTTP_PROXY in a CGI program.
void DropProxyFields(RequestHead* head) {
  for (Field& field : head->fields)
    if (field.name.starts_with("proxy-") || field.name == "proxy") field.forward = false;
}

}  // namespace

policy::ProcessPtr WithToken(const policy::ProcessPtr& process, const policy::ProcessPtr& shown) {
  if (shown == nullptr) return process;
  if (process == nullptr || process->exe.path.empty()) return shown;
  auto both = std::make_shared<policy::Process>(*process);
  both->client = shown->client;
  both->client_labels = shown->client_labels;
  return both;
}

ForwardSession::ForwardSession(Worker& worker, Flow flow, std::unique_ptr<Stream> met)
    : process_(flow.target.process),
      tokens_(worker.shared().options().explicit_proxy->tokens),
      who_(process_),
      flow_(worker, std::move(flow), std::move(met)),
      session_(flow_, policy::Scheme::kHttp, nullptr, this) {}

Fault ForwardSession::CheckToken(const RequestHead& head) {
  if (tokens_ == nullptr) return {};
  const policy::ProcessPtr shown = tokens_->Get()->FromField(head.Find(FieldId::kProxyAuthorization));
  if (shown == nullptr) return {407, "this proxy wants a token: set it as user and password of the proxy's URL"};
  if (shown == shown_) return {};
  shown_ = shown;
  who_ = WithToken(process_, shown);
  return {};
}

Fault ForwardSession::Admit(RequestHead* head, const FlowTarget& now, std::optional<FlowTarget>* elsewhere) {
  asked_ = true;
  Fault fault = CheckToken(*head);
  if (!fault && head->method == "CONNECT") fault = {400, "a CONNECT after another request; it wants a connection of its own"};
  const auto asked = fault ? std::unexpected(fault) : ParseAbsoluteRequest(*head);
  if (!asked) {
    // Not of the place before, in the record either.
    *elsewhere = FlowTarget{"", Endpoint{}, who_};
    return asked.error();
  }
  DropProxyFields(head);
  // The URI is the one that counts; what leaves has a Host made from it.
  if (head->hosts != 0) head->host = asked->authority;
  const ProxyTarget& place = asked->place;
  if (now.process == who_ && now.host == place.host && now.destination.port == place.port &&
      (!now.host.empty() || now.destination.address == place.literal))
    return {};
  *elsewhere = FlowTarget{place.host, Endpoint{place.literal, place.port}, who_};
  return {};
}

}  // namespace sluice::proxy
