// Where secrets come from, and what becomes of them when the source changes.

#include "proxy/io/secret_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace sluice::proxy {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using SourceKind = policy::SecretSource::Kind;
using UseKind = policy::CredentialUse::Kind;

struct Folder {
  Folder() {
    char text[] = "/tmp/sluice-secrets-XXXXXX";
    path = mkdtemp(text);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string Write(const std::string& name, const std::string& content, mode_t mode = 0600) const {
    const std::string file = path + "/" + name;
    const std::string next = file + ".next";
    std::ofstream(next) << content;
    chmod(next.c_str(), mode);
    std::filesystem::rename(next, file);
    return file;
  }
  std::string path;
};

policy::SecretSource Source(SourceKind kind, std::string text) {
  policy::SecretSource source;
  source.kind = kind;
  source.text = std::move(text);
  return source;
}

policy::Credential Named(std::string name, policy::SecretSource from, UseKind use = UseKind::kBearer, std::string text = "") {
  policy::Credential credential;
  credential.name = std::move(name);
  credential.from = std::move(from);
  credential.send.kind = use;
  credential.send.text = std::move(text);
  credential.span = {"policy.yaml", 3, 3, 1};
  return credential;
}

policy::Credential Command(std::vector<std::string> words) {
  policy::SecretSource source;
  source.kind = SourceKind::kCommand;
  source.command = std::move(words);
  return Named("c", source);
}

std::string Value(const SecretStore& store, const policy::Credential& credential) {
  const SecretLookup found = store.Find(credential);
  return found.secret != nullptr ? std::string(found.secret->Reveal()) : "fault: " + found.fault;
}

template <class Condition>
bool Within(milliseconds limit, Condition condition) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return true;
}

TEST(SecretStore, TakesAVariableOutOfTheEnvironment) {
  setenv("SLUICE_TEST_SECRET", "s3cret-value", 1);
  const char* place = getenv("SLUICE_TEST_SECRET");
  SecretStore store({});
  const auto credential = Named("github", Source(SourceKind::kEnvironment, "SLUICE_TEST_SECRET"));
  ASSERT_TRUE(store.Load({&credential, 1}));
  EXPECT_EQ(Value(store, credential), "s3cret-value");
  EXPECT_EQ(getenv("SLUICE_TEST_SECRET"), nullptr);
  EXPECT_EQ(std::string(place, 12), std::string(12, '\0'));
  EXPECT_EQ(store.variables().at("SLUICE_TEST_SECRET"), "credential github");
  EXPECT_EQ(store.SecretIn("https://u:s3cret-value@host"), "credential github");
  EXPECT_EQ(store.SecretIn("nothing"), "");
  // A second load has nothing to read any more, and keeps what was read; so does another credential of the same source.
  const auto other = Named("other", credential.from, UseKind::kQuery, "key");
  ASSERT_TRUE(store.Load(std::array{credential, other}));
  EXPECT_EQ(Value(store, other), "s3cret-value");
}

TEST(SecretStore, ReadsWhatTheServiceManagerHandsOver) {
  const Folder folder;
  folder.Write("token", "s3cret-value\n");
  setenv("CREDENTIALS_DIRECTORY", folder.path.c_str(), 1);
  const auto credential = Named("c", Source(SourceKind::kSystemd, "token"));
  const auto absent = Named("d", Source(SourceKind::kSystemd, "other"));
  SecretStore store({});
  ASSERT_TRUE(store.Load({&credential, 1}));
  EXPECT_EQ(Value(store, credential), "s3cret-value");
  EXPECT_FALSE(SecretStore({}).Load({&absent, 1}));
  unsetenv("CREDENTIALS_DIRECTORY");
}

TEST(SecretStore, NamesCredentialSourceAndLineOfWhatIsMissing) {
  struct Row {
    policy::Credential credential;
    const char* expected;
  };
  const Folder folder;
  policy::SecretSource oauth = Source(SourceKind::kOauth, "https://id.test/token");
  oauth.secret.push_back(Source(SourceKind::kEnvironment, "SLUICE_TEST_ABSENT"));
  unsetenv("CREDENTIALS_DIRECTORY");
  const Row rows[] = {
      {Named("c", Source(SourceKind::kEnvironment, "SLUICE_TEST_ABSENT")), "SLUICE_TEST_ABSENT is not set"},
      {Named("c", Source(SourceKind::kFile, folder.path + "/absent")), "No such file"},
      {Named("c", Source(SourceKind::kFile, folder.path)), "not a regular file"},
      {Named("c", Source(SourceKind::kFile, folder.Write("empty", "\n"))), "is empty"},
      {Named("c", Source(SourceKind::kFile, folder.Write("lines", "a\nb\n"))), "more than one line"},
      {Named("c", Source(SourceKind::kFile, folder.Write("long", std::string(70000, 'a')))), "more than 64 KiB"},
      {Named("c", Source(SourceKind::kFile, folder.Write("id", "AKID")), UseKind::kSigV4), "key id:secret key"},
      {Named("c", Source(SourceKind::kFile, folder.Write("word", "word")), UseKind::kBasic), "user:password"},
      {Named("c", Source(SourceKind::kSystemd, "token")), "CREDENTIALS_DIRECTORY"},
      {Named("c", oauth), "SLUICE_TEST_ABSENT is not set"},
      {Command({"/no/such/program"}), "cannot run /no/such/program"},
      {Command({"/bin/sh", "-c", "echo no session >&2; exit 3"}), "exit code 3: no session"},
  };
  for (const Row& row : rows) {
    SecretStore store({});
    const auto loaded = store.Load({&row.credential, 1});
    ASSERT_FALSE(loaded) << row.expected;
    EXPECT_THAT(loaded.error().message, AllOf(HasSubstr("credential c ("), HasSubstr(row.expected)));
    ASSERT_TRUE(loaded.error().span);
    EXPECT_EQ(loaded.error().span->line, 3u);
  }
}

