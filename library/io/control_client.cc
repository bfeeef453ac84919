#include "library/io/control_client.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "library/io/supervisor_process.h"
#include "proxy/http1.h"

namespace sluice::library {
namespace {

using std::chrono::steady_clock;

// What stands in a request line, RFC 9112 section 3: a space or a control character would begin another part of it.
bool IsPlain(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f; });
}

Result<std::string> RequestText(const Question& question) {
  if (!IsPlain(question.method) || !IsPlain(question.target) || !question.target.starts_with('/'))
    return Fail(Code::kInvalid, "a method is one word, and a target a path that begins with `/`, without blanks");
  std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: sluice\r\nConnection: close\r\nContent-Length: {}\r\n", question.method,
                                 question.target, question.body.size());
  if (question.if_revision) text += fmt::format("If-Match: \"{}\"\r\n", *question.if_revision);
  text += "\r\n";
  text += question.body;
  return text;
}

Result<void> WaitFor(int fd, short events, steady_clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
    if (left <= 0) return Fail(Code::kTimeout, "the supervisor did not answer in time");
    pollfd waiting{fd, events, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return FailErrno("cannot wait for the supervisor", errno);
  }
}

Result<void> SendAll(int fd, std::string_view text, steady_clock::time_point deadline) {
  while (!text.empty()) {
    const ssize_t n = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
    if (n >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return FailErrno("the supervisor takes no request", errno);
    if (auto ready = WaitFor(fd, POLLOUT, deadline); !ready) return ready;
  }
  return {};
}

std::unexpected<Error> NotUnderstood() { return Fail(Code::kProtocol, "the supervisor's answer is not understood"); }

// The head at the front of `bytes`; 0: it is not whole yet. Names in `head` point into `bytes`.
Result<size_t> ReadHead(std::string* bytes, proxy::ResponseHead* head) {
  size_t resume = 0;
  const auto end = proxy::FindHeadEnd(*bytes, &resume);
  if (!end) return NotUnderstood();
  if (*end == 0) return size_t{0};
  if (proxy::ParseResponseHead(std::span(bytes->data(), *end), head)) return NotUnderstood();
  return *end;
}

Result<Answer> ReadAnswer(std::string bytes, std::string_view method) {
  proxy::ResponseHead head;
  const auto end = ReadHead(&bytes, &head);
  if (!end) return std::unexpected(end.error());
  const auto framing = *end == 0 ? std::unexpected(proxy::Fault{}) : proxy::ResponseFraming(head, method);
  const size_t got = bytes.size() - *end;
  if (!framing || framing->kind == proxy::BodyKind::kChunked) return NotUnderstood();
  if (framing->kind == proxy::BodyKind::kLength && framing->length != got) return NotUnderstood();
  Answer answer;
  answer.status = head.status;
  for (const proxy::Field& field : head.fields)
    if (proxy::EqualsLower(field.name, "etag")) answer.entity_tag = field.value;
  answer.body = bytes.substr(*end);
  return answer;
}

}  // namespace

Result<Answer> Ask(int channel, const Question& question, std::chrono::milliseconds longest) {
  const auto text = RequestText(question);
  if (!text) return std::unexpected(text.error());
  const auto socket = OpenConnection(channel);
  if (!socket) return std::unexpected(socket.error());
  const auto deadline = steady_clock::now() + longest;
  if (auto sent = SendAll(socket->get(), *text, deadline); !sent) return std::unexpected(sent.error());
  std::string bytes;
  std::array<char, 16384> buffer;
  for (;;) {
    const ssize_t n = ::recv(socket->get(), buffer.data(), buffer.size(), 0);
    if (n == 0) break;
    if (n > 0) bytes.append(buffer.data(), static_cast<size_t>(n));
    if (bytes.size() > kMaxAnswerBytes) return Fail(Code::kExhausted, "the supervisor's answer is too long");
    if (n > 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return FailErrno("the supervisor does not answer", errno);
    if (auto ready = WaitFor(socket->get(), POLLIN, deadline); !ready) return std::unexpected(ready.error());
  }
  if (bytes.empty()) return Fail(Code::kNotFound, "the supervisor is gone");
  return ReadAnswer(std::move(bytes), question.method);
}

Result<LineStream> LineStream::Open(int channel, const std::string& target) {
  auto socket = OpenConnection(channel);
  if (!socket) return std::unexpected(socket.error());
  // An empty socket has room for so little.
  const std::string text = fmt::format("GET {} HTTP/1.1\r\nHost: sluice\r\n\r\n", target);
  if (auto sent = SendAll(socket->get(), text, steady_clock::now() + kAnswerDeadline); !sent)
    return std::unexpected(sent.error());
  return LineStream(*std::move(socket));
}

Result<LineStream::Reading> LineStream::Read() {
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t n = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return Reading::kWait;
    if (n <= 0) return Reading::kOver;
    if (auto taken = Take(std::string_view(buffer.data(), static_cast<size_t>(n))); !taken) return std::unexpected(taken.error());
    if (chunks_.done()) return Reading::kOver;
    if (lines_.size() - at_ > kMaxAnswerBytes) return NotUnderstood();
    if (lines_.size() - at_ > kMaxReadBytes) return Reading::kMore;
  }
}

Result<void> LineStream::Take(std::string_view bytes) {
  std::string rest;
  if (!begun_) {
    head_ += bytes;
    proxy::ResponseHead head;
    const auto end = ReadHead(&head_, &head);
    if (!end) return std::unexpected(end.error());
    if (*end == 0) return {};
    const auto framing = proxy::ResponseFraming(head, "GET");
    if (!framing || framing->kind != proxy::BodyKind::kChunked || head.status != 200) return NotUnderstood();
    begun_ = true;
    rest = head_.substr(*end);
    bytes = rest;
    head_.clear();
  }
  while (!bytes.empty() && !chunks_.done()) {
    const auto step = chunks_.Next(bytes);
    if (!step) return NotUnderstood();
    lines_ += step->data;
    if (step->consumed == 0) break;
    bytes.remove_prefix(step->consumed);
  }
  return {};
}

std::optional<std::string> LineStream::Next() {
  for (;;) {
    const size_t end = lines_.find('\n', at_);
    if (end == std::string::npos) {
      lines_.erase(0, at_);
      at_ = 0;
      return std::nullopt;
    }
    std::string line = lines_.substr(at_, end - at_);
    at_ = end + 1;
    if (!line.empty()) return line;
  }
}

}  // namespace sluice::library
