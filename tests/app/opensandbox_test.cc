// Requests as OpenSandbox's own clients send them.
#include "app/opensandbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/file.h"
#include "policy/io/load.h"

namespace sluice::app {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

struct Bed {
  explicit Bed(OpenSandboxOptions options = {}, EgressOverlay overlay = {})
      : front(std::move(options), {}, std::move(overlay), [this](const std::string& text) -> Result<void> {
          auto loaded = policy::LoadText(text, "opensandbox");
          if (!loaded) return std::unexpected(loaded.error());
          if (fail) return Fail(Code::kInternal, "the kernel said no");
          snapshot = *std::move(loaded);
          return {};
        }) {}

  AdminResponse Ask(const std::string& method, const std::string& body = "", const std::string& token = "",
                    bool from_here = false, const std::string& path = "/policy") {
    AdminRequest request;
    request.method = method;
    request.path = path;
    request.body = body;
    request.from_here = from_here;
    if (!token.empty()) request.fields.emplace_back("opensandbox-egress-auth", token);
    return front.Handle(request);
  }
  json Policy() { return json::parse(Ask("GET").body)["policy"]; }
  bool Connects(const std::string& host) const {
    policy::ConnectQuery query;
    query.host = host;
    query.port = 443;
    return snapshot->DecideConnect(query).allowed();
  }

  bool fail = false;
  policy::SnapshotPtr snapshot = *policy::LoadText("version: 1\n", "nothing");
  OpenSandboxFront front;
};

constexpr const char* kAllowList = R"({"defaultAction":"deny","egress":[{"action":"allow","target":"*.bing.com"}]})";

TEST(OpenSandbox, BeginsWithDenyAll) {
  Bed bed;
  const json got = json::parse(bed.Ask("GET").body);
  EXPECT_EQ(got["status"], "ok");
  EXPECT_EQ(got["mode"], "deny_all");
  EXPECT_EQ(got["enforcementMode"], "dns+nft");
  EXPECT_EQ(got["policy"]["defaultAction"], "deny");
}

TEST(OpenSandbox, ReplacesThePolicyByPostAndPut) {
  Bed bed;
  for (const char* method : {"POST", "PUT"}) {
    const AdminResponse answer = bed.Ask(method, kAllowList);
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(json::parse(answer.body), (json{{"status", "ok"}, {"mode", "enforcing"}, {"enforcementMode", "dns+nft"}}));
    EXPECT_TRUE(bed.Connects("www.bing.com"));
    EXPECT_FALSE(bed.Connects("bing.com"));
    EXPECT_FALSE(bed.Connects("github.com"));
  }
}

TEST(OpenSandbox, ResetsToDenyAllByAnEmptyBodyAndItsLike) {
  Bed bed;
  for (const char* body : {"", " \n", "{}", "null"}) {
    ASSERT_EQ(bed.Ask("POST", kAllowList).status, 200);
    const AdminResponse answer = bed.Ask("POST", body);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(json::parse(answer.body)["mode"], "deny_all");
    EXPECT_FALSE(bed.Connects("www.bing.com"));
  }
  EXPECT_EQ(json::parse(bed.Ask("POST", "").body)["reason"], "policy reset to default deny-all");
}

TEST(OpenSandbox, AllowsAllButWhatIsDenied) {
  Bed bed;
  ASSERT_EQ(bed.Ask("POST", R"({"defaultAction":"allow","egress":[{"action":"deny","target":"*.bing.com"}]})").status, 200);
  EXPECT_TRUE(bed.Connects("github.com"));
  ASSERT_EQ(bed.Ask("POST", R"({"defaultAction":"allow"})").status, 200);
  EXPECT_EQ(json::parse(bed.Ask("GET").body)["mode"], "allow_all");
}

TEST(OpenSandbox, MergesAPatchAheadOfWhatStands) {
  Bed bed;
  ASSERT_EQ(bed.Ask("POST", R"({"defaultAction":"deny","egress":[{"action":"allow","target":"example.com"},)"
                            R"({"action":"deny","target":"*.example.com"}]})")
                .status,
            200);
  const AdminResponse answer = bed.Ask(
      "PATCH",
      R"([{"action":"deny","target":"blocked.com"},{"action":"allow","target":"Example.com"},{"action":"deny","target":"example.com"}])");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(bed.Policy()["egress"],
            json::parse(R"([{"action":"deny","target":"blocked.com"},{"action":"allow","target":"Example.com"},)"
                        R"({"action":"deny","target":"*.example.com"}])"));
}

TEST(OpenSandbox, RemovesByTargetAndSaysSoWhereThereIsNone) {
  Bed bed;
  ASSERT_EQ(bed.Ask("POST", R"({"egress":[{"action":"allow","target":"a.test"},{"action":"allow","target":"*.b.test"}]})").status,
            200);
  EXPECT_EQ(bed.Ask("DELETE", R"(["*.B.test"])").status, 200);
  EXPECT_EQ(bed.Policy()["egress"], json::parse(R"([{"action":"allow","target":"a.test"}])"));
  EXPECT_EQ(json::parse(bed.Ask("DELETE", R"(["nobody.test"])").body)["reason"], "no matching targets found");
  EXPECT_EQ(bed.Ask("DELETE", R"(["a.test"])").status, 200);
  EXPECT_EQ(json::parse(bed.Ask("GET").body)["mode"], "deny_all");
}

TEST(OpenSandbox, AnswersFaultsInPlainText) {
  Bed bed;
  for (const auto& [method, body] : std::vector<std::pair<std::string, std::string>>{
           {"POST", "{"},
           {"POST", R"({"egress":[{"action":"permit","target":"a.test"}]})"},
           {"POST", R"({"egress":[{"action":"allow","target":" "}]})"},
           {"POST", R"({"egress":[{"action":"allow","target":"a.*.test"}]})"},
           {"POST", R"({"egress":[{"action":"allow","target":"a.test","path":"/x"}]})"},
           {"POST", R"({"egress":[{"action":"allow","target":"a.test","ports":[443]}]})"},
           {"PATCH", ""},
           {"PATCH", "[]"},
           {"PATCH", R"({"egress":[]})"},
           {"DELETE", ""},
           {"DELETE", "[]"},
           {"DELETE", "[1]"}}) {
    const AdminResponse answer = bed.Ask(method, body);
    EXPECT_EQ(answer.status, 400) << method << ' ' << body;
    EXPECT_EQ(answer.content_type, "text/plain; charset=utf-8");
    EXPECT_TRUE(answer.body.ends_with('\n'));
  }
  const AdminResponse wrong = bed.Ask("TRACE");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.fields.back(), (std::pair<std::string, std::string>("Allow", "GET, POST, PUT, PATCH, DELETE")));
}

