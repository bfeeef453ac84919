// A load of GETs through any of the proxies that are compared: straight at a port or through a CONNECT tunnel, in the clear or in
// TLS, many requests for each connection or one, as fast as answers come or at a fixed rate. For explicit.py; not part of the
// product.
//
//   proxy_load PORT ORIGIN_PORT [--connect|--absolute] [--tls CA_FILE|any] [--one] [--connections N] [--seconds N] [--rate N]
//   [--hold]
//
// prints: requests requests/s p50_us p99_us. At a fixed rate a time counts from when its request was due. --hold instead opens
// the connections, asks once on each, prints "held" and keeps them until standard input ends.

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Load {
  sockaddr_in address{};
  std::string ask;  // empty: no tunnel is asked for
  std::string get;
  SSL_CTX* tls = nullptr;  // null: in the clear
  size_t connections = 1;
  std::chrono::seconds seconds{8};
  double rate = 0;   // requests/s over all connections; 0: as fast as answers come
  bool one = false;  // one request for each connection
  bool hold = false;
};

struct FreeSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

class Connection {
 public:
  enum class Step { kGoesOn, kAnswered, kFailed };

  bool Open(const Load& load, int epoll) {
    ssl_.reset();
    fd_.Reset(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int on = 1;
    setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd_.get(), reinterpret_cast<const sockaddr*>(&load.address), sizeof load.address) != 0 && errno != EINPROGRESS)
      return false;
    state_ = State::kConnecting;
    in_.clear();
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    event.data.ptr = this;
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd_.get(), &event) == 0;
  }

  // Asks now, or as soon as the connection is ready to.
  bool Ask(const Load& load, Clock::time_point due) {
    due_ = due;
    asked_ = true;
    return state_ != State::kReady || Write(load.get);
  }

  Step Move(const Load& load) {
    for (;;) {
      switch (state_) {
        case State::kConnecting: {
          int error = 0;
          socklen_t size = sizeof error;
          sockaddr_in peer{};
          socklen_t peer_size = sizeof peer;
          if (getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) return Step::kFailed;
          if (getpeername(fd_.get(), reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) return Step::kGoesOn;
          if (!load.ask.empty() &&
              send(fd_.get(), load.ask.data(), load.ask.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(load.ask.size()))
            return Step::kFailed;
          state_ = load.ask.empty() ? State::kHandshake : State::kTunnel;
          break;
        }
        case State::kTunnel: {
          if (const Step step = Read(); step != Step::kAnswered) return step;
          const size_t end = in_.find("\r\n\r\n");
          if (end == std::string::npos) break;
          if (in_.find(" 200 ") != 8) return Step::kFailed;
          in_.clear();
          state_ = State::kHandshake;
          break;
        }
        case State::kHandshake: {
          if (load.tls != nullptr) {
            if (!ssl_) {  // without a server name, as for an address
              ssl_.reset(SSL_new(load.tls));
              SSL_set_fd(ssl_.get(), fd_.get());
            }
            const int done = SSL_connect(ssl_.get());
            if (done != 1) return SSL_get_error(ssl_.get(), done) == SSL_ERROR_WANT_READ ? Step::kGoesOn : Step::kFailed;
          }
          state_ = State::kReady;
          if (asked_ && !Write(load.get)) return Step::kFailed;
          break;
        }
        case State::kReady: {
          if (const Step step = Read(); step != Step::kAnswered) return step;
          const size_t end = in_.find("\r\n\r\n");
          if (end == std::string::npos) break;
          if (in_.find(" 200 ") != 8) return Step::kFailed;
          if (in_.size() < end + 4 + Length(end)) break;
          in_.clear();
          asked_ = false;
          return Step::kAnswered;
        }
      }
    }
  }

  void Close() {
    if (ssl_) SSL_set_quiet_shutdown(ssl_.get(), 1);
    ssl_.reset();
    fd_.Reset();
  }

  [[nodiscard]] double took() const { return std::chrono::duration<double, std::micro>(Clock::now() - due_).count(); }

 private:
  enum class State { kConnecting, kTunnel, kHandshake, kReady };

  // kAnswered: some octets came.
  Step Read() {
    char buffer[16384];
    if (ssl_) {
      const int n = SSL_read(ssl_.get(), buffer, sizeof buffer);
      if (n <= 0) return SSL_get_error(ssl_.get(), n) == SSL_ERROR_WANT_READ ? Step::kGoesOn : Step::kFailed;
      in_.append(buffer, static_cast<size_t>(n));
      return Step::kAnswered;
    }
    const ssize_t n = recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN ? Step::kGoesOn : Step::kFailed;
    if (n == 0) return Step::kFailed;
    in_.append(buffer, static_cast<size_t>(n));
    return Step::kAnswered;
  }

  bool Write(std::string_view text) {
    if (ssl_) return SSL_write(ssl_.get(), text.data(), static_cast<int>(text.size())) == static_cast<int>(text.size());
    return send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }

  [[nodiscard]] size_t Length(size_t end) const {
    constexpr std::string_view kName = "\r\ncontent-length:";
    const auto at = std::search(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(end), kName.begin(), kName.end(),
                                [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; });
    if (at == in_.begin() + static_cast<std::ptrdiff_t>(end)) return 0;
    return std::strtoul(&*at + kName.size(), nullptr, 10);
  }

  sluice::UniqueFd fd_;
  std::unique_ptr<SSL, FreeSsl> ssl_;
  Clock::time_point due_;
  std::string in_;
  State state_ = State::kConnecting;
  bool asked_ = false;
};

int Failed(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  return 1;
}

int Run(const Load& load) {
  const sluice::UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  std::vector<Connection> connections(load.connections);
  std::deque<Connection*> idle;
  const auto begun = Clock::now();
  for (Connection& connection : connections) {
    if (!connection.Open(load, epoll.get())) return Failed("a connection could not be opened");
    if (load.rate > 0)
      idle.push_back(&connection);
    else
      connection.Ask(load, Clock::now());
  }
  std::vector<double> took;
  size_t sent = 0;
  while (load.hold ? took.size() < load.connections : Clock::now() - begun < load.seconds) {
    timespec wait{1, 0};
    if (load.rate > 0) {
      const auto due = [&] {
        return begun + std::chrono::nanoseconds(static_cast<int64_t>(1e9 * static_cast<double>(sent) / load.rate));
      };
      while (!idle.empty() && due() <= Clock::now()) {
        Connection* next = idle.front();
        idle.pop_front();
        if (!next->Ask(load, due())) return Failed("a request could not be sent");
        ++sent;
      }
      const auto left = std::max<std::chrono::nanoseconds>(due() - Clock::now(), {});
      if (!idle.empty()) wait = {left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    }
    std::array<epoll_event, 64> events;
    const int n = epoll_pwait2(epoll.get(), events.data(), static_cast<int>(events.size()), &wait, nullptr);
    for (int i = 0; i < n; ++i) {
      auto* connection = static_cast<Connection*>(events[static_cast<size_t>(i)].data.ptr);
      const auto step = connection->Move(load);
      if (step == Connection::Step::kGoesOn) continue;
      if (step == Connection::Step::kFailed) return Failed("an exchange failed");
      took.push_back(connection->took());
      if (load.hold) continue;
      if (load.one) {
        connection->Close();
        if (!connection->Open(load, epoll.get())) return Failed("a connection could not be opened");
      }
      if (load.rate > 0)
        idle.push_back(connection);
      else if (!connection->Ask(load, Clock::now()))
        return Failed("a request could not be sent");
    }
  }
  if (load.hold) {
    fmt::print("held\n");
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
    return 0;
  }
  const double elapsed = std::chrono::duration<double>(Clock::now() - begun).count();
  if (took.empty()) return Failed("no request was answered");
  std::ranges::sort(took);
  fmt::print("{} {:.0f} {:.0f} {:.0f}\n", took.size(), static_cast<double>(took.size()) / elapsed, took[took.size() / 2],
             took[took.size() * 99 / 100]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr,
                 "usage: proxy_load PORT ORIGIN_PORT [--connect|--absolute] [--tls CA_FILE|any] [--one] [--connections N] "
                 "[--seconds N] [--rate N] "
                 "[--hold]\n");
    return 2;
  }
  Load load;
  load.address.sin_family = AF_INET;
  load.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  load.address.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[1])));
  const std::string origin = fmt::format("127.0.0.1:{}", argv[2]);
  load.get = fmt::format("GET /1k HTTP/1.1\r\nHost: {}\r\n\r\n", origin);
  for (int i = 3; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const auto value = [&] { return i + 1 < argc ? argv[++i] : "0"; };
    if (flag == "--connect") {
      load.ask = fmt::format("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin);
    } else if (flag == "--absolute") {
      load.get = fmt::format("GET http://{0}/1k HTTP/1.1\r\nHost: {0}\r\n\r\n", origin);
    } else if (flag == "--tls") {
      load.tls = SSL_CTX_new(TLS_client_method());
      const std::string_view authority = value();
      if (authority == "any") continue;
      if (SSL_CTX_load_verify_locations(load.tls, authority.data(), nullptr) != 1)
        return Failed("the authority could not be read");
      SSL_CTX_set_verify(load.tls, SSL_VERIFY_PEER, nullptr);
    } else if (flag == "--one") {
      load.one = true;
    } else if (flag == "--hold") {
      load.hold = true;
    } else if (flag == "--connections") {
      load.connections = static_cast<size_t>(std::atoi(value()));
    } else if (flag == "--seconds") {
      load.seconds = std::chrono::seconds(std::atoi(value()));
    } else if (flag == "--rate") {
      load.rate = std::atof(value());
    } else {
      return Failed("an unknown flag");
    }
  }
  return Run(load);
}
