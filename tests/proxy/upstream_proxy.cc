#include "tests/proxy/upstream_proxy.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <poll.h>
#include <sys/socket.h>

#include "proxy/io/secret_store.h"

namespace sluice::proxy::testing {
namespace {

std::string Base64(const std::string& text) {
  std::string out((text.size() + 2) / 3 * 4 + 1, '\0');
  out.resize(
      static_cast<size_t>(EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                          reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()))));
  return out;
}

Peer ConnectLocal(uint16_t port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return {};
  return {std::move(fd), nullptr};
}

// One thread for both directions: a TLS session is no two threads' to share.
void Join(Peer& client, Peer& server) {
  bool client_open = true;
  bool server_open = true;
  while (client_open || server_open) {
    pollfd ends[2] = {{client_open ? client.fd() : -1, POLLIN, 0}, {server_open ? server.fd() : -1, POLLIN, 0}};
    if (poll(ends, 2, 10000) <= 0) return;
    const auto move = [](Peer& from, Peer& to, bool* open) {
      const std::string bytes = from.ReadSome();
      if (bytes.empty()) {
        *open = false;
        to.CloseWrite();
      } else if (!to.Write(bytes)) {
        *open = false;
      }
    };
    if (ends[0].revents != 0) move(client, server, &client_open);
    if (ends[1].revents != 0) move(server, client, &server_open);
  }
}

}  // namespace

UpstreamProxyServer::UpstreamProxyServer(Kind kind, std::string login, std::string reply)
    : kind_(kind),
      login_(std::move(login)),
      reply_(std::move(reply)),
      origin_(kind == Kind::kHttps ? SharedAuthority().ServerContext("DNS:proxy.test,IP:127.0.0.1") : nullptr, [this](Peer peer) {
        if (kind_ == Kind::kSocks5) {
          ServeSocks(std::move(peer));
        } else {
          Serve(std::move(peer));
        }
      }) {}

policy::UpstreamProxy UpstreamProxyServer::AsProxy(const std::string& host) const {
  policy::UpstreamProxy proxy;
  proxy.name = "corp";
  proxy.kind = kind_ == Kind::kHttp    ? policy::UpstreamProxy::Kind::kHttp
               : kind_ == Kind::kHttps ? policy::UpstreamProxy::Kind::kHttps
                                       : policy::UpstreamProxy::Kind::kSocks5;
  proxy.host = host;
  if (host.empty()) proxy.address = kLoopback;
  proxy.port = port();
  return proxy;
}

std::vector<std::string> UpstreamProxyServer::asked() {
  const std::lock_guard lock(mutex_);
  return asked_;
}

void UpstreamProxyServer::Note(std::string what) {
  const std::lock_guard lock(mutex_);
  asked_.push_back(std::move(what));
}

