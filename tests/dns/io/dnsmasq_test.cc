// The resolver between real programs: dnsmasq as its upstream; dig, glibc's getent and a static musl program as its clients.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/dns/io/name_servers.h"
#include "tests/dns/io/own_place.h"
#include "tests/dns/io/server_harness.h"
#include "tests/dns/make.h"

namespace sluice::dns {
namespace {

using std::chrono::milliseconds;

bool Has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// A dnsmasq on a loopback port, stopped by its own pid.
class Dnsmasq {
 public:
  Dnsmasq() {
    for (int attempt = 0; attempt < 20 && !Start(); ++attempt) {
    }
    if (pid_ <= 0) std::abort();
  }
  ~Dnsmasq() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
    std::filesystem::remove(log_);
  }
  [[nodiscard]] Endpoint endpoint() const { return {IpAddress::FromV4(0x7f000001), port_}; }
  /// The queries that arrived, in lower case: they were asked in a random one.
  [[nodiscard]] std::string Log() const {
    std::ifstream file(log_);
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    std::ranges::transform(text, text.begin(), LowerAscii);
    return text;
  }

 private:
  static uint16_t FreePort() {
    const UniqueFd probe(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage address{};
    auto length = static_cast<socklen_t>(Endpoint{IpAddress::FromV4(0x7f000001), 0}.ToSockaddr(&address));
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(probe.get(), generic, length) != 0 || getsockname(probe.get(), generic, &length) != 0) std::abort();
    return Endpoint::FromSockaddr(generic, length)->port;
  }

  [[nodiscard]] bool Answers() const {
    const auto query = Encode(AskMessage("one.test", Type::kA));
    for (int i = 0; i < 100; ++i) {
      const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      sockaddr_storage server{};
      const auto length = static_cast<socklen_t>(endpoint().ToSockaddr(&server));
      if (connect(fd.get(), reinterpret_cast<sockaddr*>(&server), length) != 0) return false;
      const timeval limit{0, 100000};
      setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      std::array<uint8_t, 512> answer{};
      if (send(fd.get(), query.data(), query.size(), 0) > 0 && recv(fd.get(), answer.data(), answer.size(), 0) > 0) return true;
      if (waitpid(pid_, nullptr, WNOHANG) == pid_) return false;
      std::this_thread::sleep_for(milliseconds(20));
    }
    return false;
  }

  bool Start() {
    port_ = FreePort();
    std::string pattern = (std::filesystem::temp_directory_path() / "sluice-dnsmasq-XXXXXX").string();
    const UniqueFd made(mkstemp(pattern.data()));
    log_ = pattern;
    std::vector<std::string> words = {"dnsmasq",
                                      "--keep-in-foreground",
                                      "--conf-file=/dev/null",
                                      "--pid-file",
                                      "--no-resolv",
                                      "--no-hosts",
                                      "--port=" + std::to_string(port_),
                                      "--listen-address=127.0.0.1",
                                      "--bind-interfaces",
                                      "--user=",
                                      "--log-queries",
                                      "--log-facility=" + log_,
                                      "--local-ttl=120",
                                      "--local=/test/",
                                      "--host-record=one.test,93.184.216.34,2606:2800::1",
                                      "--host-record=four.test,93.184.216.4",
                                      "--host-record=six.test,2606:2800::6",
                                      "--cname=alias.test,one.test",
                                      "--txt-record=one.test,hello",
                                      "--mx-host=one.test,mail.test,10",
                                      "--host-record=inside.test,10.0.0.1"};
    for (int i = 0; i < 60; ++i)
      words.push_back("--txt-record=many.test,record number " + std::to_string(i) + " of a long answer");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const char* path = std::filesystem::exists("/usr/sbin/dnsmasq") ? "/usr/sbin/dnsmasq" : "/usr/bin/dnsmasq";
    if (posix_spawn(&pid_, path, nullptr, nullptr, argv.data(), environ) != 0) {
      std::fprintf(stderr, "dnsmasq cannot be started: Debian's dnsmasq-base is needed\n");
      std::abort();
    }
    if (Answers()) return true;
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
    std::filesystem::remove(log_);
    return false;
  }

