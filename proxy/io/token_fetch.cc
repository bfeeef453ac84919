#include "proxy/io/token_fetch.h"

#include <fmt/format.h>

#include <utility>

#include "proxy/io/own_exchange.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
namespace {

std::unexpected<Error> About(const policy::SecretSource& source, std::string_view why) {
  return Fail(Code::kProtocol, fmt::format("no token from {}: {}", source.text, why));
}

}  // namespace

Task<Result<TokenAnswer>> FetchToken(Worker& worker, Waiter& waiter, policy::SecretSource source, SecretPtr client_secret) {
  const auto endpoint = ParseTokenEndpoint(source.text);
  if (!endpoint) co_return std::unexpected(endpoint.error());
  TokenEndpoint to = *endpoint;
  std::string request = TokenRequest(*endpoint, source.client_id, client_secret->Reveal(), source.scope);
  auto whole = co_await ExchangeOwn(worker, waiter, std::move(to), std::move(request), kMaxTokenAnswer);
  if (!whole) co_return About(source, whole.error().message);
  Result<TokenAnswer> answer = ReadTokenAnswer(whole->status, whole->body);
  Wipe(&whole->body);
  if (!answer) co_return About(source, answer.error().message);
  co_return answer;
}

}  // namespace sluice::proxy
