#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "app/admin_http.h"
#include "app/administration.h"
#include "app/decision_stream.h"
#include "app/metrics.h"
#include "app/policy_bundle.h"
#include "app/policy_edit.h"
#include "app/policy_poll.h"
#include "app/policy_state.h"
#include "app/sd_notify.h"
#include "audit/audit.h"

namespace sluice::app {
namespace {

using ::testing::HasSubstr;

// A key pair, and what it signs.
struct Signer {
  Signer() { EVP_PKEY_get_raw_public_key(key.get(), pub.data(), &size); }
  std::string Sign(const std::string& text) const {
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
    std::string signature(64, '\0');
    size_t length = signature.size();
    EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get());
    EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &length,
                   reinterpret_cast<const unsigned char*>(text.data()), text.size());
    return signature;
  }
  std::string Pem() const {
    const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new(BIO_s_mem()), BIO_free);
    PEM_write_bio_PUBKEY(bio.get(), key.get());
    char* data = nullptr;
    const long length = BIO_get_mem_data(bio.get(), &data);
    return {data, static_cast<size_t>(length)};
  }
  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key{EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"), EVP_PKEY_free};
  std::array<uint8_t, 32> pub{};
  size_t size = pub.size();
};

std::string Base64(const std::string& bytes) {
  std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  out.resize(
      static_cast<size_t>(EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                          reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()))));
  return out;
}

TEST(AdminHttp, ReadsTargets) {
  AdminRequest request;
  ASSERT_TRUE(ReadTarget("/v1/policy/rules/a%2Fb?prove=1&x=%20", &request));
  EXPECT_EQ(request.path, "/v1/policy/rules/a/b");
  EXPECT_EQ(*request.Parameter("x"), " ");
  EXPECT_EQ(request.Says("prove"), true);
  EXPECT_EQ(request.Says("apply"), false);
  for (const char* bad :
       {"", "policy", "http://a/", "//x", "/a//b", "/a/../b", "/./a", "/a%", "/a%zz", "/a%00", "/a?x=1&x=2", "/a#b", "/a/"})
    EXPECT_FALSE(ReadTarget(bad, &request)) << bad;
}

TEST(AdminHttp, ReadsEntityTags) {
  EXPECT_EQ(*ReadEntityTags("\"1\", W/\"2\""), (std::vector<EntityTag>{{"1", false}, {"2", true}}));
  EXPECT_TRUE(ReadEntityTags("*")->empty());
  for (const char* bad : {"", "1", "w/\"1\"", "W/1", "W/ \"1\"", "W/", "\"1", "\"1\" \"2\"", "\"1\",", "*, \"1\""})
    EXPECT_FALSE(ReadEntityTags(bad)) << bad;
}

// RFC 9110 sections 13.1.1 and 13.1.2.
TEST(AdminHttp, AWeakTagIsEnoughToLookAndNotToChange) {
  for (const Comparison comparison : {Comparison::kStrong, Comparison::kWeak}) {
    EXPECT_TRUE(NamesRevision(*ReadEntityTags("\"7\""), 7, comparison));
    EXPECT_TRUE(NamesRevision(*ReadEntityTags("*"), 7, comparison));
    EXPECT_TRUE(NamesRevision(*ReadEntityTags("W/\"7\", \"7\""), 7, comparison));
    EXPECT_FALSE(NamesRevision(*ReadEntityTags("\"8\", W/\"9\""), 7, comparison));
  }
  EXPECT_TRUE(NamesRevision(*ReadEntityTags("W/\"7\""), 7, Comparison::kWeak));
  EXPECT_FALSE(NamesRevision(*ReadEntityTags("W/\"7\""), 7, Comparison::kStrong));
}

TEST(AdminHttp, KnowsItsTokenAndNoOther) {
  AdminRequest request;
  EXPECT_FALSE(HasBearer(request, "secret"));
  request.fields.emplace_back("authorization", "bearer secret");
  EXPECT_TRUE(HasBearer(request, "secret"));
  EXPECT_FALSE(HasBearer(request, "secreT"));
  EXPECT_FALSE(HasBearer(request, ""));
  request.fields.front().second = "Basic secret";
  EXPECT_FALSE(HasBearer(request, "secret"));
}