  pid_t pid_ = 0;
  uint16_t port_ = 0;
  std::string log_;
};

class DnsmasqTest : public testing::Test {
 protected:
  std::string Dig(const ResolverHarness& resolver, const std::string& words) {
    return Output("dig +tries=1 +timeout=3 @127.0.0.1 -p " + std::to_string(resolver.port()) + " " + words);
  }
  Dnsmasq upstream_;
};

TEST_F(DnsmasqTest, DigSeesAnswersDenialsAndReasons) {
  ResolverHarness resolver(
      {.allows = {"GET one.test", "GET alias.test", "GET four.test", "GET six.test", "GET inside.test", "GET gone.test"},
       .upstream = {upstream_.endpoint()}});
  EXPECT_TRUE(Has(Dig(resolver, "+short one.test A"), "198.18.0."));
  EXPECT_TRUE(Has(Dig(resolver, "+short one.test AAAA"), "fd"));
  EXPECT_TRUE(Has(Dig(resolver, "+short alias.test A"), "198.18.0.")) << "an alias is one name to the client";
  EXPECT_TRUE(Has(Dig(resolver, "+short six.test A"), "198.18.0.")) << "the proxy dials whatever family exists";
  for (const char* question : {"inside.test A", "inside.test AAAA"}) {
    const std::string filtered = Dig(resolver, question);
    EXPECT_TRUE(Has(filtered, "NOERROR") && Has(filtered, "ANSWER: 0")) << filtered;
    EXPECT_TRUE(Has(filtered, "EDE: 17 (Filtered)") && Has(filtered, "10.0.0.1")) << filtered;
  }
  EXPECT_TRUE(Has(Dig(resolver, "+tcp +short one.test A"), "198.18.0."));
  EXPECT_TRUE(Has(Dig(resolver, "+noedns +short one.test A"), "198.18.0."));
  EXPECT_TRUE(Has(Dig(resolver, "gone.test A"), "NXDOMAIN"));
  const std::string denied = Dig(resolver, "secret-name.example A");
  EXPECT_TRUE(Has(denied, "NXDOMAIN")) << denied;
  EXPECT_TRUE(Has(denied, "EDE: 15 (Blocked)")) << denied;
  EXPECT_TRUE(Has(denied, "secret-name.example")) << denied;
  EXPECT_TRUE(Has(Dig(resolver, "one.test HTTPS"), "NOERROR"));
  EXPECT_TRUE(Has(Dig(resolver, "one.test ANY +notcp"), "RFC8482"));
  EXPECT_TRUE(Has(Dig(resolver, "one.test AXFR"), "Transfer failed"));
  EXPECT_TRUE(Has(Dig(resolver, "-c CH -t TXT version.bind"), "REFUSED"));
  EXPECT_TRUE(Has(Dig(resolver, "+edns=1 +noednsneg one.test"), "BADVERS"));
  EXPECT_TRUE(Has(Dig(resolver, "+opcode=NOTIFY one.test"), "NOTIMP"));
  EXPECT_TRUE(Has(Dig(resolver, "-x 198.18.0.1 +short"), ".test."));
  EXPECT_FALSE(Has(upstream_.Log(), "secret-name")) << "a denied name never leaves";
  EXPECT_TRUE(Has(upstream_.Log(), "six.test"));
}

TEST_F(DnsmasqTest, LongAnswersAreWholeByTcp) {
  ResolverHarness resolver({.allows = {},
                            .yaml = "version: 1\nrules:\n  - allow: dns many.test\n    types: [TXT]\n",
                            .upstream = {upstream_.endpoint()}});
  const std::string udp = Dig(resolver, "many.test TXT +ignore");
  EXPECT_TRUE(Has(udp, " tc ")) << udp;
  EXPECT_TRUE(Has(udp, "ANSWER: 0")) << udp;
  EXPECT_TRUE(Has(udp, "OPT PSEUDOSECTION")) << udp;
  EXPECT_TRUE(Has(Dig(resolver, "many.test TXT +tcp"), "ANSWER: 60"));
  EXPECT_TRUE(Has(Dig(resolver, "many.test TXT"), "ANSWER: 60")) << "dig falls back by itself";
}

TEST_F(DnsmasqTest, OtherTypesAreRelayed) {
  ResolverHarness resolver({.allows = {},
                            .yaml = "version: 1\nrules:\n  - allow: dns one.test\n    types: [TXT, MX]\n",
                            .upstream = {upstream_.endpoint()}});
  EXPECT_TRUE(Has(Dig(resolver, "+short one.test TXT"), "\"hello\""));
  EXPECT_TRUE(Has(Dig(resolver, "+short one.test MX"), "10 mail.test."));
}

TEST(LibcTest, GetentAndAStaticMuslProgramResolveThroughIt) {
  std::string folder = (std::filesystem::temp_directory_path() / "sluice-musl-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/look.c") << kLookProgram;
  const std::string built = Output("musl-gcc -static -o " + folder + "/look " + folder + "/look.c && echo built");
  ASSERT_TRUE(Has(built, "built")) << "Debian's musl-tools is needed: " << built;
  EXPECT_TRUE(InOwnPlace("nameserver 127.0.0.1\noptions ndots:1 timeout:2 attempts:2\n", [&] {
    const Dnsmasq upstream;
    ResolverHarness resolver(
        {.allows = {"GET one.test"}, .yaml = "", .upstream = {upstream.endpoint()}, .bind = Bind::kV4, .pool = 0, .port = 53});
    const std::string look = folder + "/look ";
    return Shows("getent ahostsv4 one.test", "198.18.0.1") && Shows("getent ahostsv6 one.test", "fd") &&
           Shows("getent hosts localhost", "localhost") && Shows("getent ahosts denied.test; echo rc=$?", "rc=2") &&
           Shows("getent hosts 198.18.0.1", "one.test") && Shows(look + "one.test", "198.18.0.1") &&
           Shows(look + "one.test", "fd") && Shows(look + "denied.test", "Name does not resolve");
  }));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice::dns
