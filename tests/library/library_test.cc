// libsluice through its public headers alone: policies and questions without a privilege, runs with the real supervisor.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "sluice/sluice.h"
#include "sluice/sluice.hpp"

namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr const char* kPolicy = "version: 1\nrules:\n  - allow: GET a.test/pub/**\n    id: pub\n";
constexpr const char* kProgram = SLUICE_BINARY_DIR "/sluice";

sluice::Policy MustLoad(const std::string& text = kPolicy) {
  auto policy = sluice::Policy::FromText(text);
  EXPECT_TRUE(policy) << policy.error().message;
  return *std::move(policy);
}

// A file as a standard stream, without a name.
class Capture {
 public:
  Capture() {
    std::string name = std::filesystem::temp_directory_path() / "library-out-XXXXXX";
    fd_ = mkostemp(name.data(), O_CLOEXEC);
    unlink(name.c_str());
  }
  ~Capture() { close(fd_); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] std::string text() const {
    std::string out(1 << 20, '\0');
    const ssize_t n = pread(fd_, out.data(), out.size(), 0);
    out.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return out;
  }

 private:
  int fd_ = -1;
};

sluice::Options MakeOptions(const std::vector<std::string>& command, const std::string& policy = kPolicy) {
  static const std::string folder = [] {
    std::string name = std::filesystem::temp_directory_path() / "library-test-XXXXXX";
    const std::string made = mkdtemp(name.data());
    static const struct Remover {
      std::string path;
      ~Remover() { std::filesystem::remove_all(path); }
    } remover{made};
    return made;
  }();
  sluice::Options options;
  options.Command(command).UsePolicy(MustLoad(policy)).Set(SLUICE_PROGRAM, kProgram).Set(SLUICE_WORK_DIRECTORY, folder);
  return options;
}

TEST(Library, IsTheVersionThatItsHeaderSays) {
  EXPECT_EQ(sluice_abi_version(), SLUICE_ABI_VERSION);
  EXPECT_STREQ(sluice_version(), SLUICE_VERSION);
}

TEST(Library, TellsWhereAPolicyIsWrongToPeopleAndPrograms) {
  const auto policy = sluice::Policy::FromText("version: 1\nrules:\n  - allow: gti fetch-pack a.test/r\n", "mine.yaml");
  ASSERT_FALSE(policy);
  EXPECT_EQ(policy.error().code, SLUICE_INVALID);
  EXPECT_THAT(policy.error().message, HasSubstr("mine.yaml:3"));
  EXPECT_THAT(policy.error().message, HasSubstr("git"));
  const json error = json::parse(policy.error().json);
  EXPECT_EQ(error["code"], "invalid");
  EXPECT_EQ(error["file"], "mine.yaml");
  EXPECT_EQ(error["line"], 3);
  EXPECT_FALSE(sluice::Policy::FromFile("/nowhere/policy.yaml"));
}

TEST(Library, AnswersAQuestionWithoutAnyProcess) {
  const sluice::Policy policy = MustLoad();
  EXPECT_EQ(policy.rules(), 1u);
  EXPECT_EQ(policy.digest().size(), 64u);
  const auto allowed = policy.Decide({"GET https://a.test/pub/x"});
  ASSERT_TRUE(allowed);
  EXPECT_TRUE(allowed->allowed);
  EXPECT_EQ(allowed->rule, "pub");
  const auto denied = policy.Decide({"POST https://a.test/pub/x", "", "", "2027-01-01"});
  ASSERT_TRUE(denied);
  EXPECT_FALSE(denied->allowed);
  EXPECT_EQ(json::parse(denied->json)["allowed"], false);
  EXPECT_EQ(policy.Decide({"tcp a.test"}).error().code, SLUICE_INVALID);
  EXPECT_EQ(policy.Decide({"GET https://a.test/", "", "not-an-address"}).error().code, SLUICE_INVALID);
}

TEST(Library, ProvesWhatAChangeLetsOut) {
  const sluice::Policy base = MustLoad();
  const sluice::Policy wider = MustLoad("version: 1\nrules:\n  - allow: GET a.test/**\n");
  EXPECT_EQ(base.Prove(base)->verdict, SLUICE_EQUAL);
  EXPECT_EQ(wider.Prove(base)->verdict, SLUICE_NARROWED);
  const auto proof = base.Prove(wider);
  ASSERT_TRUE(proof);
  EXPECT_EQ(proof->verdict, SLUICE_WIDENED);
  EXPECT_FALSE(json::parse(proof->json)["gains"].empty());
}