TEST(PolicyEdit, KeepsCommentsAndOrder) {
  const std::string text =
      "version: 1\n# top\nrules:\n  - allow: GET a.test   # a\n    id: a\n  # of b\n  - deny: POST b.test\n    id: b\n\n  # of "
      "c\n  - allow: GET c.test\n    id: c\n";
  EXPECT_EQ(*EditPolicy(text, "p", *ReadPolicyEdit(R"({"remove":["b"]})")),
            "version: 1\n# top\nrules:\n  - allow: GET a.test  # a\n    id: a\n\n  # of c\n  - allow: GET c.test\n    id: c\n");
  const auto replaced = EditPolicy(text, "p", *ReadPolicyEdit(R"({"replace":{"c":{"allow":"GET d.test","note":"it's new"}}})"));
  ASSERT_TRUE(replaced);
  EXPECT_THAT(*replaced, HasSubstr("  # of c\n  - allow: GET d.test\n"));
  EXPECT_THAT(*replaced, HasSubstr("id: c\n"));
}

TEST(PolicyEdit, AddsToAPolicyWithoutRulesAndEmptiesOne) {
  EXPECT_EQ(*EditPolicy("version: 1\n", "p", *ReadPolicyEdit(R"({"add":[{"allow":"GET a.test","by":["/usr/bin/a"]}]})")),
            "version: 1\nrules:\n  - allow: GET a.test\n    by: [/usr/bin/a]\n");
  const auto empty =
      EditPolicy("version: 1\nrules:\n  - allow: GET a.test\n    id: x\n", "p", *ReadPolicyEdit(R"({"remove":["x"]})"));
  ASSERT_TRUE(empty) << empty.error().message;
  EXPECT_EQ(*empty, "version: 1\n");
}

TEST(PolicyEdit, RefusesWhatIsNoEdit) {
  for (const char* bad : {"", "[]", "{}", R"({"add":{}})", R"({"remove":[1]})", R"({"add":["GET a.test"]})", R"({"other":[]})",
                          R"({"add":[{"allow":null}]})", R"({"add":[{"allow":"a\nb"}]})", R"({"add":[],"add":[]})"})
    EXPECT_FALSE(ReadPolicyEdit(bad)) << bad;
  const std::string text = "version: 1\nrules:\n  - allow: GET a.test\n    id: x\n";
  EXPECT_FALSE(EditPolicy(text, "p", *ReadPolicyEdit(R"({"remove":["x","x"]})")));
  EXPECT_FALSE(EditPolicy(text, "p", *ReadPolicyEdit(R"({"add":[{"allow":"gti a.test"}]})")));
  // A text that tries to end its scalar and begin keys of its own stays a text.
  const auto tried =
      EditPolicy(text, "p", *ReadPolicyEdit(R"({"add":[{"allow":"GET b.test","note":"' }, { 'allow': 'GET **"}]})"));
  ASSERT_TRUE(tried);
  EXPECT_EQ(tried->find("- allow: GET **"), std::string::npos);
}

TEST(Bundle, TakesWhatOneOfItsKeysHasSigned) {
  const Signer first;
  const Signer second;
  const Signer other;
  const BundleKeys keys = {first.pub, second.pub};
  const std::string text = "# sluice-bundle serial=7\nversion: 1\n";
  EXPECT_EQ(VerifyBundle(keys, text, first.Sign(text)), 7u);
  EXPECT_EQ(VerifyBundle(keys, text, Base64(second.Sign(text)) + "\n"), 7u);
  EXPECT_EQ(VerifyBundle(keys, text, other.Sign(text)).error().code, Code::kPermission);
  EXPECT_FALSE(VerifyBundle(keys, text + " ", first.Sign(text)));
  EXPECT_FALSE(VerifyBundle(keys, text, ""));
  EXPECT_FALSE(VerifyBundle(keys, text, std::string(64, '\0')));
  EXPECT_FALSE(VerifyBundle({}, text, first.Sign(text)));
  EXPECT_FALSE(VerifyBundle(keys, "# sluice-bundle serial=x\n", first.Sign("# sluice-bundle serial=x\n")));
}

struct Publisher {
  PolicyPollOptions Options() {
    PolicyPollOptions options;
    options.url = "https://p.test/policy.yaml";
    options.keys = {signer.pub};
    options.fetch = [this](const std::string& url, const std::string& tag, size_t) -> Result<FetchedBundle> {
      if (!up) return Fail(Code::kIo, "down");
      if (url.ends_with(".sig")) return FetchedBundle{200, "", signature};
      if (!tag.empty() && tag == entity_tag) return FetchedBundle{304, entity_tag, ""};
      return FetchedBundle{status, entity_tag, text};
    };
    options.apply = [this](const StoredPolicy& next) -> Result<void> {
      if (next.text.find("bad") != std::string::npos) return Fail(Code::kInvalid, "no policy");
      applied.push_back(next.text);
      return {};
    };
    return options;
  }
  void Publish(std::string next, std::string tag) {
    text = std::move(next);
    entity_tag = std::move(tag);
    signature = signer.Sign(text);
  }
  Signer signer;
  bool up = true;
  int status = 200;
  std::string text;
  std::string entity_tag;
  std::string signature;
  std::vector<std::string> applied;
};

TEST(Bundle, ABadOneNeverReplacesAGoodOne) {
  Publisher publisher;
  StoredPolicy last;
  publisher.Publish("# sluice-bundle serial=2\nversion: 1\n", "\"a\"");
  EXPECT_EQ(PollOnce(publisher.Options(), &last), PollOutcome::kNew);
  EXPECT_EQ(PollOnce(publisher.Options(), &last), PollOutcome::kSame) << "304";
  const StoredPolicy good = last;
  publisher.Publish("# sluice-bundle serial=3\nbad\n", "\"b\"");
  EXPECT_FALSE(PollOnce(publisher.Options(), &last)) << "it does not compile";
  publisher.Publish("# sluice-bundle serial=1\nversion: 1\n", "\"c\"");
  EXPECT_FALSE(PollOnce(publisher.Options(), &last)) << "an older one, served again";
  publisher.Publish("# sluice-bundle serial=4\nversion: 1\n", "\"d\"");
  publisher.signature = Signer().Sign(publisher.text);
  EXPECT_FALSE(PollOnce(publisher.Options(), &last)) << "another key's";
  publisher.status = 500;
  EXPECT_FALSE(PollOnce(publisher.Options(), &last));
  publisher.up = false;
  EXPECT_FALSE(PollOnce(publisher.Options(), &last));
  EXPECT_EQ(last, good);
  EXPECT_EQ(publisher.applied.size(), 1u);
  publisher.up = true;
  publisher.status = 200;
  publisher.Publish("# sluice-bundle serial=4\nversion: 1\n", "\"d\"");
  EXPECT_EQ(PollOnce(publisher.Options(), &last), PollOutcome::kNew);
}

TEST(Bundle, OneThatWasKeptCountsWhileItsKeyDoes) {
  std::string folder = std::filesystem::temp_directory_path() / "bundle-state-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  Publisher publisher;
  StoredPolicy last;
  publisher.Publish("# sluice-bundle serial=18446744073709551615\nversion: 1\n", "\"a\"");
  ASSERT_EQ(PollOnce(publisher.Options(), &last), PollOutcome::kNew);
  ASSERT_TRUE(PolicyState::Open(folder + "/state")->Store(last));
  AdminOptions options;
  options.state = folder + "/state";
  options.policy_url = publisher.Options().url;
  options.policy_key = folder + "/key.pem";
  const auto kept_with = [&](const Signer& signer) {
    std::ofstream(options.policy_key) << signer.Pem();
    return PlanAdministration(options)->stored;
  };
  EXPECT_EQ(kept_with(publisher.signer), last);
  EXPECT_EQ(kept_with(Signer()), std::nullopt) << "nor does its serial, beyond which there is none";
  options.policy_url = "https://other.test/policy.yaml";
  EXPECT_EQ(kept_with(publisher.signer), std::nullopt);
  last.signature.clear();
  options.policy_url = publisher.Options().url;
  ASSERT_TRUE(PolicyState::Open(folder + "/state")->Store(last));
  EXPECT_EQ(kept_with(publisher.signer), std::nullopt);
  std::filesystem::remove_all(folder);
}

TEST(Bundle, WaitsLongerAfterEachFailure) {
  using namespace std::chrono_literals;
  EXPECT_EQ(PollPause(30s, 0), 30s);
  EXPECT_EQ(PollPause(30s, 1), 60s);
  EXPECT_EQ(PollPause(30s, 40), 300s);
  EXPECT_EQ(PollPause(10min, 3), 10min);
}

TEST(Bundle, IsNamedByAnHttpsUrlAlone) {
  EXPECT_TRUE(CheckPolicyUrl("https://p.test:8443/a/policy.yaml"));
  for (const char* bad :
       {"http://p.test/x", "https://p.test", "https://", "https://u@p.test/x", "https://p.test/x?y", "file:///x"})
    EXPECT_FALSE(CheckPolicyUrl(bad)) << bad;
}

TEST(PolicyState, KeepsAPolicyWholeAndNoticesDamage) {
  std::string folder = std::filesystem::temp_directory_path() / "policy-state-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto state = PolicyState::Open(folder);
  ASSERT_TRUE(state);
  EXPECT_EQ(*state->Load(), std::nullopt);
  StoredPolicy policy;
  policy.text = "version: 1\n# é \"x\"\n";
  policy.source = "the admin API";
  policy.serial = 1ull << 60;
  ASSERT_TRUE(state->Store(policy));
  EXPECT_EQ(**state->Load(), policy);
  struct stat about{};
  ASSERT_EQ(stat((folder + "/policy.json").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  std::string text = StoredText(policy);
  text.replace(text.find("version: 1"), 10, "version: 2");
  EXPECT_FALSE(ParseStored(text));
  EXPECT_FALSE(ParseStored("{}"));
  chmod(folder.c_str(), 0777);
  EXPECT_EQ(PolicyState::Open(folder).error().code, Code::kInvalid);
  std::filesystem::remove_all(folder);
}

TEST(SdNotify, TellsWhoeverWaits) {
  std::string folder = std::filesystem::temp_directory_path() / "sd-notify-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/notify";
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  ASSERT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  EXPECT_TRUE(NotifyService("READY=1"));
  char buffer[64] = {};
  EXPECT_EQ(recv(socket, buffer, sizeof buffer, MSG_DONTWAIT), 7);
  EXPECT_STREQ(buffer, "READY=1");
  unsetenv("NOTIFY_SOCKET");
  EXPECT_FALSE(NotifyService("READY=1"));
  close(socket);
  std::filesystem::remove_all(folder);
}

TEST(Metrics, AreWhatPrometheusReads) {
  MetricsView view;
  view.version = "1\"2";
  view.decisions = {{policy::EventLayer::kDns, false, policy::Reason::kDns, 4},
                    {policy::EventLayer::kRequest, true, policy::Reason::kAllowed, 2}};
  view.fence = {{"dropped", 3, 180}};
  const std::string text = PrometheusText(view);
  EXPECT_THAT(text, HasSubstr("sluice_build_info{version=\"1\\\"2\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("sluice_decisions_total{layer=\"dns\",verdict=\"denied\",reason=\"dns\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("sluice_lookups_total 4\n"));
  EXPECT_THAT(text, HasSubstr("sluice_fence_packets{rule=\"dropped\"} 3\n"));
}

policy::DecisionEvent Event(bool allowed) {
  policy::DecisionEvent event;
  event.layer = policy::EventLayer::kRequest;
  event.target.host = "a.test";
  event.decision.allowed = allowed;
  event.decision.reason = allowed ? policy::Reason::kAllowed : policy::Reason::kNoRule;
  return event;
}

TEST(DecisionStream, ShowsAndCountsWhatTheWriterWrites) {
  DecisionStream stream;
  std::atomic<int> woken{0};
  const auto reader = stream.Open({.verdict = "denied"}, [&] { ++woken; });
  {
    audit::Options options;
    options.console = false;
    options.tap = &stream;
    auto writer = audit::Writer::Start(options);
    ASSERT_TRUE(writer);
    EXPECT_TRUE((*writer)->Record(Event(true)));
    EXPECT_TRUE((*writer)->Record(Event(false)));
  }
  bool ended = false;
  const std::string lines = reader->Take(&ended);
  EXPECT_FALSE(ended);
  EXPECT_EQ(std::ranges::count(lines, '\n'), 1) << lines;
  EXPECT_THAT(lines, HasSubstr("no_rule"));
  EXPECT_EQ(woken, 1);
  MetricsView view;
  stream.FillMetrics(&view);
  EXPECT_EQ(view.decisions.size(), 2u);
  EXPECT_EQ(view.stream_readers, 1u);
}

TEST(DecisionStream, CutsASlowReaderOffWithANoteAndNobodyElse) {
  DecisionStream stream;
  const auto slow = stream.Open({}, [] {});
  const std::string line(64 * 1024, 'x');
  for (int i = 0; i < 20; ++i) {
    stream.Saw(Event(true), 1);
    stream.Line(line + "\n");
  }
  const auto fresh = stream.Open({}, [] {});
  stream.Line("one\n");
  bool ended = false;
  const std::string lines = slow->Take(&ended);
  EXPECT_TRUE(ended);
  EXPECT_LE(lines.size(), kMaxStreamBytes + 200);
  EXPECT_THAT(lines.substr(lines.size() - 200), HasSubstr("too slow"));
  EXPECT_EQ(fresh->Take(&ended), "one\n");
  EXPECT_FALSE(ended);
  MetricsView view;
  stream.FillMetrics(&view);
  EXPECT_EQ(view.stream_dropped, 1u);
}

TEST(DecisionStream, HasRoomForSoManyReaders) {
  DecisionStream stream;
  std::vector<std::unique_ptr<DecisionStream::Reader>> readers;
  for (size_t i = 0; i < kMaxStreamReaders; ++i) readers.push_back(stream.Open({}, [] {}));
  EXPECT_EQ(stream.Open({}, [] {}), nullptr);
  readers.pop_back();
  EXPECT_NE(stream.Open({}, [] {}), nullptr);
}

// What is over a bound of docs/limits.md is refused, and what is just within it is not.
TEST(AdminBounds, TargetsParametersEditsBundlesAndKeys) {
  AdminRequest request;
  EXPECT_TRUE(ReadTarget("/v1/" + std::string(kMaxAdminTarget - 4, 'x'), &request));
  EXPECT_FALSE(ReadTarget("/v1/" + std::string(kMaxAdminTarget - 3, 'x'), &request));
  const auto with_parameters = [](size_t count) {
    std::string target = "/v1/sets?";
    for (size_t i = 0; i < count; ++i) target += (i == 0 ? "" : "&") + ("p" + std::to_string(i)) + "=1";
    return target;
  };
  AdminRequest few;
  EXPECT_TRUE(ReadTarget(with_parameters(kMaxAdminParameters), &few));
  AdminRequest many;
  EXPECT_FALSE(ReadTarget(with_parameters(kMaxAdminParameters + 1), &many));

  const auto edit_of = [](size_t count) {
    std::string json = R"({"remove":[)";
    for (size_t i = 0; i < count; ++i) json += (i == 0 ? "\"r" : ",\"r") + std::to_string(i) + "\"";
    return json + "]}";
  };
  EXPECT_TRUE(ReadPolicyEdit(edit_of(kMaxEdits)));
  EXPECT_FALSE(ReadPolicyEdit(edit_of(kMaxEdits + 1)));

  const auto over = VerifyBundle({}, std::string(kMaxBundleBytes + 1, '#'), std::string(64, '\0'));
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, Code::kExhausted);
  EXPECT_EQ(VerifyBundle({}, std::string(kMaxBundleBytes, '#'), std::string(64, '\0')).error().code, Code::kPermission);

  std::string pem;
  const std::string one =
      "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";
  for (size_t i = 0; i < kMaxBundleKeys; ++i) pem += one;
  ASSERT_TRUE(ReadBundleKeys(pem, "keys"));
  EXPECT_EQ(ReadBundleKeys(pem, "keys")->size(), kMaxBundleKeys);
  const auto too_many = ReadBundleKeys(pem + one, "keys");
  ASSERT_FALSE(too_many);
  EXPECT_EQ(too_many.error().code, Code::kExhausted);
}

}  // namespace
}  // namespace sluice::app