TEST(OpenSandbox, WantsItsTokenInItsHeader) {
  OpenSandboxOptions options;
  options.token = "0123456789abcdef";
  Bed bed(options);
  EXPECT_EQ(bed.Ask("GET").status, 401);
  EXPECT_EQ(bed.Ask("POST", kAllowList, "0123456789abcdeX").status, 401);
  EXPECT_EQ(bed.Ask("POST", kAllowList, "0123456789abcdef0").status, 401);
  EXPECT_FALSE(bed.Connects("www.bing.com"));
  EXPECT_EQ(bed.Ask("POST", kAllowList, "0123456789abcdef", true).status, 200);
}

TEST(OpenSandbox, TakesNoSecrets) {
  OpenSandboxOptions options;
  options.token = "0123456789abcdef";
  Bed bed(options);
  struct Case {
    const char* method;
    const char* path;
    int status;
  };
  for (const Case& c :
       {Case{"GET", "/credential-vault", 404}, Case{"POST", "/credential-vault", 412}, Case{"PATCH", "/credential-vault", 404},
        Case{"DELETE", "/credential-vault", 404}, Case{"PUT", "/credential-vault", 405},
        Case{"GET", "/credential-vault/credentials", 404}, Case{"GET", "/credential-vault/bindings/gh", 404},
        Case{"POST", "/credential-vault/credentials", 405}, Case{"GET", "/credential-vaults", 404}}) {
    const AdminResponse answer = bed.Ask(c.method, R"({"credentials":[],"bindings":[]})", options.token, false, c.path);
    EXPECT_EQ(answer.status, c.status) << c.method << " " << c.path;
    EXPECT_EQ(answer.content_type, "text/plain; charset=utf-8");
  }
  EXPECT_EQ(bed.Ask("POST", "{}", "", false, "/credential-vault").status, 401);
}

TEST(OpenSandbox, WithoutATokenTheFencedHostMayOnlyLook) {
  Bed bed;
  EXPECT_EQ(bed.Ask("GET", "", "", true).status, 200);
  for (const char* method : {"POST", "PUT", "PATCH", "DELETE"}) EXPECT_EQ(bed.Ask(method, kAllowList, "", true).status, 401);
  EXPECT_EQ(bed.Ask("POST", kAllowList, "", false).status, 200);
}

TEST(OpenSandbox, CountsRules) {
  OpenSandboxOptions options;
  options.max_rules = 1;
  Bed bed(options);
  ASSERT_EQ(bed.Ask("POST", R"({"egress":[{"action":"allow","target":"a.test"}]})").status, 200);
  const AdminResponse answer = bed.Ask("PATCH", R"([{"action":"allow","target":"b.test"}])");
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(answer.body, "egress rule total count 2 exceeds limit 1\n");
}