TEST(SecretStore, RunsACommandWithoutAShellAndShowsItsComplaintWithoutTheSecret) {
  SecretStore store({});
  const auto echo = Command({"/bin/echo", "$HOME;", "a"});
  ASSERT_TRUE(store.Load({&echo, 1}));
  EXPECT_EQ(Value(store, echo), "$HOME; a");
  const auto telling = Command({"/bin/sh", "-c", "echo s3c$((1+1))ret; echo got s3c2ret >&2; exit 1"});
  const auto loaded = store.Load({&telling, 1});
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message, HasSubstr("got ***"));
  const auto late = RunSecretCommand({"/bin/sh", "-c", "sleep 60 & sleep 60"}, milliseconds(200));
  ASSERT_FALSE(late);
  EXPECT_THAT(late.error().message, HasSubstr("did not end"));
}

TEST(SecretStore, NoCommandSeesAVariableThatIsASecret) {
  setenv("SLUICE_TEST_HIDDEN", "s3cret-value", 1);
  SecretStore store({});
  const std::array credentials = {Command({"/bin/sh", "-c", "echo \"<$SLUICE_TEST_HIDDEN>\""}),
                                  Named("env", Source(SourceKind::kEnvironment, "SLUICE_TEST_HIDDEN"))};
  ASSERT_TRUE(store.Load(credentials));
  EXPECT_EQ(Value(store, credentials[0]), "<>");
}

TEST(SecretStore, ReadsAFileAgainWhenItChanges) {
  const Folder folder;
  const std::string file = folder.Write("token", "first\n");
  const auto credential = Named("c", Source(SourceKind::kFile, file));
  SecretStore store({});
  ASSERT_TRUE(store.Load({&credential, 1}));
  EXPECT_EQ(store.files(), std::vector<std::string>{file});
  store.Watch();
  EXPECT_EQ(Value(store, credential), "first");
  folder.Write("token", "second\r\n");
  EXPECT_TRUE(Within(milliseconds(8000), [&] { return Value(store, credential) == "second"; }));
  // One that no request may carry is not taken; one that is gone is soon no secret any more.
  std::filesystem::remove(file);
  EXPECT_TRUE(Within(milliseconds(10000), [&] { return Value(store, credential).starts_with("fault: cannot read"); }));
  folder.Write("token", "third");
  EXPECT_TRUE(Within(milliseconds(8000), [&] { return Value(store, credential) == "third"; }));
}

TEST(SecretStore, RefusesAFileThatTheWorkloadCouldReadOrPutInPlace) {
  const Folder folder;
  const Folder work;
  const std::string file = folder.Write("token", "s3cret");
  std::filesystem::create_symlink(file, work.path + "/link");
  std::filesystem::create_symlink(work.path, folder.path + "/through");
  std::filesystem::create_symlink(folder.path + "/token", folder.path + "/inner");
  struct Row {
    std::string path;
    bool good;
  };
  const Row rows[] = {{file, true},
                      {folder.path + "/inner", true},
                      {folder.path + "/../" + std::filesystem::path(folder.path).filename().string() + "/token", true},
                      {work.path + "/link", false},
                      {work.Write("token", "s3cret"), false},
                      {folder.path + "/through/token", false},
                      {work.path + "/../" + std::filesystem::path(folder.path).filename().string() + "/token", false}};
  for (const Row& row : rows) {
    SecretStore store({.trees = {work.path}});
    const auto credential = Named("c", Source(SourceKind::kFile, row.path));
    const auto loaded = store.Load({&credential, 1});
    EXPECT_EQ(loaded.has_value(), row.good) << row.path;
    if (!loaded) EXPECT_THAT(loaded.error().message, HasSubstr("which the command sees"));
  }
}

