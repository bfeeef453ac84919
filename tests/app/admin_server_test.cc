// The server with real curl: its doors, who may come in, streams, and what does not take a request at its word.
#include "app/admin_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "app/administration.h"
#include "app/health_probe.h"
#include "audit/audit.h"
#include "base/stderr_lines.h"
#include "base/unique_fd.h"
#include "tests/app/admin_support.h"

namespace sluice::app {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

std::string RunShell(const std::string& command, int* code = nullptr) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  size_t n = 0;
  while ((n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0) out.append(buffer.data(), n);
  const int status = pclose(pipe);
  if (code != nullptr) *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return out;
}

enum class FrontDoor : uint8_t { kShut, kOpen };

struct Bed : AdminBed {
  explicit Bed(FrontDoor with_front = FrontDoor::kShut) {
    std::string name = std::filesystem::temp_directory_path() / "admin-server-XXXXXX";
    folder = mkdtemp(name.data());
    token_file = folder + "/token";
    std::ofstream(token_file) << "0123456789abcdef0123456789abcdef\n";
    chmod(token_file.c_str(), 0600);
    AdminAddresses addresses;
    addresses.admin = {*ParseListen("unix:" + folder + "/admin.sock"), *ParseListen("127.0.0.1:0")};
    addresses.token_file = token_file;
    addresses.health = *ParseListen("127.0.0.1:0");
    if (with_front == FrontDoor::kOpen) {
      OpenSandboxOptions options;
      options.token = "front-token";
      front.emplace(options, EgressPolicy{}, EgressOverlay{}, [this](const std::string& text) {
        StoredPolicy next;
        next.text = text;
        next.name = "opensandbox";
        next.source = "the OpenSandbox front";
        return api.Apply(next);
      });
      addresses.front = *ParseListen("127.0.0.1:0");
    }
    auto started = AdminServer::Start(addresses, api, stream, front ? &*front : nullptr);
    if (!started) throw std::runtime_error(started.error().message);
    server = *std::move(started);
    tcp = server->admin_addresses()[1];
  }
  ~Bed() {
    server.reset();
    EXPECT_FALSE(std::filesystem::exists(folder + "/admin.sock"));
    std::filesystem::remove_all(folder);
  }
  std::string Curl(const std::string& rest) const {
    return RunShell("curl -sS --max-time 10 --noproxy '*' --unix-socket " + folder + "/admin.sock " + rest + " 2>&1");
  }
  std::string Tcp(const std::string& rest) const { return RunShell("curl -sS --max-time 10 --noproxy '*' " + rest + " 2>&1"); }

  std::string folder;
  std::string token_file;
  std::string tcp;
  std::optional<OpenSandboxFront> front;
  std::unique_ptr<AdminServer> server;
};

TEST(AdminServer, ServesThePolicyToItsOwnUserOverAUnixSocket) {
  const Bed bed;
  struct stat about{};
  ASSERT_EQ(stat((bed.folder + "/admin.sock").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  EXPECT_THAT(bed.Curl("-i http://x/v1/policy"), HasSubstr("ETag: \"1\""));
  EXPECT_EQ(json::parse(bed.Curl("-X PUT --data-binary 'version: 1' http://x/v1/policy"))["revision"], 2);
  EXPECT_THAT(bed.Curl("-I http://x/v1/policy"), HasSubstr("Content-Length: 10"));
}

TEST(AdminServer, TurnsAnotherUserAwayFromItsSocket) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const Bed bed;
  chmod(bed.folder.c_str(), 0755);
  chmod((bed.folder + "/admin.sock").c_str(), 0666);
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(3);
    const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (bed.folder + "/admin.sock").copy(address.sun_path, sizeof address.sun_path - 1);
    if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) _exit(4);
    const std::string_view request = "GET /v1/policy HTTP/1.1\r\nHost: x\r\n\r\n";
    (void)!send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL);
    char byte = 0;
    _exit(recv(socket.get(), &byte, 1, 0) <= 0 ? 0 : 5);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(AdminServer, WantsTheTokenOverTcp) {
  const Bed bed;
  const std::string url = "http://" + bed.tcp + "/v1/status";
  EXPECT_THAT(bed.Tcp("-i " + url), HasSubstr("401 Unauthorized"));
  EXPECT_THAT(bed.Tcp("-i -H 'Authorization: Bearer 0123456789abcdef0123456789abcdeX' " + url), HasSubstr("401"));
  EXPECT_THAT(bed.Tcp("-i -H 'Authorization: Bearer 0123456789abcdef0123456789abcdef' " + url), HasSubstr("200 OK"));
  EXPECT_THAT(bed.Tcp("-i http://" + bed.tcp + "/v1/decisions"), HasSubstr("401"));
  std::ofstream(bed.token_file) << "another-token-of-some-length\n";
  EXPECT_THAT(bed.Tcp("-i -H 'Authorization: Bearer another-token-of-some-length' " + url), HasSubstr("200 OK"));
  chmod(bed.token_file.c_str(), 0644);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i)  // whoever asks
    EXPECT_THAT(bed.Tcp("-i -H 'Authorization: Bearer another-token-of-some-length' " + url), HasSubstr("503"));
  EXPECT_TRUE(FlushStderr(std::chrono::seconds(20)));
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(told, '\n'), 1) << told;
}

