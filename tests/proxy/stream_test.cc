// A stream under TLS whose peer has much to say and no data in it.

#include "proxy/io/stream.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string_view>

#include "proxy/io/reactor.h"
#include "tests/proxy/testbed.h"

namespace sluice::proxy::testing {
namespace {

using SslPtr = std::unique_ptr<SSL, decltype(&SSL_free)>;

// A stream that serves, and an OpenSSL client at the other end of a socket pair; the handshake is done.
struct ServedStream {
  ServedStream() {
    EXPECT_TRUE(InitStreams());
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    far = UniqueFd(ends[0]);
    SSL_CTX_set_read_ahead(context.get(), 1);
    EXPECT_TRUE(stream.channel.Open(reactor, UniqueFd(ends[1]), kReadable | kWritable));
    EXPECT_TRUE(stream.StartTls(context.get(), Stream::Side::kServer));
    SSL_set_fd(client.get(), far.get());
    SSL_set_connect_state(client.get());
    for (int i = 0; i < 20 && SSL_is_init_finished(stream.ssl()) != 1; ++i) {
      (void)SSL_do_handshake(client.get());
      stream.channel.ready |= kReadable;
      (void)stream.Handshake();
    }
    EXPECT_EQ(SSL_is_init_finished(client.get()), 1);
    stream.channel.ready |= kReadable;
  }

  [[nodiscard]] int Unread() const {
    int left = 0;
    ioctl(stream.channel.fd(), FIONREAD, &left);
    return left;
  }

  // What the client writes, kept back.
  std::string Written(int key_updates, std::string_view data) {
    BIO* const kept = BIO_new(BIO_s_mem());
    SSL_set0_wbio(client.get(), kept);
    for (int i = 0; i < key_updates; ++i) {
      EXPECT_EQ(SSL_key_update(client.get(), SSL_KEY_UPDATE_NOT_REQUESTED), 1);
      EXPECT_EQ(SSL_do_handshake(client.get()), 1);
    }
    EXPECT_EQ(SSL_write(client.get(), data.data(), static_cast<int>(data.size())), static_cast<int>(data.size()));
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(kept, &bytes);
    return {bytes, static_cast<size_t>(size)};
  }

  std::shared_ptr<SSL_CTX> context = SharedAuthority().ServerContext("DNS:a.test");
  std::shared_ptr<SSL_CTX> client_context{SSL_CTX_new(TLS_client_method()), SSL_CTX_free};
  SslPtr client{SSL_new(client_context.get()), SSL_free};
  Reactor reactor;
  UniqueFd far;
  Stream stream;
};

TEST(Stream, AFloodOfKeyUpdatesIsReadInTurns) {
  ServedStream served;
  Stream& stream = served.stream;
  const std::string flood = served.Written(5000, "data");
  ASSERT_EQ(send(served.far.get(), flood.data(), flood.size(), 0), static_cast<ssize_t>(flood.size()));
  Waiter waiter(served.reactor);
  const auto wait = [&] {
    return waiter.Wait({&stream.channel, stream.read_needs}, served.reactor.now() + std::chrono::hours(1));
  };
  std::array<char, 100> room{};
  int turns = 0;
  Io io = stream.Read(room);
  for (; io.status == IoStatus::kWouldBlock && turns < 100; ++turns) {
    EXPECT_GT(served.Unread(), 0) << "the rest is for later";
    EXPECT_FALSE(wait().await_ready()) << "the others come first";
    EXPECT_TRUE(wait().await_ready()) << "and then there is more";
    io = stream.Read(room);
  }
  EXPECT_GE(turns, 1);
  ASSERT_EQ(io.status, IoStatus::kOk);
  EXPECT_EQ(std::string_view(room.data(), io.n), "data");
}

}  // namespace
}  // namespace sluice::proxy::testing