TEST(OpenSandbox, KeepsTheOldPolicyWhereTheNewOneCannotBeAppliedAndOnDiskToo) {
  const std::string folder = std::filesystem::temp_directory_path() / "opensandbox-XXXXXX";
  std::string made = folder;
  ASSERT_NE(mkdtemp(made.data()), nullptr);
  OpenSandboxOptions options;
  options.policy_file = made + "/policy.json";
  Bed bed(options);
  ASSERT_EQ(bed.Ask("POST", kAllowList).status, 200);
  bed.fail = true;
  const AdminResponse answer = bed.Ask("POST", R"({"defaultAction":"allow"})");
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(json::parse(bed.Ask("GET").body)["mode"], "enforcing");
  const auto again = InitialEgressPolicy(options, R"({"defaultAction":"allow"})");
  ASSERT_TRUE(again);
  EXPECT_EQ(again->egress, (std::vector<EgressRule>{{"allow", "*.bing.com"}})) << "the file comes before the variable";
  std::filesystem::remove_all(made);
}

TEST(OpenSandbox, HoldsItsAlwaysRulesOverThePolicy) {
  EgressOverlay overlay;
  overlay.deny = *ParseAlwaysRules("# never\n\nbad.test\n*.bad.test\n10.0.0.0/8\n", "deny", "deny.always");
  overlay.allow = *ParseAlwaysRules("good.test\n", "allow", "allow.always");
  EXPECT_EQ(overlay.deny.size(), 3u);
  Bed bed({}, overlay);
  ASSERT_EQ(bed.Ask("POST", R"({"egress":[{"action":"allow","target":"x.bad.test"},{"action":"allow","target":"bad.test"},)"
                            R"({"action":"deny","target":"good.test"},{"action":"allow","target":"fine.test"}]})")
                .status,
            200);
  const auto denies_lookup = [&](const char* name) {
    return bed.snapshot->DecideName({nullptr, name, policy::kDnsA, {}}).verdict != policy::NameVerdict::kAllow;
  };
  EXPECT_TRUE(denies_lookup("bad.test"));
  EXPECT_TRUE(denies_lookup("x.bad.test"));
  EXPECT_FALSE(denies_lookup("good.test"));
  EXPECT_FALSE(denies_lookup("fine.test"));
  EXPECT_FALSE(bed.snapshot->DecideName({nullptr, "bad.test", policy::kDnsA, {}}).decision.allowed);
  EXPECT_EQ(bed.Policy()["egress"].size(), 4u) << "the overlay is not the user's policy";
  EXPECT_FALSE(ParseAlwaysRules("two words\n", "deny", "deny.always"));
}

TEST(OpenSandbox, LooksAtTheAlwaysFilesAgain) {
  std::string made = std::filesystem::temp_directory_path() / "opensandbox-rules-XXXXXX";
  ASSERT_NE(mkdtemp(made.data()), nullptr);
  OpenSandboxOptions options;
  options.rules_folder = made;
  Bed bed(options);
  ASSERT_EQ(bed.Ask("POST", R"({"egress":[{"action":"allow","target":"a.test"}]})").status, 200);
  EXPECT_EQ(bed.front.ReloadOverlay(), false);
  std::ofstream(made + "/deny.always") << "a.test\n";
  EXPECT_EQ(bed.front.ReloadOverlay(), true);
  EXPECT_NE(bed.snapshot->DecideName({nullptr, "a.test", policy::kDnsA, {}}).verdict, policy::NameVerdict::kAllow);
  std::ofstream(made + "/deny.always") << "not a target\n";
  EXPECT_FALSE(bed.front.ReloadOverlay()) << "a bad file leaves the rules that stand";
  std::filesystem::remove_all(made);
}

TEST(OpenSandbox, GrantsAddressesOnTheirPorts) {
  Bed bed;
  ASSERT_EQ(bed.Ask("POST", R"({"egress":[{"action":"allow","target":"203.0.113.0/24","ports":[443,8443]}]})").status, 200);
  policy::ConnectQuery query;
  const IpAddress address = *IpAddress::Parse("203.0.113.9");
  query.address = address;
  query.port = 443;
  EXPECT_TRUE(bed.snapshot->DecideConnect(query).allowed());
  query.port = 80;
  EXPECT_FALSE(bed.snapshot->DecideConnect(query).allowed());
}

TEST(OpenSandbox, ReadsItsVariables) {
  const auto from = [](std::map<std::string, std::string> variables) {
    return OpenSandboxFromEnvironment([variables](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_EQ(from({})->max_rules, kMaxEgressRules);
  EXPECT_EQ(from({{"OPENSANDBOX_EGRESS_MAX_RULES", "0"}, {"OPENSANDBOX_EGRESS_TOKEN", " t "}})->token, "t");
  EXPECT_FALSE(from({{"OPENSANDBOX_EGRESS_MAX_RULES", "many"}}));
  EXPECT_EQ(InitialEgressPolicy({}, kAllowList)->egress.size(), 1u);
  EXPECT_FALSE(InitialEgressPolicy({}, "{"));
}

}  // namespace
}  // namespace sluice::app
