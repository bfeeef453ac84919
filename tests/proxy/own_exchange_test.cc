// What the engine fetches for itself, from servers that answer oddly.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/proxy/testbed.h"

namespace sluice::proxy::testing {
namespace {

using std::string_literals::operator""s;

struct Fetching {
  explicit Fetching(std::function<void(Peer&)> answer)
      : origin(SharedAuthority().ServerContext("DNS:a.test"),
               [answer = std::move(answer)](Peer peer) {
                 if (!peer.ReadUntil("\r\n\r\n").empty()) answer(peer);
               }),
        bed("  - allow: GET b.test\n") {}

  Result<FetchAnswer> Fetch(size_t most = 4096) {
    auto promise = std::make_shared<std::promise<Result<FetchAnswer>>>();
    auto answer = promise->get_future();
    bed.engine().Fetch({fmt::format("https://a.test:{}/p", origin.port()), "", most},
                       [promise](Result<FetchAnswer> fetched) { promise->set_value(std::move(fetched)); });
    if (answer.wait_for(std::chrono::seconds(30)) != std::future_status::ready) return Fail(Code::kTimeout, "no end");
    return answer.get();
  }

  Origin origin;
  Testbed bed;
};

std::string Repeat(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

Result<FetchAnswer> Answered(const std::string& bytes, size_t most = 4096) {
  Fetching fetching([&](Peer& peer) { peer.Write(bytes); });
  return fetching.Fetch(most);
}

TEST(OwnExchange, ReadsAnswersOfEveryFraming) {
  const std::string ok = "HTTP/1.1 200 OK\r\nETag: \"7\"\r\n";
  const std::string interims = Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 3);
  for (const std::string& rest : {"Content-Length: 4\r\n\r\nbodyand more"s, "\r\nbody"s,
                                  "Transfer-Encoding: chunked\r\n\r\n1\r\nb\r\n3\r\nody\r\n0\r\n\r\n"s}) {
    const auto answer = Answered(interims + ok + rest);
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->body, "body") << rest;
    EXPECT_EQ(answer->entity_tag, "\"7\"");
  }
  EXPECT_EQ(Answered("HTTP/1.1 304 Not Modified\r\n\r\n")->status, 304);
}

TEST(OwnExchange, SaysWhatIsWrongWithAnAnswer) {
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  for (const auto& [bytes, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "closed without an answer"},
           {"HTTP/1.1 200 OK\n\n", "not HTTP"},
           {"nonsense\r\n\r\n", "its answer has"},
           {ok + "Content-Length: 5\r\n\r\nbody", "ended its answer early"},
           {ok + "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n", "ended its answer early"},
           {ok + "Transfer-Encoding: chunked\r\n\r\nx", "chunk"},
           {ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", "more than one Content-Length"},
           {ok + "\r\n" + Repeat("x", 40'000), "longer than"}}) {
    const auto answer = Answered(bytes);
    ASSERT_FALSE(answer) << bytes.substr(0, 80);
    EXPECT_NE(answer.error().message.find(why), std::string::npos) << answer.error().message;
  }
}

TEST(OwnExchange, EndsWithOneThatIsAllInterim) {
  const auto answer = Answered(Repeat("HTTP/1.1 100\r\n\r\n", 60'000), 1 << 20);
  ASSERT_FALSE(answer);
  EXPECT_NE(answer.error().message.find("too many interim responses"), std::string::npos) << answer.error().message;
}

TEST(OwnExchange, LooksAtEachByteOnceHoweverSmallThePieces) {
  constexpr int kChunks = 50'000;
  Fetching fetching([](Peer& peer) {
    peer.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < kChunks; ++i) peer.Write("1\r\nx\r\n");
    peer.Write("0\r\n\r\n");
  });
  const auto answer = fetching.Fetch(1 << 20);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->body.size(), size_t{kChunks});
}

}  // namespace
}  // namespace sluice::proxy::testing