void UpstreamProxyServer::Serve(Peer peer) {
  for (;;) {
    const Peer::Message request = peer.ReadMessage();
    if (request.head.empty()) return;
    Note(request.head);
    const std::string got = request.Field("proxy-authorization");
    if (!login_.empty() && got != "Basic " + Base64(login_) && got != "Bearer " + login_) {
      peer.Write(fmt::format("HTTP/1.1 407 Not {}\r\nProxy-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n", got));
      continue;
    }
    const std::string line = request.FirstLine();
    if (line.contains("/back ")) {
      peer.Write(fmt::format(
          "HTTP/1.1 200 OK\r\nX-Back: {}\r\nX-Plain: it was {}\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n"
          "2\r\nok\r\n0\r\nx-sum: {}\r\n\r\n",
          got, login_, got));
      continue;
    }
    if (!line.starts_with("CONNECT ")) {
      const std::string body = line + "|" + got;
      peer.Write(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
      continue;
    }
    if (!reply_.empty()) {
      peer.Write(reply_);
      peer.ReadToEnd();
      return;
    }
    Peer server = ConnectLocal(static_cast<uint16_t>(std::stoi(line.substr(line.rfind(':') + 1))));
    if (!server.ok()) {
      peer.Write("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n");
      return;
    }
    peer.Write("HTTP/1.1 200 Connection established\r\n\r\n");
    Join(peer, server);
    return;
  }
}

void UpstreamProxyServer::ServeSocks(Peer peer) {
  const std::string greeting = peer.ReadExactly(2);
  if (greeting.size() != 2) return;
  const std::string methods = peer.ReadExactly(static_cast<size_t>(greeting[1]));
  const bool wants_login = !login_.empty();
  if (wants_login && methods.find('\x02') == std::string::npos) {
    peer.Write("\x05\xff");
    peer.ReadToEnd();
    return;
  }
  peer.Write(std::string{'\x05', wants_login ? '\x02' : '\x00'});
  if (wants_login) {
    const std::string user = peer.ReadExactly(static_cast<size_t>(peer.ReadExactly(2)[1]));
    const std::string password = peer.ReadExactly(static_cast<size_t>(peer.ReadExactly(1)[0]));
    const bool good = user + ":" + password == login_;
    peer.Write(std::string{'\x01', good ? '\x00' : '\x01'});
    if (!good) return;
  }
  const std::string head = peer.ReadExactly(4);
  if (head.size() != 4) return;
  std::string host;
  if (head[3] == 3) {
    host = peer.ReadExactly(static_cast<size_t>(peer.ReadExactly(1)[0]));
  } else {
    char text[INET6_ADDRSTRLEN] = {};
    const std::string raw = peer.ReadExactly(head[3] == 1 ? 4 : 16);
    inet_ntop(head[3] == 1 ? AF_INET : AF_INET6, raw.data(), text, sizeof text);
    host = text;
  }
  const std::string port = peer.ReadExactly(2);
  const auto number = static_cast<uint16_t>((static_cast<uint8_t>(port[0]) << 8) | static_cast<uint8_t>(port[1]));
  Note(fmt::format("socks {}:{}", host, number));
  if (!reply_.empty()) {
    peer.Write(reply_);
    peer.ReadToEnd();
    return;
  }
  Peer server = ConnectLocal(number);
  const std::string bound("\x00\x01\x00\x00\x00\x00\x00\x00", 8);
  peer.Write(std::string{'\x05', server.ok() ? '\x00' : '\x05'} + bound);
  if (server.ok()) Join(peer, server);
}

std::string Defined(const policy::UpstreamProxy& proxy) {
  using Kind = policy::UpstreamProxy::Kind;
  const char* scheme = proxy.kind == Kind::kHttp ? "http" : proxy.kind == Kind::kHttps ? "https" : "socks5";
  std::string text = fmt::format("proxies:\n  {}:\n    url: '{}://{}:{}'\n", proxy.name, scheme,
                                 proxy.address ? proxy.address->ToString() : proxy.host, proxy.port);
  if (proxy.basic) text += fmt::format("    basic: env {}\n", proxy.basic->text);
  if (proxy.bearer) text += fmt::format("    bearer: env {}\n", proxy.bearer->text);
  if (!proxy.ca_file.empty()) text += fmt::format("    ca: {}\n", proxy.ca_file);
  std::string except;
  for (const auto& entry : proxy.except) except += (except.empty() ? "" : ", ") + entry.host->text;
  if (!except.empty()) text += fmt::format("    except: [{}]\n", except);
  return text;
}

std::string Everything(const policy::UpstreamProxy& proxy) {
  return Defined(proxy) + fmt::format("settings: {{ via: {} }}\n", proxy.name);
}

EngineOptions WithLogin(EngineOptions options, const policy::UpstreamProxy& proxy) {
  options.secrets = std::make_shared<SecretStore>(SecretStoreOptions{});
  const auto loaded = options.secrets->Load({}, {&proxy, 1});
  EXPECT_TRUE(loaded) << loaded.error().message;
  return options;
}

}  // namespace sluice::proxy::testing