TEST(Library, TakesStructsOfOtherVersionsAndNoNonsense) {
  const sluice::Policy policy = MustLoad();
  struct {
    sluice_question known;
    char later[32];
  } newer{{}, {}};
  newer.known.question = "GET https://a.test/pub/x";
  newer.known.size = sizeof newer;
  sluice_decision* decision = nullptr;
  EXPECT_EQ(sluice_decide(policy.get(), &newer.known, &decision, nullptr), SLUICE_OK);
  sluice_decision_free(decision);
  newer.known.size = 3;
  EXPECT_EQ(sluice_decide(policy.get(), &newer.known, &decision, nullptr), SLUICE_INVALID);
  EXPECT_EQ(sluice_decide(nullptr, nullptr, nullptr, nullptr), SLUICE_INVALID);
  EXPECT_EQ(sluice_options_set(nullptr, SLUICE_NAME, "x", nullptr), SLUICE_INVALID);
  sluice_error* error = nullptr;
  sluice_options* options = sluice_options_new();
  EXPECT_EQ(sluice_options_set(options, 9999, "x", &error), SLUICE_INVALID);
  EXPECT_THAT(sluice_error_message(error), HasSubstr("9999"));
  sluice_error_free(error);
  EXPECT_EQ(sluice_start(options, nullptr, nullptr), SLUICE_INVALID);
  sluice_run* run = nullptr;
  EXPECT_EQ(sluice_start(options, &run, nullptr), SLUICE_INVALID);
  sluice_options_free(options);
  sluice_run_free(nullptr);
  sluice_policy_free(nullptr);
  EXPECT_EQ(sluice_run_stop(nullptr, 0, nullptr), SLUICE_INVALID);
}

// A sanitizer has a malloc of its own.
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer) && !__has_feature(memory_sanitizer)
#define SLUICE_FAILING_MALLOC
// Every allocation of this thread fails from the `fail_at`-th on.
thread_local size_t fail_at = 0;
thread_local size_t allocated = 0;

TEST(Library, SaysThatMemoryIsOutAndThrowsNothing) {
  sluice_policy* const same = [] {
    sluice_policy* made = nullptr;
    EXPECT_EQ(sluice_policy_from_text(kPolicy, strlen(kPolicy), nullptr, &made, nullptr), SLUICE_OK);
    return made;
  }();
  const std::array<std::function<sluice_code(sluice_error**)>, 5> calls = {
      [](sluice_error** error) {
        sluice_policy* made = nullptr;
        const sluice_code code = sluice_policy_from_text(kPolicy, strlen(kPolicy), "p", &made, error);
        sluice_policy_free(made);
        return code;
      },
      [](sluice_error** error) { return sluice_policy_from_file("/nonexistent/policy.yaml", nullptr, error); },
      [&](sluice_error** error) {
        sluice_decision* decision = nullptr;
        sluice_question question{};
        question.size = sizeof question;
        question.question = "GET https://a.test/pub/x";
        const sluice_code code = sluice_decide(same, &question, &decision, error);
        sluice_decision_free(decision);
        return code;
      },
      [](sluice_error** error) { return sluice_run_status(nullptr, nullptr, error); },
      [](sluice_error** error) { return sluice_run_set_policy(nullptr, "x", 1, 0, 0, nullptr, nullptr, error); },
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    sluice_error* error = nullptr;
    allocated = 0;
    fail_at = 1;
    const sluice_code code = calls[i](&error);
    const size_t asked = allocated;
    fail_at = 0;
    EXPECT_GE(asked, 1u) << "call " << i << " is to allocate something";
    EXPECT_TRUE(code == SLUICE_EXHAUSTED || code == SLUICE_INVALID) << "call " << i << " gave " << code;
    EXPECT_STREQ(sluice_error_message(error), "out of memory");
    sluice_error_free(error);
  }
  sluice_policy_free(same);
}
#endif

TEST(LibraryRun, RunsACommandAndTellsHowItEnded) {
  const Capture out;
  auto options = MakeOptions({"/bin/sh", "-c", "echo hello; exit 7"});
  options.Streams(-1, out.fd(), -1);
  auto run = sluice::Run::Start(options);
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_TRUE(run->running());
  const auto result = run->Wait();
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->exit_code, 7);
  EXPECT_EQ(result->complete, 1);
  EXPECT_EQ(result->signal, 0);
  EXPECT_EQ(out.text(), "hello\n");
  EXPECT_FALSE(run->running());
  EXPECT_EQ(run->Status().error().code, SLUICE_ENDED);
}