// The head alone, and what is answered to it.
std::string AnswerToHead(const std::string& address, const std::string& head) {
  const size_t colon = address.rfind(':');
  return RunShell("printf '" + head +
                  "' | timeout 5 python3 -c 'import socket,sys; c = socket.create_connection((sys.argv[1], int(sys.argv[2]))); "
                  "c.sendall(sys.stdin.buffer.read()); print(c.recv(4096).decode())' " +
                  address.substr(0, colon) + " " + address.substr(colon + 1) + " 2>&1");
}

TEST(AdminServer, ReadsNoLongBodyOfWhoHasNoToken) {
  const Bed bed;
  const std::string head = "PUT /v1/policy HTTP/1.1\\r\\nHost: x\\r\\n";
  std::vector<std::future<std::string>> silent;  // for as long as whoever asks has patience
  for (const char* framing : {"Content-Length: 1000000\\r\\n\\r\\n", "Transfer-Encoding: chunked\\r\\n\\r\\n"}) {
    EXPECT_THAT(AnswerToHead(bed.tcp, head + framing), HasSubstr("401 Unauthorized")) << framing;
    const std::string with = head + "Authorization: Bearer 0123456789abcdef0123456789abcdef\\r\\n" + framing;
    silent.push_back(std::async(std::launch::async, AnswerToHead, bed.tcp, with));
  }
  const Bed open(FrontDoor::kOpen);
  const std::string post = "POST /policy HTTP/1.1\\r\\nHost: x\\r\\n";
  const std::string length = "Content-Length: 1000000\\r\\n\\r\\n";
  EXPECT_THAT(AnswerToHead(open.server->front_address(), post + length), HasSubstr("401 Unauthorized"));
  silent.push_back(std::async(std::launch::async, AnswerToHead, open.server->front_address(),
                              post + "OPENSANDBOX-EGRESS-AUTH: front-token\\r\\n" + length));
  EXPECT_THAT(AnswerToHead(bed.server->health_address(), head + "Content-Length: 1000000\\r\\n\\r\\n"), HasSubstr("413"));
  for (auto& one : silent) EXPECT_THAT(one.get(), Not(HasSubstr("HTTP/1.1"))) << "the body is waited for";
}

// A connection to a door, as AdminServer names it.
UniqueFd Dial(const std::string& door, timeval patience = {10, 0}) {
  const bool local = door.starts_with("unix:");
  sockaddr_storage to{};
  socklen_t size = sizeof(sockaddr_un);
  if (local) {
    auto* address = reinterpret_cast<sockaddr_un*>(&to);
    address->sun_family = AF_UNIX;
    door.copy(address->sun_path, sizeof address->sun_path - 1, 5);
  } else {
    const size_t colon = door.rfind(':');
    size = static_cast<socklen_t>(
        Endpoint{*IpAddress::Parse(door.substr(0, colon)), static_cast<uint16_t>(std::stoi(door.substr(colon + 1)))}.ToSockaddr(
            &to));
  }
  UniqueFd socket(::socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&to), size), 0) << door;
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return socket;
}

