#include "proxy/io/token_fetch.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <utility>

#include "proxy/chunked.h"
#include "proxy/io/route.h"
#include "proxy/io/upstream.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
namespace {

std::unexpected<Error> About(const policy::SecretSource& source, std::string_view why) {
  return Fail(Code::kProtocol, fmt::format("no token from {}: {}", source.text, why));
}

// The body of a whole answer; absent: more is needed. `ended`: nothing more comes.
Result<std::optional<std::string>> BodyOf(const ResponseHead& head, std::string_view rest, bool ended) {
  const auto framing = ResponseFraming(head, "POST");
  if (!framing) return Fail(Code::kProtocol, std::string(framing.error().why));
  switch (framing->kind) {
    case BodyKind::kNone:
      return std::string();
    case BodyKind::kLength:
      if (rest.size() >= framing->length) return std::string(rest.substr(0, framing->length));
      break;
    case BodyKind::kUntilClose:
      if (ended) return std::string(rest);
      return std::nullopt;
    case BodyKind::kChunked: {
      ChunkedDecoder decoder;
      std::string body;
      while (!decoder.done()) {
        const auto step = decoder.Next(rest);
        if (!step) return Fail(Code::kProtocol, std::string(step.error().why));
        if (step->consumed == 0) break;
        body += step->data;
        rest.remove_prefix(step->consumed);
      }
      if (decoder.done()) return body;
      Wipe(&body);
      break;
    }
  }
  if (ended) return Fail(Code::kProtocol, "it ended its answer early");
  return std::nullopt;
}

// The answer once `bytes` holds all of it.
std::optional<Result<TokenAnswer>> AnswerIn(std::string_view bytes, bool ended) {
  size_t resume = 0;
  const auto end = FindHeadEnd(bytes, &resume);
  if (!end) return Fail(Code::kProtocol, "its answer is not HTTP");
  if (*end == 0) {
    if (ended) return Fail(Code::kProtocol, "it closed without an answer");
    return std::nullopt;
  }
  std::string head_bytes(bytes.substr(0, *end));
  ResponseHead head;
  if (const Fault fault = ParseResponseHead({head_bytes.data(), head_bytes.size()}, &head))
    return Fail(Code::kProtocol, fmt::format("its answer has {}", fault.why));
  if (head.status < 200) return AnswerIn(bytes.substr(*end), ended);
  auto body = BodyOf(head, bytes.substr(*end), ended);
  if (!body) return std::unexpected(body.error());
  if (!*body) return std::nullopt;
  Result<TokenAnswer> answer = ReadTokenAnswer(head.status, **body);
  Wipe(&**body);
  return answer;
}

struct Exchange {
  Exchange() { in.reserve(kMaxTokenAnswer); }
  ~Exchange() {
    Wipe(&out);
    Wipe(&in);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  std::string out;
  std::string in;
};

Task<Result<TokenAnswer>> Converse(Worker& worker, Waiter& waiter, Stream& stream, std::string request, SteadyTime deadline) {
  Exchange exchange;
  exchange.out = std::move(request);
  size_t sent = 0;
  for (;;) {
    Io io;
    if (sent < exchange.out.size()) {
      io = stream.Write(std::string_view(exchange.out).substr(sent));
      if (io.status == IoStatus::kOk) sent += io.n;
    } else {
      io = stream.Read(worker.scratch());
      const bool ended = io.status == IoStatus::kEof || io.status == IoStatus::kError;
      if (io.status == IoStatus::kOk) {
        if (exchange.in.size() + io.n > kMaxTokenAnswer) co_return Fail(Code::kExhausted, "its answer is longer than 64 KiB");
        exchange.in.append(worker.scratch().data(), io.n);
        explicit_bzero(worker.scratch().data(), io.n);
      }
      if (io.status != IoStatus::kWouldBlock)
        if (auto answer = AnswerIn(exchange.in, ended)) co_return *std::move(answer);
    }
    if (io.status == IoStatus::kOk) continue;
    if (io.status != IoStatus::kWouldBlock) co_return Fail(Code::kProtocol, "it closed the connection");
    const uint8_t needs = sent < exchange.out.size() ? stream.write_needs : stream.read_needs;
    const Wake wake = co_await waiter.Wait({&stream.channel, needs}, deadline);
    if (wake != Wake::kReady) co_return Fail(Code::kTimeout, "it did not answer in time");
  }
}

}  // namespace

Task<Result<TokenAnswer>> FetchToken(Worker& worker, Waiter& waiter, policy::SecretSource source, SecretPtr client_secret) {
  const auto endpoint = ParseTokenEndpoint(source.text);
  if (!endpoint) co_return std::unexpected(endpoint.error());
  const SteadyTime deadline = worker.reactor().now() + kTokenDeadline;
  DialTarget to{endpoint->host, endpoint->literal, endpoint->port, nullptr};
  RouteOwn(worker, &to);
  AddressJudge judge = [](const IpAddress&) {
    policy::Decision decision;
    decision.allowed = true;
    decision.reason = policy::Reason::kAllowed;
    return decision;
  };
  DialTarget dial = to;
  auto upstream = co_await Dial(worker, waiter, std::move(dial), std::move(judge));
  if (!upstream) co_return About(source, upstream.error().detail);
  DialTarget name = to;
  const auto insecure = co_await SecureUpstream(worker, waiter, **upstream, std::move(name));
  if (insecure) co_return About(source, insecure->detail);
  std::string request = TokenRequest(*endpoint, source.client_id, client_secret->Reveal(), source.scope);
  Stream& stream = (*upstream)->stream;
  auto answer = co_await Converse(worker, waiter, stream, std::move(request), deadline);
  if (!answer) co_return About(source, answer.error().message);
  co_return answer;
}

}  // namespace sluice::proxy
