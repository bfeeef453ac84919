#include "proxy/io/own_exchange.h"

#include <fmt/format.h>
#include <strings.h>

#include <cstring>
#include <optional>
#include <utility>

#include "proxy/chunked.h"
#include "proxy/credential/secret.h"
#include "proxy/io/limits.h"
#include "proxy/io/route.h"
#include "proxy/io/upstream.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
namespace {

// An answer as it comes. Each byte is looked at once, however small the pieces are; what it held is wiped.
class AnswerReader {
 public:
  AnswerReader(std::string method, size_t most) : method_(std::move(method)), most_(most) { head_bytes_.reserve(most); }
  ~AnswerReader() {
    Wipe(&head_bytes_);
    Wipe(&answer_.body);
  }
  AnswerReader(const AnswerReader&) = delete;
  AnswerReader& operator=(const AnswerReader&) = delete;

  /// True: the answer is whole, and Take gives it.
  Result<bool> Feed(std::string_view bytes) {
    taken_ += bytes.size();
    if (taken_ > most_) return Fail(Code::kExhausted, fmt::format("its answer is longer than {} KiB", most_ / 1024));
    return framing_ ? Body(bytes) : Head(bytes);
  }
  /// The same where nothing more comes.
  [[nodiscard]] Result<bool> End() const {
    if (!framing_) return Fail(Code::kProtocol, "it closed without an answer");
    if (framing_->kind == BodyKind::kUntilClose) return true;
    return Fail(Code::kProtocol, "it ended its answer early");
  }
  [[nodiscard]] OwnAnswer Take() { return std::move(answer_); }

 private:
  Result<bool> Head(std::string_view bytes) {
    head_bytes_ += bytes;
    size_t begin = 0;
    for (;;) {
      const std::string_view rest = std::string_view(head_bytes_).substr(begin);
      const auto end = FindHeadEnd(rest, &looked_at_);
      if (!end) return Fail(Code::kProtocol, "its answer is not HTTP");
      if (*end == 0) break;
      std::string one(rest.substr(0, *end));
      ResponseHead head;
      if (const Fault fault = ParseResponseHead({one.data(), one.size()}, &head))
        return Fail(Code::kProtocol, fmt::format("its answer has {}", fault.why));
      begin += *end;
      looked_at_ = 0;
      if (head.status >= 200) return Begin(head, std::string_view(head_bytes_).substr(begin));
      if (++interims_ > kMaxInterimResponses) return Fail(Code::kProtocol, "too many interim responses");
    }
    head_bytes_.erase(0, begin);
    return false;
  }

  Result<bool> Begin(const ResponseHead& head, std::string_view rest) {
    const auto framing = ResponseFraming(head, method_);
    if (!framing) return Fail(Code::kProtocol, std::string(framing.error().why));
    framing_ = *framing;
    answer_.status = head.status;
    for (const Field& field : head.fields)
      if (field.name.size() == 4 && strncasecmp(field.name.data(), "etag", 4) == 0) answer_.entity_tag = std::string(field.value);
    answer_.body.reserve(most_);
    return Body(rest);
  }

  Result<bool> Body(std::string_view bytes) {
    switch (framing_->kind) {
      case BodyKind::kNone:
        return true;
      case BodyKind::kLength:
        answer_.body += bytes.substr(0, framing_->length - answer_.body.size());
        return answer_.body.size() == framing_->length;
      case BodyKind::kUntilClose:
        answer_.body += bytes;
        return false;
      case BodyKind::kChunked:
        break;
    }
    while (!chunks_.done() && !bytes.empty()) {
      const auto step = chunks_.Next(bytes);
      if (!step) return Fail(Code::kProtocol, std::string(step.error().why));
      answer_.body += step->data;
      bytes.remove_prefix(step->consumed);
    }
    return chunks_.done();
  }

  const std::string method_;
  const size_t most_;
  size_t taken_ = 0;
  std::string head_bytes_;
  size_t looked_at_ = 0;
  unsigned interims_ = 0;
  std::optional<Framing> framing_;  ///< once the head has come
  ChunkedDecoder chunks_;
  OwnAnswer answer_;
};

struct Request {
  ~Request() { Wipe(&text); }
  std::string text;
};

Task<Result<OwnAnswer>> Converse(Worker& worker, Waiter& waiter, Stream& stream, std::string text, size_t most,
                                 SteadyTime deadline) {
  AnswerReader reader(text.substr(0, text.find(' ')), most);
  const Request request{std::move(text)};
  size_t sent = 0;
  for (int round = 1;; ++round) {
    const bool sending = sent < request.text.size();
    const Io io = sending ? stream.Write(std::string_view(request.text).substr(sent)) : stream.Read(worker.scratch());
    const bool ended = io.status == IoStatus::kEof || io.status == IoStatus::kError;
    if (sending && ended) co_return Fail(Code::kProtocol, "it closed the connection");
    if (sending) {
      if (io.status == IoStatus::kOk) sent += io.n;
    } else if (io.status != IoStatus::kWouldBlock) {
      const auto whole = ended ? reader.End() : reader.Feed({worker.scratch().data(), io.n});
      if (!ended) explicit_bzero(worker.scratch().data(), io.n);
      if (!whole) co_return std::unexpected(whole.error());
      if (*whole) co_return reader.Take();
    }
    const bool waits = io.status == IoStatus::kWouldBlock;
    if (!waits && round % kRoundsPerTurn != 0) continue;
    const uint8_t needs = sending ? stream.write_needs : stream.read_needs;
    const Wake wake = co_await (waits ? waiter.Wait({&stream.channel, needs}, deadline) : waiter.Yield(deadline));
    if (wake != Wake::kReady || worker.reactor().now() >= deadline) co_return Fail(Code::kTimeout, "it did not answer in time");
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
