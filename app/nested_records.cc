#include "app/nested_records.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "base/fault.h"
#include "base/start_thread.h"

namespace sluice::app {
namespace {

constexpr int kQueueBytes = 1 << 20;
constexpr size_t kLongestMessage = 1 << 20;

// What a record is about, in one octet before it.
constexpr uint8_t kNote = 0x80;
constexpr uint8_t kExchange = 0x40;
constexpr uint8_t kAllowed = 0x20;
constexpr uint8_t kLayer = 0x1f;

uint8_t Octet(const RecordAbout& about) {
  return static_cast<uint8_t>(static_cast<uint8_t>(about.layer) | (about.allowed ? kAllowed : 0) |
                              (about.kind == RecordAbout::Kind::kExchange ? kExchange : 0) |
                              (about.kind == RecordAbout::Kind::kNote ? kNote : 0));
}

RecordAbout About(uint8_t octet) {
  using Kind = RecordAbout::Kind;
  return {.kind = (octet & kNote) != 0       ? Kind::kNote
                  : (octet & kExchange) != 0 ? Kind::kExchange
                                             : Kind::kDecision,
          .allowed = (octet & kAllowed) != 0,
          .layer = static_cast<policy::EventLayer>(octet & kLayer)};
}

}  // namespace

RecordSender::RecordSender(UniqueFd socket) : socket_(std::move(socket)) {
  // As much as the kernel gives.
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &kQueueBytes, sizeof kQueueBytes);
}

void RecordSender::Saw(const policy::DecisionEvent& event, uint64_t /*times*/) noexcept { about_ = AboutOf(event); }

void RecordSender::Saw(const policy::ExchangeEvent& /*event*/) noexcept { about_ = {.kind = RecordAbout::Kind::kExchange}; }

bool RecordSender::Send(const RecordAbout& about, std::string_view line) const noexcept {
  uint8_t octet = Octet(about);
  std::array<iovec, 2> parts = {{{&octet, 1}, {const_cast<char*>(line.data()), line.size()}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  ssize_t sent = 0;
  do sent = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

void RecordSender::Line(std::string_view line) noexcept {
  if (missed_ != 0) {
    std::array<char, 160> note{};
    const auto end = fmt::format_to_n(
        note.data(), note.size(),
        "{{\"event\":\"note\",\"note\":\"a run in the sandbox was too quick: {} of its records could not wait\"}}\n", missed_);
    if (Send({.kind = RecordAbout::Kind::kNote}, {note.data(), end.size})) missed_ = 0;
  }
  if (missed_ != 0 || !Send(about_, line)) ++missed_;
}

Result<std::unique_ptr<RecordReceiver>> RecordReceiver::Start(UniqueFd socket, DecisionStream& stream) {
  std::unique_ptr<RecordReceiver> receiver(new RecordReceiver(std::move(socket), stream));
  const auto start = [self = receiver.get()] { return StartThread(&self->thread_, [self] { self->Loop(); }); };
  if (Faulty("nested.records", start) != 0) return FailErrno("cannot pass on the records of a run in the sandbox", errno);
  return receiver;
}

RecordReceiver::~RecordReceiver() {
  // Nobody sends any more, whoever has a copy of the other end. What is there is read before the end is seen.
  ::shutdown(socket_.get(), SHUT_RDWR);
  if (thread_.joinable()) thread_.join();
}

void RecordReceiver::Loop() {
  std::string message(kLongestMessage, '\0');
  for (;;) {
    const ssize_t got = ::recv(socket_.get(), message.data(), message.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    const auto size = static_cast<size_t>(got);
    stream_.Forward(About(static_cast<uint8_t>(message.front())), std::string_view(message).substr(1, size - 1));
  }
}

}  // namespace sluice::app