TEST(LibraryRun, StreamsEachDecisionFromTheFirstToTheLast) {
  std::vector<json> records;
  std::vector<std::string> lines;
  int ended = 0;
  auto options =
      MakeOptions({"/usr/bin/python3", "-c",
                   "import socket\nfor i in range(20):\n  try: socket.create_connection(('192.0.2.%d' % (i+1), 80), 5)\n"
                   "  except OSError: pass"});
  options.Set(SLUICE_NAME, "embedded").Set(SLUICE_LABEL, "k=v");
  options.OnRecord([&](std::string_view line) { records.push_back(json::parse(line)); });
  options.OnLog([&](std::string_view line) { lines.emplace_back(line); });
  options.OnEnded([&] { ++ended; });
  auto run = sluice::Run::Start(options);
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_TRUE(records.empty()) << "no callback during start";
  // The caller's loop.
  while (run->running()) {
    pollfd ready{run->fd(), POLLIN, 0};
    ASSERT_GT(poll(&ready, 1, 30'000), 0);
    ASSERT_TRUE(run->Dispatch());
  }
  pollfd quiet{run->fd(), POLLIN, 0};
  EXPECT_EQ(poll(&quiet, 1, 0), 0) << "nothing to dispatch after the end";
  EXPECT_EQ(ended, 1);
  ASSERT_EQ(records.size(), 20u);
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i]["target"]["address"], "192.0.2." + std::to_string(i + 1));
    EXPECT_EQ(records[i]["sandbox"], "embedded");
    EXPECT_EQ(records[i]["labels"]["k"], "v");
  }
  EXPECT_EQ(run->Wait()->denied, 20u);
  EXPECT_THAT(lines, ::testing::Contains(HasSubstr("192.0.2.1")));
}

TEST(LibraryRun, DispatchesOnAThreadOfItsOwn) {
  std::atomic<int> ended = 0;
  std::atomic<bool> elsewhere = false;
  auto options = MakeOptions({"/bin/true"});
  options.Loop(SLUICE_LOOP_OWN).OnEnded([&, here = std::this_thread::get_id()] {
    elsewhere = std::this_thread::get_id() != here;
    ++ended;
  });
  auto run = sluice::Run::Start(options);
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->fd(), -1);
  EXPECT_EQ(run->Dispatch().error().code, SLUICE_INVALID);
  EXPECT_EQ(run->Wait()->exit_code, 0);
  EXPECT_EQ(ended, 1);
  EXPECT_TRUE(elsewhere);
}

TEST(LibraryRun, SaysInTheSupervisorsWordsWhyACommandDoesNotStart) {
  auto missing = MakeOptions({"no-such-command-anywhere"});
  const auto run = sluice::Run::Start(missing);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, SLUICE_NOT_FOUND);
  EXPECT_THAT(run.error().message, HasSubstr("no-such-command-anywhere"));
  EXPECT_THAT(run.error().message, Not(HasSubstr("sluice: error")));
  auto wrong = MakeOptions({"/bin/true"});
  wrong.Set(SLUICE_TIME_LIMIT, "soon");
  const auto refused = sluice::Run::Start(wrong);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, SLUICE_INVALID);
  EXPECT_THAT(refused.error().message, HasSubstr("soon"));
  auto nothing = MakeOptions({"/bin/true"});
  nothing.Set(SLUICE_PROGRAM, "/nowhere/sluice");
  EXPECT_EQ(sluice::Run::Start(nothing).error().code, SLUICE_NOT_FOUND);
  auto other = MakeOptions({"/bin/true"});
  other.Set(SLUICE_PROGRAM, "/bin/true");
  EXPECT_FALSE(sluice::Run::Start(other));
}

