#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/app/admin_support.h"

namespace sluice::app {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json Body(const AdminResponse& response) { return json::parse(response.body); }

std::string TagOf(const AdminResponse& response) {
  for (const auto& [name, value] : response.fields)
    if (name == "ETag") return value;
  return "";
}

struct Folder {
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "admin-state-XXXXXX";
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

TEST(AdminApi, GivesThePolicyAsItsAuthorWroteItWithItsRevision) {
  AdminBed bed("version: 1\n# why\nrules:\n  - allow: GET a.test # here\n");
  const AdminResponse got = bed.Ask("GET", "/v1/policy");
  EXPECT_EQ(got.status, 200);
  EXPECT_THAT(got.body, HasSubstr("# why"));
  EXPECT_EQ(TagOf(got), "\"1\"");
  for (const char* known : {"\"1\"", "W/\"1\"", "*"}) {
    const AdminResponse same = bed.Ask("GET", "/v1/policy", "", {{"if-none-match", known}});
    EXPECT_EQ(same.status, 304) << known;
    EXPECT_EQ(TagOf(same), "\"1\"") << known;
  }
  EXPECT_EQ(bed.Ask("GET", "/v1/policy", "", {{"if-none-match", "W/\"2\""}}).status, 200);
  EXPECT_EQ(bed.Ask("GET", "/v1/policy", "", {{"if-none-match", "w/\"1\""}}).status, 400);
}

TEST(AdminApi, PutsAPolicyInForce) {
  AdminBed bed;
  const AdminResponse put = bed.Ask("PUT", "/v1/policy", "version: 1\nrules:\n  - allow: GET b.test\n");
  EXPECT_EQ(put.status, 200) << put.body;
  EXPECT_EQ(TagOf(put), "\"2\"");
  EXPECT_EQ(Body(put)["applied"], true);
  EXPECT_EQ(bed.control.Policy().snapshot->rules().front().text, "GET b.test");
  EXPECT_EQ(bed.Ask("GET", "/v1/policy").body, "version: 1\nrules:\n  - allow: GET b.test\n");
}

TEST(AdminApi, RefusesWhatIsNoPolicyAndKeepsTheOldOne) {
  AdminBed bed;
  const AdminResponse put = bed.Ask("PUT", "/v1/policy", "version: 1\nrules:\n  - allow: gti b.test\n");
  EXPECT_EQ(put.status, 422);
  EXPECT_EQ(Body(put)["code"], "invalid_policy");
  EXPECT_THAT(Body(put)["detail"].get<std::string>(), HasSubstr("policy:3"));
  EXPECT_EQ(bed.control.Policy().snapshot, bed.own);
}

TEST(AdminApi, RefusesAnotherToolsPolicy) {
  AdminBed bed;
  const AdminResponse put = bed.Ask("PUT", "/v1/policy", R"({"defaultAction":"allow","egress":[]})");
  EXPECT_EQ(put.status, 422);
  EXPECT_EQ(Body(put)["code"], "foreign_policy");
}

TEST(AdminApi, TellsWhatTheSidecarCannotCarryOut) {
  AdminBed bed;
  const AdminResponse put = bed.Ask("PUT", "/v1/policy", "version: 1\nrules:\n  - allow: udp a.test:123\n");
  EXPECT_EQ(put.status, 422);
  EXPECT_EQ(Body(put)["code"], "refused_policy");
  EXPECT_EQ(bed.control.Policy().snapshot, bed.own);
}

TEST(AdminApi, TakesAChangeOfTheRevisionItSaysAndNoOther) {
  AdminBed bed;
  const std::string text = "version: 1\nrules:\n  - allow: GET b.test\n";
  EXPECT_EQ(bed.Ask("PUT", "/v1/policy", text, {{"if-match", "\"7\""}}).status, 412);
  EXPECT_EQ(bed.Ask("PUT", "/v1/policy", text, {{"if-match", "7"}}).status, 400);
  EXPECT_EQ(bed.Ask("PUT", "/v1/policy", text, {{"if-match", "W/\"1\""}}).status, 412) << "a weak tag names no one text";
  EXPECT_EQ(bed.Ask("PUT", "/v1/policy", text, {{"if-match", "\"1\""}}).status, 200);
  EXPECT_EQ(bed.Ask("PUT", "/v1/policy", text, {{"if-match", "\"1\""}}).status, 412);
}

TEST(AdminApi, ProvesWithoutPuttingInForce) {
  AdminBed bed;
  const AdminResponse wider = bed.Ask("PUT", "/v1/policy?prove=1", "version: 1\nrules:\n  - allow: GET,POST a.test\n");
  ASSERT_EQ(wider.status, 200) << wider.body;
  EXPECT_EQ(Body(wider)["applied"], false);
  EXPECT_EQ(Body(wider)["proof"]["verdict"], "widened");
  EXPECT_FALSE(Body(wider)["proof"]["gains"].empty());
  EXPECT_EQ(bed.control.Policy().snapshot, bed.own);
}

TEST(AdminApi, AppliesWhatIsProvedNotToWiden) {
  AdminBed bed("version: 1\nrules:\n  - allow: GET,POST a.test\n");
  const std::string narrower = "version: 1\nrules:\n  - allow: GET a.test\n";
  const std::string wider = "version: 1\nrules:\n  - allow: GET **\n";
  const AdminResponse refused = bed.Ask("PUT", "/v1/policy?prove=1&apply=1", wider);
  EXPECT_EQ(refused.status, 409);
  EXPECT_EQ(Body(refused)["code"], "widens");
  EXPECT_EQ(bed.control.Policy().revision, 1u);
  EXPECT_EQ(bed.Ask("PUT", "/v1/policy?prove=1&apply=1", narrower).status, 200);
  EXPECT_EQ(bed.control.Policy().revision, 2u);
  EXPECT_EQ(bed.Ask("PUT", "/v1/policy?prove=1&apply=1&widen=1", wider).status, 200);
  EXPECT_EQ(bed.control.Policy().revision, 3u);
  EXPECT_EQ(bed.Ask("PUT", "/v1/policy?apply=1", wider).status, 400);
  EXPECT_EQ(bed.Ask("PUT", "/v1/policy?prove=maybe", wider).status, 400);
}

TEST(AdminApi, ChangesSingleRulesAllOrNothing) {
  AdminBed bed(
      "version: 1\nrules:\n  # of the build\n  - allow: GET a.test\n    id: first\n  - allow: GET b.test\n    id: second\n");
  AdminResponse edited = bed.Ask("PATCH", "/v1/policy", R"({"remove":["first"],"add":[{"allow":"GET c.test","id":"third"}]})");
  ASSERT_EQ(edited.status, 200) << edited.body;
  const std::string text = bed.Ask("GET", "/v1/policy").body;
  EXPECT_EQ(text, "version: 1\nrules:\n  - allow: GET b.test\n    id: second\n  - allow: GET c.test\n    id: third\n");
  edited = bed.Ask("PATCH", "/v1/policy", R"({"remove":["second","nobody"]})");
  EXPECT_EQ(edited.status, 404);
  EXPECT_EQ(Body(edited)["code"], "no_rule_of_that_id");
  EXPECT_EQ(bed.Ask("GET", "/v1/policy").body, text);
  EXPECT_EQ(bed.Ask("DELETE", "/v1/policy/rules/second").status, 200);
  EXPECT_EQ(bed.Ask("PUT", "/v1/policy/rules/third", R"({"allow":"POST c.test"})").status, 200);
  const json rule = Body(bed.Ask("GET", "/v1/policy/rules/third"));
  EXPECT_EQ(rule["text"], "POST c.test");
  EXPECT_EQ(rule["id"], "third");
  EXPECT_EQ(bed.Ask("GET", "/v1/policy/rules/second").status, 404);
}

TEST(AdminApi, WantsTheRevisionForAnIdThatIsALine) {
  AdminBed bed("version: 1\nrules:\n  - allow: GET a.test\n  - allow: GET b.test\n");
  const AdminResponse refused = bed.Ask("DELETE", "/v1/policy/rules/policy.yaml:3");
  EXPECT_EQ(refused.status, 428);
  EXPECT_EQ(bed.Ask("DELETE", "/v1/policy/rules/policy.yaml:3", "", {{"if-match", "\"1\""}}).status, 200);
  EXPECT_EQ(bed.Ask("GET", "/v1/policy").body, "version: 1\nrules:\n  - allow: GET b.test\n");
}

TEST(AdminApi, LendsNoSecretThatTheOperatorDidNotName) {
  AdminBed bed;
  const AdminResponse put = bed.Ask("PUT", "/v1/policy",
                                    "version: 1\ncredentials:\n  mine:\n    from: file /etc/shadow\n    send: bearer\n    to: "
                                    "[evil.test]\nrules:\n  - allow: GET evil.test\n    with: mine\n");
  EXPECT_EQ(put.status, 403) << put.body;
  EXPECT_EQ(Body(put)["code"], "secrets");
  EXPECT_EQ(bed.control.Policy().snapshot, bed.own);
}

TEST(AdminApi, KeepsWhatItPutInForceOverARestart) {
  const Folder folder;
  {
    AdminBed bed("version: 1\nrules:\n  - allow: GET a.test\n", PolicyOwner::kFileOrApi, *PolicyState::Open(folder.path));
    ASSERT_EQ(bed.Ask("PUT", "/v1/policy", "version: 1\nrules:\n  - allow: GET b.test\n").status, 200);
    const auto stored = PolicyState::Open(folder.path)->Load();
    ASSERT_TRUE(stored && *stored);
    EXPECT_EQ((*stored)->text, "version: 1\nrules:\n  - allow: GET b.test\n");
    EXPECT_EQ((*stored)->over, bed.own->digest());
    bed.api.OwnPolicyLoaded(bed.own, bed.control.Policy().revision);
  }
  EXPECT_EQ(*PolicyState::Open(folder.path)->Load(), std::nullopt) << "the operator has spoken last";
}

TEST(AdminApi, KeepsWhatCameIntoForceAfterTheOperatorsOwn) {
  const Folder folder;
  AdminBed bed("version: 1\nrules:\n  - allow: GET a.test\n", PolicyOwner::kFileOrApi, *PolicyState::Open(folder.path));
  // The file's becomes revision 2 and the API's 3, before the API hears of the first.
  const auto own = *policy::LoadText("version: 1\nrules:\n  - allow: GET c.test\n", "policy.yaml");
  ASSERT_EQ(bed.control.SetPolicy(own, "policy.yaml", std::nullopt).revision, 2u);
  const std::string text = "version: 1\nrules:\n  - allow: GET b.test\n";
  ASSERT_EQ(bed.Ask("PUT", "/v1/policy", text, {{"if-match", "\"2\""}}).status, 200);
  bed.api.OwnPolicyLoaded(own, 2);
  EXPECT_EQ(bed.Ask("GET", "/v1/policy").body, text);
  const auto stored = PolicyState::Open(folder.path)->Load();
  ASSERT_TRUE(stored && *stored) << "the API has spoken last";
  EXPECT_EQ((*stored)->text, text);
  EXPECT_EQ((*stored)->over, own->digest());
}

TEST(AdminApi, LeavesABundlesPolicyToItsPublisher) {
  AdminBed bed("version: 1\n", PolicyOwner::kBundle);
  const AdminResponse put = bed.Ask("PUT", "/v1/policy", "version: 1\nrules:\n  - allow: GET **\n");
  EXPECT_EQ(put.status, 409);
  EXPECT_EQ(Body(put)["code"], "owned_by_bundle");
  EXPECT_EQ(bed.Ask("PATCH", "/v1/policy", R"({"add":[{"allow":"GET **"}]})").status, 409);
  EXPECT_EQ(bed.control.Policy().revision, 1u);
}

TEST(AdminApi, IsNotReadyBeforeTheFirstBundle) {
  AdminBed bed;
  AdminApiOptions options = bed.Options("version: 1\n", PolicyOwner::kBundle, {});
  options.awaits = "https://p.test/policy.yaml";
  AdminApi api(std::move(options), bed.control, bed.stream);
  AdminRequest request;
  request.method = "GET";
  request.path = "/readyz";
  EXPECT_EQ(api.HandleHealth(request).status, 503);
  StoredPolicy bundle;
  bundle.text = "version: 1\n";
  bundle.name = bundle.source = "https://p.test/policy.yaml";
  ASSERT_TRUE(api.Apply(bundle));
  EXPECT_EQ(api.HandleHealth(request).status, 200);
}

TEST(AdminApi, ExplainsByThePolicyInForce) {
  AdminBed bed;
  json answer = Body(bed.Ask("POST", "/v1/explain", R"({"question":"GET https://a.test/"})"));
  EXPECT_EQ(answer["allowed"], true);
  EXPECT_EQ(answer["rule"]["id"], "first");
  answer = Body(bed.Ask("POST", "/v1/explain", R"({"question":"POST https://a.test/"})"));
  EXPECT_EQ(answer["allowed"], false);
  EXPECT_EQ(answer["code"], "method");
  EXPECT_EQ(bed.Ask("POST", "/v1/explain", R"({"question":"GET https://a.test/","file":"/etc/passwd"})").status, 400);
  EXPECT_EQ(bed.Ask("POST", "/v1/explain", "{").status, 400);
  EXPECT_EQ(bed.Ask("GET", "/v1/explain").status, 405);
}

TEST(AdminApi, TellsSetsNamesAndStatus) {
  AdminBed bed;
  EXPECT_EQ(Body(bed.Ask("GET", "/v1/sets"))["count"], 2);
  EXPECT_EQ(Body(bed.Ask("GET", "/v1/sets?limit=1"))["elements"].size(), 1u);
  EXPECT_EQ(bed.Ask("GET", "/v1/sets?limit=99999999").status, 400);
  EXPECT_EQ(Body(bed.Ask("GET", "/v1/dns/192.0.2.1"))["names"], json::array({"a.test"}));
  EXPECT_EQ(Body(bed.Ask("GET", "/v1/dns"))["leases"][0]["names"], json::array({"a.test"}));
  EXPECT_EQ(bed.Ask("GET", "/v1/dns/nobody").status, 400);
  const json first = Body(bed.Ask("GET", "/v1/dns?limit=1"))["cache"];
  EXPECT_EQ(first["count"], 2);
  EXPECT_EQ(first["entries"], json::parse(R"([{"name": "a.test", "types": ["A"], "status": "found", "addresses": ["192.0.2.1"],
    "aliases": ["b.test"], "left_seconds": 9, "leases": {"generation": 4, "left_seconds": 69}}])"));
  EXPECT_EQ(first["next"], "a.test/A");
  const json second = Body(bed.Ask("GET", "/v1/dns?limit=1&after=a.test%2FA"))["cache"];
  EXPECT_EQ(second["entries"][0]["types"], json::array({"A", "AAAA"}));
  EXPECT_FALSE(second.contains("next"));
  EXPECT_EQ(bed.Ask("GET", "/v1/dns?limit=1001").status, 400);
  const json status = Body(bed.Ask("GET", "/v1/status"));
  EXPECT_EQ(status["policy"]["revision"], 1);
  EXPECT_EQ(status["fence"]["counters"]["dropped"]["packets"], 7);
  EXPECT_EQ(bed.Ask("GET", "/v2").status, 404);
}

TEST(AdminApi, TakesNoParameterThatItDoesNotKnow) {
  struct Asked {
    const char* method;
    const char* target;
    const char* known;
  };
  constexpr const char* kChange = "those known are prove, apply, widen";
  constexpr const char* kNone = "no parameter is";
  const std::string text = "version: 1\nrules:\n  - allow: GET b.test\n";
  for (const bool is_run : {false, true}) {
    AdminBed bed;
    if (is_run) bed.control.BecomeRun();
    std::vector<Asked> cases = {{"PUT", "/v1/policy?prov=1", kChange},
                                {"PUT", "/v1/policy?prove=1&aply=1", kChange},
                                {"PUT", "/v1/policy?Prove=1", kChange},
                                {"PATCH", "/v1/policy?prov=1", kChange},
                                {"PUT", "/v1/policy/rules/first?prov=1", kChange},
                                {"DELETE", "/v1/policy/rules/first?prov=1", kChange},
                                {"GET", "/v1/policy?prove=1", kNone},
                                {"GET", "/v1/policy/rules?limit=1", kNone},
                                {"GET", "/v1/policy/rules/first?x", kNone},
                                {"POST", "/v1/explain?at=2030-01-01", kNone},
                                {"GET", "/v1/dns/192.0.2.1?limit=1", kNone},
                                {"GET", "/v1/status?x=1", kNone},
                                {"GET", "/healthz?x=1", kNone},
                                {"GET", "/readyz?x=1", kNone},
                                {"GET", "/metrics?x=1", kNone}};
    if (is_run) {
      cases.push_back({"GET", "/v1/dns?limit=1", kNone});
      cases.push_back({"POST", "/v1/stop?grace=1", "those known are grace_ms"});
    } else {
      cases.push_back({"GET", "/v1/dns?limits=1", "those known are limit, after"});
      cases.push_back({"GET", "/v1/sets?limits=1", "those known are limit"});
    }
    for (const Asked& asked : cases) {
      const bool edits = std::string_view(asked.method) == "PATCH";
      const AdminResponse refused = bed.Ask(asked.method, asked.target, edits ? R"({"remove":["first"]})" : text);
      EXPECT_EQ(refused.status, 400) << asked.method << ' ' << asked.target;
      EXPECT_THAT(Body(refused).value("error", ""), HasSubstr(asked.known)) << asked.target;
    }
    EXPECT_EQ(bed.control.Policy().snapshot, bed.own) << "and none of them changed the policy";
    EXPECT_TRUE(bed.control.stops().empty());
    for (const char* twice : {"/v1/policy?prove=1&prove=1", "/v1/policy?prove=1&prove=0", "/v1/policy?prove=yes"})
      EXPECT_EQ(bed.Ask("PUT", twice, text).status, 400) << twice;
    EXPECT_EQ(bed.Ask("GET", "/v2?x=1").status, 404);
    EXPECT_EQ(bed.Ask("POST", "/v1/policy?prove=1").status, 405);
  }
}

TEST(AdminApi, IsReadyWhereEveryCheckHolds) {
  AdminBed bed;
  AdminRequest request;
  request.method = "GET";
  request.path = "/readyz";
  EXPECT_EQ(bed.api.HandleHealth(request).status, 200);
  bed.control.SetChecks({{"fence", true, ""}, {"canary", false, "a connection was not refused"}});
  const AdminResponse response = bed.api.HandleHealth(request);
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(Body(response)["checks"][1]["detail"], "a connection was not refused");
  request.path = "/healthz";
  EXPECT_EQ(bed.api.HandleHealth(request).status, 200);
  request.path = "/v1/policy";
  EXPECT_EQ(bed.api.HandleHealth(request).status, 404) << "health tells health alone";
}

}  // namespace
}  // namespace sluice::app