// The status that a request is answered with; 0: none. Whoever refuses a body need not read it, so sending may fail.
int StatusOf(const UniqueFd& socket, std::string_view request) {
  while (!request.empty()) {
    const ssize_t sent = send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL);
    if (sent <= 0) break;
    request.remove_prefix(static_cast<size_t>(sent));
  }
  std::array<char, 4096> answer;
  const ssize_t got = recv(socket.get(), answer.data(), answer.size(), 0);
  const std::string_view text(answer.data(), static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return text.starts_with("HTTP/1.1 ") ? std::atoi(text.data() + 9) : 0;
}

struct BodyCase {
  const char* line;  ///< method and target
  const char* body;  ///< what it begins with; the rest is `fill`
  char fill;         ///< that changes nothing
  int status;        ///< with a body of exactly the bound
  size_t bound = kMaxAdminBody;
};

std::string WithBody(const BodyCase& what, const std::string& fields, size_t size, bool chunked) {
  std::string body = what.body;
  body.resize(size, what.fill);
  const std::string head = fmt::format("{} HTTP/1.1\r\nHost: x\r\n{}", what.line, fields);
  if (chunked) return fmt::format("{}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n", head, size, body);
  return fmt::format("{}Content-Length: {}\r\n\r\n{}", head, size, body);
}

void ExpectExactBound(const BodyCase& what, const std::string& door, const std::string& fields) {
  for (const bool chunked : {false, true}) {
    EXPECT_EQ(StatusOf(Dial(door), WithBody(what, fields, what.bound + 1, chunked)), 413) << what.line << chunked;
    EXPECT_EQ(StatusOf(Dial(door), WithBody(what, fields, what.bound, chunked)), what.status) << what.line << chunked;
  }
}

