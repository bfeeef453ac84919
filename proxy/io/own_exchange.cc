#include "proxy/io/own_exchange.h"

#include <fmt/format.h>
#include <strings.h>

#include <cstring>
#include <optional>
#include <utility>

#include "proxy/chunked.h"
#include "proxy/credential/secret.h"
#include "proxy/io/route.h"
#include "proxy/io/upstream.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
namespace {

// The body of a whole answer; absent: more is needed. `ended`: nothing more comes.
Result<std::optional<std::string>> BodyOf(const ResponseHead& head, std::string_view method, std::string_view rest, bool ended) {
  const auto framing = ResponseFraming(head, method);
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
std::optional<Result<OwnAnswer>> AnswerIn(std::string_view method, std::string_view bytes, bool ended) {
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
  if (head.status < 200) return AnswerIn(method, bytes.substr(*end), ended);
  auto body = BodyOf(head, method, bytes.substr(*end), ended);
  if (!body) return std::unexpected(body.error());
  if (!*body) return std::nullopt;
  OwnAnswer answer;
  answer.status = head.status;
  answer.body = *std::move(*body);
  for (const Field& field : head.fields)
    if (field.name.size() == 4 && strncasecmp(field.name.data(), "etag", 4) == 0) answer.entity_tag = std::string(field.value);
  return answer;
}

struct Exchange {
  explicit Exchange(size_t most) { in.reserve(most); }
  ~Exchange() {
    Wipe(&out);
    Wipe(&in);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  std::string out;
  std::string in;
};

Task<Result<OwnAnswer>> Converse(Worker& worker, Waiter& waiter, Stream& stream, std::string request, size_t most,
                                 SteadyTime deadline) {
  const std::string method = request.substr(0, request.find(' '));
  Exchange exchange(most);
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
        if (exchange.in.size() + io.n > most)
          co_return Fail(Code::kExhausted, fmt::format("its answer is longer than {} KiB", most / 1024));
        exchange.in.append(worker.scratch().data(), io.n);
        explicit_bzero(worker.scratch().data(), io.n);
      }
      if (io.status != IoStatus::kWouldBlock)
        if (auto answer = AnswerIn(method, exchange.in, ended)) co_return *std::move(answer);
    }
    if (io.status == IoStatus::kOk) continue;
    if (io.status != IoStatus::kWouldBlock) co_return Fail(Code::kProtocol, "it closed the connection");
    const uint8_t needs = sent < exchange.out.size() ? stream.write_needs : stream.read_needs;
    const Wake wake = co_await waiter.Wait({&stream.channel, needs}, deadline);
    if (wake != Wake::kReady) co_return Fail(Code::kTimeout, "it did not answer in time");
  }
}

}  // namespace

Task<Result<OwnAnswer>> ExchangeOwn(Worker& worker, Waiter& waiter, TokenEndpoint endpoint, std::string request, size_t most) {
  const SteadyTime deadline = worker.reactor().now() + kOwnDeadline;
  DialTarget to{endpoint.host, endpoint.literal, endpoint.port, nullptr};
  RouteOwn(worker, &to);
  AddressJudge judge = [](const IpAddress&) {
    policy::Decision decision;
    decision.allowed = true;
    decision.reason = policy::Reason::kAllowed;
    return decision;
  };
  DialTarget dial = to;
  auto upstream = co_await Dial(worker, waiter, std::move(dial), std::move(judge));
  if (!upstream) co_return Fail(Code::kProtocol, upstream.error().detail);
  DialTarget name = to;
  const auto insecure = co_await SecureUpstream(worker, waiter, **upstream, std::move(name));
  if (insecure) co_return Fail(Code::kProtocol, insecure->detail);
  Stream& stream = (*upstream)->stream;
  auto answer = co_await Converse(worker, waiter, stream, std::move(request), most, deadline);
  co_return answer;
}

}  // namespace sluice::proxy