TEST(SecretStore, JoinsAKeyIdAndItsKey) {
  const Folder folder;
  auto credential = Named("aws", Source(SourceKind::kFile, folder.Write("id", "AKID")), UseKind::kSigV4);
  credential.from.secret.push_back(Source(SourceKind::kFile, folder.Write("key", "key:token")));
  SecretStore store({});
  ASSERT_TRUE(store.Load({&credential, 1}));
  EXPECT_EQ(Value(store, credential), "AKID:key:token");
}

TEST(SecretStore, GivesEachPlaceholderAStandInOnce) {
  const Folder folder;
  const std::string secret = "sk-ant-api03-" + std::string(80, 'x');
  const auto credential =
      Named("llm", Source(SourceKind::kFile, folder.Write("key", secret)), UseKind::kPlaceholder, "ANTHROPIC_API_KEY");
  SecretStore store({});
  ASSERT_TRUE(store.Load({&credential, 1}));
  ASSERT_EQ(store.stand_ins().size(), 1u);
  const EnvironmentStandIn given = store.stand_ins().front();
  EXPECT_EQ(given.variable, "ANTHROPIC_API_KEY");
  EXPECT_TRUE(given.text.starts_with("sk-ant-api03-"));
  EXPECT_EQ(given.text.size(), secret.size());
  EXPECT_NE(given.text, secret);
  ASSERT_TRUE(store.Load({&credential, 1}));
  EXPECT_EQ(store.stand_ins().front().text, given.text);
}

TEST(SecretStore, LetsOneFetchATokenAndTheOthersWait) {
  using Step = SecretStore::TokenStep;
  SecretStore store({});
  const auto source = Source(SourceKind::kOauth, "https://id.test/token");
  const SteadyTime start{};
  const auto step = [&](std::chrono::seconds at, SecretLookup* found = nullptr) {
    SecretLookup ignored;
    return store.TokenFor(source, start + at, found != nullptr ? found : &ignored);
  };
  using std::chrono::seconds;
  EXPECT_EQ(step(seconds(100)), Step::kFetch);
  EXPECT_EQ(step(seconds(100)), Step::kWait);
  store.TokenFailed(source, "it answered 500", start + seconds(100));
  SecretLookup found;
  EXPECT_EQ(step(seconds(100), &found), Step::kFail);
  EXPECT_EQ(found.fault, "it answered 500");
  EXPECT_EQ(step(seconds(102)), Step::kFetch);
  store.TokenCame(source, {"token-1", seconds(100)}, start + seconds(102));
  EXPECT_EQ(step(seconds(103), &found), Step::kUse);
  EXPECT_EQ(found.secret->Reveal(), "token-1");
  EXPECT_EQ(step(seconds(183)), Step::kUseAndFetch);
  EXPECT_EQ(step(seconds(184)), Step::kUse);
  store.TokenFailed(source, "it answered 500", start + seconds(185));
  EXPECT_EQ(step(seconds(185)), Step::kUse);
  EXPECT_EQ(step(seconds(187)), Step::kUseAndFetch);
  EXPECT_EQ(step(seconds(203)), Step::kWait);
  store.TokenCame(source, {"token-2", seconds(100)}, start + seconds(203));
  EXPECT_EQ(step(seconds(204), &found), Step::kUse);
  EXPECT_EQ(found.secret->Reveal(), "token-2");
}

TEST(SecretStore, FetchesAnotherTokenOnceAnUpstreamRefusesIt) {
  using Step = SecretStore::TokenStep;
  using std::chrono::seconds;
  SecretStore store({});
  const auto source = Source(SourceKind::kOauth, "https://id.test/token");
  const SteadyTime start{};
  SecretLookup first;
  EXPECT_EQ(store.TokenFor(source, start, &first), Step::kFetch);
  store.TokenCame(source, {"token-1", seconds(1000)}, start);
  EXPECT_EQ(store.TokenFor(source, start, &first), Step::kUse);
  // A token so young is not what is wrong.
  SecretLookup found;
  store.TokenRefused(source, first.secret, start + seconds(9));
  EXPECT_EQ(store.TokenFor(source, start + seconds(9), &found), Step::kUse);
  store.TokenRefused(source, first.secret, start + seconds(10));
  EXPECT_EQ(store.TokenFor(source, start + seconds(10), &found), Step::kFetch);
  // Requests that were under way with the old one say nothing of the new one.
  store.TokenCame(source, {"token-2", seconds(1000)}, start + seconds(11));
  store.TokenRefused(source, first.secret, start + seconds(60));
  EXPECT_EQ(store.TokenFor(source, start + seconds(60), &found), Step::kUse);
  EXPECT_EQ(found.secret->Reveal(), "token-2");
  // Of a source that has none there is nothing to refuse.
  store.TokenRefused(Source(SourceKind::kOauth, "https://other.test/token"), first.secret, start + seconds(60));
}

}  // namespace
}  // namespace sluice::proxy