TEST(AdminServer, TakesABodyOfExactlyTheBoundAtEveryAddressAndNotOneByteMore) {
  const Bed bed(FrontDoor::kOpen);
  const std::string token = "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n";
  for (const BodyCase& what : std::vector<BodyCase>{
           {"POST /v1/explain", R"({"question":"GET https://a.test/"})", ' ', 200},
           {"PATCH /v1/policy", R"({"replace":{"first":{"allow":"GET b.test"}}})", ' ', 200},
           {"PUT /v1/policy/rules/first", R"({"allow":"GET c.test"})", ' ', 200},
           {"PUT /v1/policy?prove=1", "version: 1\n#", 'x', 200},
           {"PUT /v1/policy", "version: 1\nrules:\n  - allow: GET a.test\n    id: first\n#", 'x', 200},
           {"POST /v1/stop", "", 'x', 404},
           {"GET /v1/status", "", 'x', 200},
           {"GET /healthz", "", 'x', 200},
       })
    for (const std::string& door : bed.server->admin_addresses())
      ExpectExactBound(what, door, door.starts_with("unix:") ? "" : token);
  // The rule is there once.
  ExpectExactBound({"DELETE /v1/policy/rules/nobody", "", 'x', 404}, bed.server->admin_addresses()[0], "");
  for (const char* path : {"/healthz", "/readyz", "/metrics"})
    ExpectExactBound({fmt::format("GET {}", path).c_str(), "", 'x', 200, kMaxStrangerBody}, bed.server->health_address(), "");
  for (const BodyCase& what : std::vector<BodyCase>{
           {"POST /policy", R"({"defaultAction":"deny","egress":[{"action":"allow","target":"a.test"}]})", ' ', 200},
           {"PUT /policy", R"({"defaultAction":"deny","egress":[{"action":"allow","target":"b.test"}]})", ' ', 200},
           {"PATCH /policy", R"([{"action":"allow","target":"c.test"}])", ' ', 200},
           {"DELETE /policy", R"(["nobody.test"])", ' ', 200},
       })
    ExpectExactBound(what, bed.server->front_address(), "OPENSANDBOX-EGRESS-AUTH: front-token\r\n");
}

TEST(AdminServer, ReadsOfAStrangerABodyOfExactlyHisBound) {
  const Bed bed(FrontDoor::kOpen);
  const auto head = [](size_t size) {
    return fmt::format("PUT /policy HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", size);
  };
  for (const std::string& door : {bed.tcp, bed.server->front_address()}) {
    EXPECT_EQ(StatusOf(Dial(door), head(kMaxStrangerBody + 1)), 401) << "at once";
    EXPECT_EQ(StatusOf(Dial(door, {0, 300'000}), head(kMaxStrangerBody)), 0) << "it is waited for";
    EXPECT_EQ(StatusOf(Dial(door), head(kMaxStrangerBody) + std::string(kMaxStrangerBody, 'x')), 401);
  }
}

TEST(AdminServer, TakesSoManyHeaderFieldsAndNoMore) {
  const Bed bed;
  std::string fields;
  for (size_t i = 1; i < kMaxAdminFields; ++i) fields += fmt::format("x{}:\\r\\n", i);
  const std::string head = "GET /healthz HTTP/1.1\\r\\nHost: x\\r\\n" + fields;
  EXPECT_THAT(AnswerToHead(bed.server->health_address(), head + "\\r\\n"), HasSubstr("200 OK"));
  EXPECT_THAT(AnswerToHead(bed.server->health_address(), head + "y:\\r\\n\\r\\n"), HasSubstr("400 Bad Request"));
}

TEST(AdminServer, TellsHealthAloneAtItsHealthPort) {
  Bed bed;
  const std::string at = "http://" + bed.server->health_address();
  EXPECT_THAT(bed.Tcp("-i " + at + "/healthz"), HasSubstr("200 OK"));
  EXPECT_THAT(bed.Tcp("-i " + at + "/readyz"), HasSubstr("\"ready\":true"));
  EXPECT_THAT(bed.Tcp(at + "/metrics"), HasSubstr("sluice_ready 1\n"));
  for (const char* path : {"/v1/policy", "/v1/status", "/v1/decisions", "/"})
    EXPECT_THAT(bed.Tcp("-i " + at + path), HasSubstr("404"));
  EXPECT_THAT(bed.Tcp("-i -X PUT " + at + "/metrics"), HasSubstr("405"));
  EXPECT_EQ(RunHealth({bed.server->health_address()}), 0);
  bed.control.SetChecks({{"fence", false, "its table is gone"}});
  EXPECT_THAT(bed.Tcp("-i " + at + "/readyz"), HasSubstr("503 Service Unavailable"));
  EXPECT_EQ(RunHealth({bed.server->health_address()}), 1);
  EXPECT_EQ(RunHealth({"unix:" + bed.folder + "/admin.sock", "/healthz"}), 0);
  EXPECT_EQ(RunHealth({"nowhere"}), 2);
}

TEST(AdminServer, NobodyAnswersTheProbeOfAPortThatIsShut) { EXPECT_EQ(RunHealth({"127.0.0.1:1", "/readyz", "500ms"}), 1); }

TEST(AdminServer, StreamsDecisionsAsTheyAreWritten) {
  Bed bed;
  audit::Options options;
  options.console = false;
  options.tap = &bed.stream;
  const auto writer = audit::Writer::Start(options);
  ASSERT_TRUE(writer);
  std::string got;
  std::thread reader([&] { got = bed.Curl("-N --max-time 3 'http://x/v1/decisions?verdict=denied'"); });
  for (int i = 0; i < 200 && !bed.stream.wants_lines(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_TRUE(bed.stream.wants_lines());
  for (const bool allowed : {true, false, true}) {
    policy::DecisionEvent event;
    event.target.host = allowed ? "fine.test" : "bad.test";
    event.decision.allowed = allowed;
    event.decision.reason = allowed ? policy::Reason::kAllowed : policy::Reason::kNoRule;
    EXPECT_TRUE((*writer)->Record(std::move(event)));
  }
  reader.join();
  EXPECT_THAT(got, HasSubstr("bad.test"));
  EXPECT_THAT(got, ::testing::Not(HasSubstr("fine.test")));
}

TEST(AdminServer, StreamsNothingForAFilterThatNoRecordPasses) {
  const Bed bed;
  for (const char* query : {"verdict=maybe", "verdict=", "layer=foo", "layer=dns,tls", "exchanges=yes", "verdicts=denied",
                            "layer=dns&layer=tls", "exchanges=1&since=1"})
    EXPECT_THAT(bed.Curl(fmt::format("-N -i --max-time 5 'http://x/v1/decisions?{}'", query)), HasSubstr("400 Bad Request"))
        << query;
  EXPECT_THAT(bed.Curl("'http://x/v1/decisions?layer=foo'"),
              HasSubstr("`layer` is one of dns, connect, tls, request, unix, udp, syscall"));
  EXPECT_THAT(bed.Curl("'http://x/v1/decisions?verdicts=denied'"), HasSubstr("those known are verdict, layer, exchanges"));
  EXPECT_THAT(bed.Tcp(fmt::format("-i 'http://{}/readyz?x=1'", bed.server->health_address())), HasSubstr("400 Bad Request"));
}

TEST(AdminServer, LeavesAQueryOfTheFrontAloneAsItsProjectDoes) {
  const Bed bed(FrontDoor::kOpen);
  EXPECT_THAT(bed.Tcp(fmt::format("-i 'http://{}/healthz?x=1'", bed.server->front_address())), HasSubstr("200 OK"));
  EXPECT_THAT(
      bed.Tcp(fmt::format("-i -H 'OPENSANDBOX-EGRESS-AUTH: front-token' 'http://{}/policy?x=1'", bed.server->front_address())),
      HasSubstr("200 OK"));
}

TEST(AdminServer, EndsWhileReadersRead) {
  std::thread reader;
  {
    Bed bed;
    const std::string command =
        "curl -sS -N --max-time 20 --unix-socket " + bed.folder + "/admin.sock http://x/v1/decisions 2>/dev/null";
    reader = std::thread([command] { (void)RunShell(command); });
    for (int i = 0; i < 200 && !bed.stream.wants_lines(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(bed.stream.wants_lines());
  }
  reader.join();
}

TEST(AdminServer, RefusesWhatIsTooLongOrNotHttp) {
  const Bed bed;
  EXPECT_THAT(RunShell("head -c 1200000 /dev/zero | tr '\\0' x | curl -sS -i --max-time 10 -H 'Expect:' --unix-socket " +
                       bed.folder + "/admin.sock -X PUT --data-binary @- http://x/v1/policy 2>&1"),
              HasSubstr("413"));
  EXPECT_THAT(bed.Curl("-i -H \"X: $(head -c 20000 /dev/zero | tr '\\0' x)\" http://x/v1/policy"), HasSubstr("431"));
  EXPECT_THAT(bed.Curl("-i -H 'If-Match: \"1\"' -H 'If-Match: \"2\"' -X PUT -d 'version: 1' http://x/v1/policy"),
              HasSubstr("400"));
  EXPECT_THAT(bed.Curl("-i --path-as-is http://x/v1/../v1/policy"), HasSubstr("400"));
  EXPECT_EQ(bed.control.Policy().revision, 1u);
}

TEST(AdminServer, AnswersProbesWhileOthersHoldTheirConnections) {
  const Bed bed;
  std::vector<UniqueFd> idle;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (bed.folder + "/admin.sock").copy(address.sun_path, sizeof address.sun_path - 1);
  for (size_t i = 0; i < kMaxAdminConnections + 8; ++i) {
    idle.emplace_back(::socket(AF_UNIX, SOCK_STREAM, 0));
    ASSERT_EQ(connect(idle.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  EXPECT_THAT(bed.Tcp("-i http://" + bed.server->health_address() + "/readyz"), HasSubstr("200 OK"));
}

// What is fenced reaches the health port as the probe in the sidecar's own container does.
TEST(AdminServer, AnswersAProbeOfADoorThatIsFullOfSilentConnections) {
  const Bed bed;
  const std::string at = bed.server->health_address();
  ASSERT_TRUE(at.starts_with("127.0.0.1:")) << at;
  sockaddr_storage address{};
  const Endpoint health{*IpAddress::Parse("127.0.0.1"), static_cast<uint16_t>(std::stoi(at.substr(at.find(':') + 1)))};
  const auto size = static_cast<socklen_t>(health.ToSockaddr(&address));
  std::vector<UniqueFd> held;
  for (size_t i = 0; i < 3 * kMaxAdminConnections; ++i) {
    held.emplace_back(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(held.back().get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    // Some have begun to ask.
    if (i % 2 == 0) ASSERT_EQ(::send(held.back().get(), "GET /readyz HTTP/1.1\r\n", 22, MSG_NOSIGNAL), 22);
  }
  for (int probe = 0; probe < 5; ++probe)
    EXPECT_THAT(bed.Tcp("-i http://" + bed.server->health_address() + "/readyz"), HasSubstr("200 OK")) << probe;
}

TEST(AdminServer, ServesOpenSandboxAtADoorOfItsOwn) {
  Bed bed(FrontDoor::kOpen);
  const std::string at = "http://" + bed.server->front_address();
  EXPECT_EQ(bed.Tcp(at + "/healthz"), "ok");
  EXPECT_THAT(bed.Tcp("-i -X POST -d '{}' " + at + "/policy"), HasSubstr("401"));
  const std::string body = R"('{"defaultAction":"deny","egress":[{"action":"allow","target":"*.bing.com"}]}')";
  const std::string answer = bed.Tcp("-X POST -H 'OPENSANDBOX-EGRESS-AUTH: front-token' -d " + body + " " + at + "/policy");
  EXPECT_EQ(json::parse(answer), (json{{"status", "ok"}, {"mode", "enforcing"}, {"enforcementMode", "dns+nft"}}));
  EXPECT_EQ(bed.control.Policy().source, "the OpenSandbox front");
  EXPECT_THAT(bed.Tcp("-H 'OPENSANDBOX-EGRESS-AUTH: front-token' " + at + "/policy"), HasSubstr("*.bing.com"));
  EXPECT_THAT(bed.Tcp("-i " + at + "/v1/policy"), HasSubstr("404")) << "only the front stands there";
}

TEST(AdminServer, IsNotOpenedWithoutAToken) {
  AdminAddresses addresses;
  addresses.admin = {*ParseListen("127.0.0.1:0")};
  EXPECT_FALSE(CheckAdminAddresses(addresses));
  const Bed bed;
  addresses.token_file = bed.token_file;
  EXPECT_TRUE(CheckAdminAddresses(addresses));
  addresses.admin = {*ParseListen("0.0.0.0:0")};
  EXPECT_THAT(CheckAdminAddresses(addresses).error().message, HasSubstr("--admin-open"));
  addresses.beyond_loopback = true;
  EXPECT_TRUE(CheckAdminAddresses(addresses));
  std::ofstream(bed.token_file) << "short\n";
  EXPECT_FALSE(CheckAdminAddresses(addresses));
}

TEST(Administration, BeginsWithWhatWasKeptUnlessTheOperatorSpokeSince) {
  AdminPlan plan;
  EXPECT_EQ(FirstPolicy(plan, "d1")->has_value(), false);
  plan.stored.emplace();
  plan.stored->text = "version: 1\n";
  plan.stored->source = "the admin API";
  plan.stored->over = "d1";
  EXPECT_EQ(FirstPolicy(plan, "d1")->value().text, "version: 1\n");
  EXPECT_FALSE(FirstPolicy(plan, "d2")->has_value());
  plan.policy_url = "https://p.test/policy.yaml";
  EXPECT_EQ(FirstPolicy(plan, "")->value().text, "version: 1\n") << "nothing seen yet: deny-all";
  EXPECT_EQ(OwnerOf(plan), PolicyOwner::kBundle);
}

}  // namespace
}  // namespace sluice::app