TEST(LibraryRun, StopsKillsAndTimesOut) {
  // Each says when its trap is set.
  const auto await = [](const Capture& out) {
    for (int i = 0; i < 2000 && out.text().empty(); ++i) std::this_thread::sleep_for(milliseconds(10));
    return out.text() == "set\n";
  };
  const Capture polite_out;
  auto options = MakeOptions({"/bin/sh", "-c", "trap 'exit 3' TERM; echo set; while :; do sleep 0.05; done"});
  options.Streams(-1, polite_out.fd(), -1);
  auto polite = sluice::Run::Start(options);
  ASSERT_TRUE(polite) << polite.error().message;
  ASSERT_TRUE(await(polite_out));
  EXPECT_EQ(polite->Wait(milliseconds(100)).error().code, SLUICE_TIMEOUT);
  ASSERT_TRUE(polite->Stop(milliseconds(20'000)));
  EXPECT_EQ(polite->Wait()->exit_code, 3);

  const Capture deaf_out;
  auto deaf = MakeOptions({"/bin/sh", "-c", "trap '' TERM; echo set; while :; do sleep 0.05; done"});
  deaf.Streams(-1, deaf_out.fd(), -1);
  auto stubborn = sluice::Run::Start(deaf);
  ASSERT_TRUE(stubborn);
  ASSERT_TRUE(await(deaf_out));
  ASSERT_TRUE(stubborn->Stop(milliseconds(50)));
  const auto result = stubborn->Wait();
  EXPECT_EQ(result->signal, SIGKILL);
  EXPECT_EQ(result->exit_code, 128 + SIGKILL);

  auto slow = MakeOptions({"/bin/sleep", "600"});
  slow.Set(SLUICE_TIME_LIMIT, "100ms");
  auto late = sluice::Run::Start(slow);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->Wait()->timed_out, 1);
}

// What the run came to, and what was said of it.
struct Launched {
  sluice_result result{};
  std::string log;
};
Launched Launch(sluice::Options& options) {
  Launched launched;
  options.OnLog([&launched](std::string_view line) { launched.log.append(line).append("\n"); });
  auto run = sluice::Run::Start(options);
  EXPECT_TRUE(run) << run.error().message;
  if (!run) return launched;
  const auto end = run->Wait(milliseconds(30'000));
  EXPECT_TRUE(end) << end.error().message;
  if (end) launched.result = *end;
  return launched;
}

std::string ReadWhole(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(LibraryRun, HoldsALaunchToItsLimitsAndSaysWhichOneEndedIt) {
  const Capture output;
  sluice::Options chatty = MakeOptions({"sh", "-c", "ulimit -n; while :; do echo more; done"});
  chatty.Streams(-1, output.fd(), -1).Set(SLUICE_OUTPUT_LIMIT, "64KiB").Set(SLUICE_OPEN_FILE_LIMIT, "77");
  const Launched loud = Launch(chatty);
  EXPECT_EQ(loud.result.ended_by, SLUICE_BY_OUTPUT);
  EXPECT_THAT(loud.log, HasSubstr("limits: "));
  EXPECT_EQ(output.text().substr(0, 3), "77\n");
  EXPECT_LE(output.text().size(), 65536u);

  sluice::Options slow = MakeOptions({"sleep", "60"});
  EXPECT_EQ(Launch(slow.Set(SLUICE_TIME_LIMIT, "100ms")).result.ended_by, SLUICE_BY_TIME);
  sluice::Options hungry = MakeOptions({"sh", "-c", "x=x; while :; do x=$x$x; done"});
  const Launched fed = Launch(hungry.Set(SLUICE_MEMORY_LIMIT, "64MiB").Set(SLUICE_TIME_LIMIT, "30s"));
  EXPECT_NE(fed.result.exit_code, 0);
  EXPECT_NE(fed.result.ended_by, SLUICE_BY_TIME);
  sluice::Options fine = MakeOptions({"true"});
  EXPECT_EQ(Launch(fine).result.ended_by, SLUICE_BY_COMMAND);
}

TEST(LibraryRun, WritesDownWhatALaunchPrintsAndComesTo) {
  std::string name = std::filesystem::temp_directory_path() / "library-launch-XXXXXX";
  const std::filesystem::path folder = mkdtemp(name.data());
  std::filesystem::create_directory(folder / "workspace");
  const Capture output;
  sluice::Options options;
  options.Command({"sh", "-c", "pwd; echo $SEEN.$HIDDEN; echo kept > made; exit 7"})
      .UsePolicy(MustLoad())
      .Set(SLUICE_PROGRAM, kProgram)
      .Streams(-1, output.fd(), -1)
      .Set(SLUICE_WORKSPACE, folder / "workspace")
      .Set(SLUICE_ENVIRONMENT_INHERIT, "none")
      .Set(SLUICE_UNSAFE_ENVIRONMENT, "SEEN=seen")
      .Set(SLUICE_TRANSCRIPT, folder / "transcript")
      .Set(SLUICE_RESULT_FILE, folder / "result")
      .Set(SLUICE_LABEL, "run=17")
      .Set(SLUICE_QUIET, "true");
  setenv("HIDDEN", "hidden", 1);
  const Launched launched = Launch(options);
  EXPECT_EQ(launched.result.exit_code, 7);
  EXPECT_EQ(launched.log, "");
  EXPECT_EQ(output.text(), (folder / "workspace").string() + "\nseen.\n");
  EXPECT_EQ(ReadWhole(folder / "transcript"), output.text());
  EXPECT_EQ(ReadWhole(folder / "workspace/made"), "kept\n");
  const json result = json::parse(ReadWhole(folder / "result"));
  EXPECT_EQ(result["exit_code"], 7);
  EXPECT_EQ(result["labels"]["run"], "17");
  std::filesystem::remove_all(folder);
}

TEST(LibraryRun, GivesTheCommandNoVariableThatLooksLikeACredentialUnlessToldTo) {
  setenv("GITHUB_TOKEN", "ghp_1", 1);
  for (const std::string variable : {"GITHUB_TOKEN", "API_KEY=k3y", "DB=postgres://me:hunter2@db/x"}) {
    const std::string name = variable.substr(0, variable.find('='));
    sluice::Options refused = MakeOptions({"env"});
    const auto run = sluice::Run::Start(refused.Set(SLUICE_ENVIRONMENT, variable));
    EXPECT_EQ(run.error().code, SLUICE_INVALID);
    EXPECT_THAT(run.error().message, HasSubstr("--env " + name + ": it looks like a credential"));
    EXPECT_THAT(run.error().message, Not(MatchesRegex("(.|\n)*(ghp_1|k3y|hunter2)(.|\n)*")));
    const Capture output;
    sluice::Options told = MakeOptions({"env"});
    EXPECT_EQ(Launch(told.Set(SLUICE_UNSAFE_ENVIRONMENT, variable).Streams(-1, output.fd(), -1)).result.exit_code, 0);
    EXPECT_THAT(output.text(), HasSubstr(variable == name ? name + "=ghp_1\n" : variable + "\n"));
  }
  unsetenv("GITHUB_TOKEN");
}

TEST(LibraryRun, PublishesAPortAndTellsWhichOne) {
  sluice::Options options = MakeOptions({"sleep", "60"});
  auto run = sluice::Run::Start(options.Set(SLUICE_PUBLISH, "127.0.0.1:0:8080"));
  ASSERT_TRUE(run) << run.error().message;
  const auto status = run->Status();
  ASSERT_TRUE(status);
  const json ports = json::parse(*status)["run"]["published"];
  ASSERT_EQ(ports.size(), 1u) << *status;
  EXPECT_EQ(ports[0]["inside"], 8080);
  EXPECT_THAT(ports[0]["outside"].get<std::string>(), MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]*"));
}

TEST(LibraryRun, ADenialFailsOrEndsALaunchWhereThatIsAskedFor) {
  const auto connect = [](const char* then) {
    return MakeOptions({"bash", "-c", std::string("(echo > /dev/tcp/151.101.1.1/81) 2>/dev/null; ") + then});
  };
  sluice::Options failing = connect("true");
  EXPECT_EQ(Launch(failing.Set(SLUICE_FAIL_ON_DENY, "true")).result.exit_code, 3);
  sluice::Options not_failing = connect("true");
  EXPECT_EQ(Launch(not_failing.Set(SLUICE_FAIL_ON_DENY, "false")).result.exit_code, 0);
  sluice::Options killed = connect("sleep 60");
  EXPECT_EQ(Launch(killed.Set(SLUICE_KILL_ON_DENY, "true")).result.ended_by, SLUICE_BY_POLICY);
}

TEST(LibraryRun, TakesEachOptionThatItsHeaderNamesAndTellsAWrongValueInTheCommandLinesWords) {
  const std::initializer_list<std::tuple<sluice_option, const char*, const char*>> wrong = {
      {SLUICE_WORKSPACE, "/nowhere", "--workspace /nowhere"},
      {SLUICE_ENVIRONMENT_INHERIT, "all", "--env-inherit"},
      {SLUICE_UNSAFE_ENVIRONMENT, "=x", "--unsafe-env"},
      {SLUICE_MEMORY_LIMIT, "much", "--max-memory much"},
      {SLUICE_PROCESS_LIMIT, "1", "--max-processes 1"},
      {SLUICE_OPEN_FILE_LIMIT, "1", "--max-open-files 1"},
      {SLUICE_OUTPUT_LIMIT, "-1", "--max-output"},
      {SLUICE_TRANSCRIPT, "/nowhere/x", "--transcript"},
      {SLUICE_RESULT_FILE, "/nowhere/x", "--result"},
      {SLUICE_PUBLISH, "udp", "udp"},
      {SLUICE_ON_DISCONNECT, "wait", "--on-disconnect"},
      {SLUICE_VIA_AUTHORIZATION, "x", "--via-auth"},
      {SLUICE_VIA_CA, "x", "--via-ca"},
      {SLUICE_VIA_EXCEPT, "x", "--via-except"},
      {SLUICE_FAIL_ON_DENY, "perhaps", "perhaps"},
      {SLUICE_KILL_ON_DENY, "perhaps", "perhaps"},
      {SLUICE_ALLOW_NESTED, "perhaps", "perhaps"},
      {SLUICE_ALLOW_USER_NAMESPACES, "perhaps", "perhaps"},
      {SLUICE_ALLOW_CONTAINERS, "perhaps", "perhaps"},
      {SLUICE_QUIET, "perhaps", "perhaps"}};
  for (const auto& [option, value, words] : wrong) {
    sluice::Options options = MakeOptions({"true"});
    const auto run = sluice::Run::Start(options.Set(option, value));
    EXPECT_EQ(run.error().code, SLUICE_INVALID) << option << ": " << run.error().message;
    EXPECT_THAT(run.error().message, HasSubstr(words)) << option;
  }
  sluice::Options options = MakeOptions({"true"});
  EXPECT_EQ(sluice::Run::Start(options.Set(SLUICE_ALLOW_CONTAINERS + 1, "x")).error().code, SLUICE_INVALID);
}

TEST(LibraryRun, PutsAnotherPolicyInForceAndProvesItFirst) {
  auto options = MakeOptions({"/bin/sleep", "600"});
  auto run = sluice::Run::Start(options);
  ASSERT_TRUE(run) << run.error().message;
  const auto status = run->Status();
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(json::parse(*status)["run"]["state"], "running");
  EXPECT_EQ(json::parse(*status)["policy"]["revision"], 1);
  EXPECT_EQ(run->SetPolicy("version: 1\nrules:\n  - allow: GET a.test/**\n", SLUICE_APPLY_NARROW).error().code, SLUICE_WIDENS);
  EXPECT_EQ(run->SetPolicy("version: 1\n", 0, 7).error().code, SLUICE_CONFLICT);
  EXPECT_EQ(run->SetPolicy("nonsense: [").error().code, SLUICE_INVALID);
  const auto seen = run->SetPolicy("version: 1\n", SLUICE_PROVE);
  ASSERT_TRUE(seen) << seen.error().message;
  EXPECT_EQ(seen->revision, 1u);
  const auto changed = run->SetPolicy("version: 1\n", SLUICE_APPLY_NARROW, 1);
  ASSERT_TRUE(changed) << changed.error().message;
  EXPECT_EQ(changed->revision, 2u);
  EXPECT_EQ(json::parse(changed->json)["proof"]["verdict"], "narrowed");
  const auto explained = run->Request("POST", "/v1/explain", R"({"question": "GET https://a.test/pub/x"})");
  ASSERT_TRUE(explained);
  EXPECT_EQ(explained->status, 200);
  EXPECT_EQ(json::parse(explained->body)["allowed"], false);
  EXPECT_EQ(run->Request("GET", "/v1/sets")->status, 404);
  EXPECT_EQ(run->Request("GET", "/v1/policy\r\nX: y").error().code, SLUICE_INVALID);
  EXPECT_EQ(run->Request("GET", "/v1/hold").error().code, SLUICE_INVALID);
}

// Whether a process of that command line is there.
bool IsAlive(const std::string& word) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline");
    std::string text((std::istreambuf_iterator<char>(file)), {});
    if (text.starts_with("/bin/sleep") && text.find(word) != std::string::npos) return true;
  }
  return false;
}

bool Within(milliseconds longest, const auto& condition) {
  const auto deadline = std::chrono::steady_clock::now() + longest;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

TEST(LibraryRun, HasItsOwnPolicyInForceAgainWhenToldToReload) {
  auto options = MakeOptions({"/bin/sleep", "600"});
  auto run = sluice::Run::Start(options);
  ASSERT_TRUE(run) << run.error().message;
  const auto allowed = [&] {
    const auto answer = run->Request("POST", "/v1/explain", R"({"question": "GET https://a.test/pub/x"})");
    return answer && json::parse(answer->body)["allowed"] == true;
  };
  ASSERT_TRUE(run->SetPolicy("version: 1\n"));
  EXPECT_FALSE(allowed());
  const auto told = run->Reload();
  ASSERT_TRUE(told) << told.error().message;
  EXPECT_TRUE(Within(milliseconds(20000), allowed));
}

TEST(LibraryRun, DiesWithItsHandleAndWithItsProcess) {
  const std::string mark = "600." + std::to_string(getpid());
  auto options = MakeOptions({"/bin/sleep", mark});
  {
    auto run = sluice::Run::Start(options);
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_TRUE(Within(milliseconds(5000), [&] { return IsAlive(mark); }));
  }
  EXPECT_TRUE(Within(milliseconds(5000), [&] { return !IsAlive(mark); }));
  const pid_t child = fork();
  if (child == 0) {
    auto run = sluice::Run::Start(options);
    raise(run ? SIGKILL : SIGTERM);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_TRUE(Within(milliseconds(5000), [&] { return !IsAlive(mark); })) << "the run outlived who started it";
}

TEST(LibraryRun, IsNobodysInAForkedChild) {
  auto options = MakeOptions({"/bin/sleep", "600"});
  auto run = sluice::Run::Start(options);
  ASSERT_TRUE(run);
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = run->Stop(milliseconds(0)).error().code == SLUICE_FORKED && run->Status().error().code == SLUICE_FORKED;
    {
      const sluice::Run gone = *std::move(run);
    }
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  ASSERT_TRUE(run->Status()) << "the child's free ended the run";
  EXPECT_EQ(run->Wait(milliseconds(0)).error().code, SLUICE_TIMEOUT);
}

TEST(LibraryRun, LeavesTheProcessAsItWas) {
  const auto signals = [] {
    std::string all;
    for (int number = 1; number < NSIG; ++number) {
      struct sigaction action{};
      if (sigaction(number, nullptr, &action) == 0)
        all += action.sa_handler == SIG_DFL ? 'd' : action.sa_handler == SIG_IGN ? 'i' : 'h';
    }
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    for (int number = 1; number < NSIG; ++number) all += sigismember(&blocked, number) == 1 ? 'b' : '.';
    return all;
  };
  const auto descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  // What is not closed on exec is not for the command, nor its supervisor.
  const int secret = dup(STDERR_FILENO);
  const int leaked = fcntl(secret, F_DUPFD, 200);
  const auto before = descriptors();
  const std::string handlers = signals();
  const Capture out;
  {
    auto options = MakeOptions({"/bin/sh", "-c", "ls /proc/self/fd | tr '\\n' ' '"});
    options.Streams(-1, out.fd(), -1).Loop(SLUICE_LOOP_OWN);
    auto run = sluice::Run::Start(options);
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_EQ(run->Wait()->exit_code, 0);
    EXPECT_EQ(signals(), handlers);
  }
  EXPECT_THAT(out.text(), MatchesRegex("0 1 2 3 ?"));  // 3: the folder that ls reads
  EXPECT_EQ(descriptors(), before + 1) << "the capture's own is one more";
  close(leaked);
  close(secret);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child was left to the caller";
}

TEST(LibraryRun, GivesItsSupervisorNothingBesideWhatItListed) {
  const std::string file = std::filesystem::temp_directory_path() / ("library-policy-" + std::to_string(getpid()) + ".yaml");
  std::ofstream(file) << kPolicy;
  const auto policy = sluice::Policy::FromFile(file);
  ASSERT_TRUE(policy);
  auto options = MakeOptions({"/bin/sleep", "600"});
  options.UsePolicy(*policy);
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
  // Where it has descriptors of its own, and behind them.
  std::vector<std::pair<int, int>> kept;
  for (const int number : {3, 4, 5, 6, 7}) {
    if (number == ends[0] || number == ends[1]) continue;
    kept.emplace_back(number, fcntl(number, F_DUPFD_CLOEXEC, 100));
    ASSERT_EQ(dup2(ends[1], number), number);
  }
  auto run = sluice::Run::Start(options);
  for (const auto& [number, copy] : kept) {
    copy < 0 ? close(number) : dup3(copy, number, O_CLOEXEC);
    if (copy >= 0) close(copy);
  }
  std::filesystem::remove(file);
  ASSERT_TRUE(run) << run.error().message;
  close(ends[1]);
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 0) << "somebody holds the other end";
  close(ends[0]);
}

// What a callback of the C interface gets.
struct Called {
  std::atomic<sluice_run*> run = nullptr;
  std::atomic<int> times = 0;
  std::atomic<sluice_code> dispatched = SLUICE_OK;
  std::atomic<sluice_code> waited = SLUICE_OK;
};

void FreeTheRun(void* context, const char* /*json*/, size_t /*size*/) {
  auto& called = *static_cast<Called*>(context);
  if (++called.times > 1) return;
  while (called.run == nullptr) std::this_thread::yield();
  called.dispatched = sluice_run_dispatch(called.run, nullptr);
  called.waited = sluice_run_wait(called.run, 0, nullptr, nullptr);
  sluice_run_free(called.run);
}

TEST(LibraryRun, MayBeFreedByItsCallback) {
  for (const int32_t loop : {SLUICE_LOOP_CALLER, SLUICE_LOOP_OWN}) {
    const std::string mark = "601." + std::to_string(getpid()) + std::to_string(loop);
    const std::string script =
        "import socket, os\nfor _ in range(3):\n  try: socket.create_connection(('192.0.2.1', 1), 1)\n"
        "  except OSError: pass\nos.execv('/bin/sleep', ['/bin/sleep', '" +
        mark + "'])";
    sluice_options* options = sluice_options_new();
    const char* argv[] = {"/usr/bin/python3", "-c", script.c_str(), nullptr};
    sluice_policy* policy = nullptr;
    ASSERT_EQ(sluice_policy_from_text(kPolicy, strlen(kPolicy), nullptr, &policy, nullptr), SLUICE_OK);
    Called called;
    sluice_callbacks callbacks{};
    callbacks.size = sizeof callbacks;
    callbacks.context = &called;
    callbacks.record = FreeTheRun;
    sluice_options_set_command(options, argv, nullptr);
    sluice_options_set_policy(options, policy, nullptr);
    sluice_options_set(options, SLUICE_PROGRAM, kProgram, nullptr);
    sluice_options_set(options, SLUICE_WORK_DIRECTORY, std::filesystem::current_path().c_str(), nullptr);
    sluice_options_set_callbacks(options, &callbacks, nullptr);
    sluice_options_set_loop(options, loop, nullptr);
    sluice_run* run = nullptr;
    sluice_error* error = nullptr;
    ASSERT_EQ(sluice_start(options, &run, &error), SLUICE_OK) << sluice_error_message(error);
    called.run = run;
    if (loop == SLUICE_LOOP_CALLER) EXPECT_EQ(sluice_run_wait(run, 30'000, nullptr, nullptr), SLUICE_ENDED);
    EXPECT_TRUE(Within(milliseconds(10'000), [&] { return called.waited != SLUICE_OK; }));
    EXPECT_EQ(called.dispatched, SLUICE_INVALID);
    EXPECT_EQ(called.waited, SLUICE_INVALID);
    EXPECT_TRUE(Within(milliseconds(10'000), [&] { return !IsAlive(mark) && waitpid(-1, nullptr, WNOHANG) == -1; }));
    EXPECT_EQ(called.times, 1) << "a callback came after the run was freed";
    sluice_options_free(options);
    sluice_policy_free(policy);
  }
}

TEST(LibraryRun, GoesOnWhereTheCallerReapsEveryChild) {
  signal(SIGCHLD, SIG_IGN);
  auto options = MakeOptions({"/bin/sh", "-c", "exit 4"});
  auto run = sluice::Run::Start(options);
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->Wait()->exit_code, 4);
  signal(SIGCHLD, SIG_DFL);
}

TEST(LibraryRun, ManyAtOnceFromManyThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      auto options = MakeOptions({"/bin/sh", "-c", "exit " + std::to_string(10 + i)});
      auto run = sluice::Run::Start(options);
      if (run && run->Wait()->exit_code == 10 + i) ++good;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, 4);
}

}  // namespace

#ifdef SLUICE_FAILING_MALLOC
// The library's own operator new ends here.
extern "C" void* __libc_malloc(size_t size);
extern "C" void* malloc(size_t size) {
  if (fail_at != 0 && ++allocated >= fail_at) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_malloc(size);
}
#endif
