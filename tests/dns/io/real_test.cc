// `dns: real`: true addresses, told only once their leases are in the kernel (here a list that a test keeps).
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "base/stderr_lines.h"
#include "dns/rdata.h"
#include "dns/svcb.h"
#include "tests/dns/io/server_harness.h"
#include "tests/dns/io/stub_upstream.h"
#include "tests/dns/make.h"

namespace sluice::dns {
namespace {

using Datagrams = std::vector<std::vector<uint8_t>>;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// In the kernel's place.
class Kernel {
 public:
  struct Batch {
    std::vector<std::string> leases;
    int64_t seconds = 0;
    WallTime end{};
  };
  Publish publish() {
    return [this](std::span<const Lease> leases, milliseconds lifetime) -> Result<std::chrono::steady_clock::duration> {
      if (delay_.load().count() > 0) std::this_thread::sleep_for(delay_.load());
      if (broken_) return Fail(Code::kIo, "the writer is gone");
      const std::lock_guard lock(mutex_);
      Batch batch{{}, std::chrono::floor<seconds>(lifetime).count(), SystemClock().Wall() + lifetime};
      for (const Lease& lease : leases)
        batch.leases.push_back(fmt::format("{}{}:{}", lease.transport == policy::Transport::kUdp ? "udp " : "",
                                           lease.address.ToString(), lease.port));
      batches_.push_back(std::move(batch));
      return waited_.load();
    };
  }
  [[nodiscard]] std::vector<Batch> batches() const {
    const std::lock_guard lock(mutex_);
    return batches_;
  }
  [[nodiscard]] std::vector<std::string> leases() const {
    std::vector<std::string> all;
    for (const Batch& batch : batches()) all.insert(all.end(), batch.leases.begin(), batch.leases.end());
    return all;
  }
  void Break(bool broken) { broken_ = broken; }
  /// Of which it waits for a change of the rules.
  void Delay(milliseconds delay, milliseconds waited = milliseconds(0)) {
    delay_ = delay;
    waited_ = waited;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Batch> batches_;
  std::atomic<bool> broken_{false};
  std::atomic<milliseconds> delay_{milliseconds(0)};
  std::atomic<milliseconds> waited_{milliseconds(0)};
};

std::vector<std::string> AddressesIn(const std::optional<Message>& answer) {
  std::vector<std::string> addresses;
  if (!answer) return {"no answer"};
  for (const Record& record : answer->answers)
    if (const auto address = AddressOf(record)) addresses.push_back(address->ToString());
  return addresses;
}

Message WithOpt(Message message) {
  message.edns.emplace();
  return message;
}

// Answers by name; what it does not know does not exist.
class Zone {
 public:
  using Answerer = std::function<std::vector<Record>(const std::string& owner)>;
  Zone& On(std::string name, Type type, Answerer answer) {
    entries_.push_back({std::move(name), type, std::move(answer)});
    return *this;
  }
  Zone& Addresses(const std::string& name, std::vector<std::string> addresses, uint32_t ttl = 120) {
    for (const Type type : {Type::kA, Type::kAaaa})
      On(name, type, [=](const std::string& owner) {
        std::vector<Record> records;
        for (const std::string& text : addresses) {
          const IpAddress address = *IpAddress::Parse(text);
          if (address.is_v4() == (type == Type::kA)) records.push_back(AddressRecord(*Name::FromText(owner), address, ttl));
        }
        return records;
      });
    return *this;
  }
  [[nodiscard]] StubUpstream::Handler Handler() const {
    return [entries = entries_](const Message& q, Via) {
      const std::string asked = q.questions[0].name.Canonical();
      Message answer = AnswerTo(q, {});
      answer.header.rcode = Rcode::kNxDomain;
      answer.authority.push_back(SoaRecord(*Name::FromText("test"), Name(), Name(), 60));
      for (const Entry& entry : entries) {
        if (entry.name != asked) continue;
        answer.header.rcode = Rcode::kNoError;
        if (entry.type == q.questions[0].type) answer.answers = entry.answer(q.questions[0].name.ToText());
      }
      return Datagrams{Encode(answer)};
    };
  }

 private:
  struct Entry {
    std::string name;
    Type type;
    Answerer answer;
  };
  std::vector<Entry> entries_;
};

std::string Yaml(const std::string& rules) { return "version: 1\nsettings: { dns: real }\nrules:\n" + rules; }

class RealTest : public testing::Test {
 protected:
  HarnessOptions With(const StubUpstream& upstream, const std::string& rules) {
    HarnessOptions options{.allows = {}, .yaml = Yaml(rules), .upstream = {upstream.endpoint()}};
    options.history = history_;
    options.publish = kernel_.publish();
    return options;
  }
  [[nodiscard]] std::vector<std::string> NamesOf(const char* address) const {
    return history_->NamesOf(*IpAddress::Parse(address), SystemClock().Steady());
  }

  Kernel kernel_;
  std::shared_ptr<NameHistory> history_ = std::make_shared<NameHistory>();
};

TEST_F(RealTest, TrueAddressesAreToldOnceTheirLeasesArePublished) {
  StubUpstream upstream(Zone().Addresses("db.test", {"93.184.216.34", "93.184.216.35", "2606:2800::1"}).Handler());
  ResolverHarness resolver(With(upstream, "  - allow: tcp db.test:5432,5433\n  - allow: udp db.test:123\n"));
  const auto answer = resolver.Ask(AskMessage("Db.Test", Type::kA));
  EXPECT_THAT(AddressesIn(answer), ElementsAre("93.184.216.34", "93.184.216.35"));
  EXPECT_EQ(answer->answers[0].ttl, 120u);
  EXPECT_EQ(answer->answers[0].owner.ToText(), "Db.Test") << "the client's spelling";
  EXPECT_THAT(kernel_.leases(), UnorderedElementsAre("93.184.216.34:5432", "93.184.216.34:5433", "93.184.216.35:5432",
                                                     "93.184.216.35:5433", "udp 93.184.216.34:123", "udp 93.184.216.35:123"));
  EXPECT_EQ(kernel_.batches().at(0).seconds, 180) << "the client's TTL and a minute";
  EXPECT_THAT(NamesOf("93.184.216.34"), ElementsAre("db.test"));
  EXPECT_THAT(AddressesIn(resolver.Ask(AskMessage("db.test", Type::kAaaa))), ElementsAre("2606:2800::1"));
  EXPECT_EQ(upstream.seen().size(), 2u) << "each family is asked for by itself";
  EXPECT_EQ(resolver.pool().size(), 0u);
}

TEST_F(RealTest, OtherAddressesOfANameArePublishedThoughItsFirstAreThereStill) {
  auto asked = std::make_shared<std::atomic<int>>(0);
  StubUpstream upstream(Zone()
                            .On("db.test", Type::kA,
                                [asked](const std::string& owner) {
                                  const IpAddress address = IpAddress::FromV4(0x5db8d822 + static_cast<uint32_t>((*asked)++));
                                  return std::vector{AddressRecord(*Name::FromText(owner), address, 0)};
                                })
                            .Handler());
  ResolverHarness resolver(With(upstream, "  - allow: tcp db.test:5432\n"));
  for (const char* address : {"93.184.216.34", "93.184.216.35"}) {
    std::vector<std::string> told;
    for (int i = 0; i < 100 && told != std::vector<std::string>{address}; ++i) {
      if (i > 0) std::this_thread::sleep_for(milliseconds(100));
      told = AddressesIn(resolver.Ask(AskMessage("db.test", Type::kA)));
      ASSERT_EQ(told.size(), 1U);
      ASSERT_THAT(kernel_.leases(), testing::Contains(told[0] + ":5432")) << "told, and not let through";
    }
    ASSERT_THAT(told, ElementsAre(address));
  }
}

TEST_F(RealTest, AWriterThatFailsNowAndThenIsToldOnce) {
  StubUpstream upstream(Zone()
                            .Addresses("a.test", {"93.184.216.34"})
                            .Addresses("b.test", {"93.184.216.35"})
                            .Addresses("c.test", {"93.184.216.36"})
                            .Handler());
  ResolverHarness resolver(With(upstream, "  - allow: tcp *.test:5432\n"));
  testing::internal::CaptureStderr();
  for (const char* name : {"a.test", "b.test", "c.test"}) {
    for (const bool broken : {true, false}) {
      kernel_.Break(broken);
      (void)resolver.Ask(AskMessage(name, Type::kA));
    }
  }
  EXPECT_TRUE(FlushStderr(std::chrono::seconds(20)));
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
}

TEST_F(RealTest, InspectedNamesAreRememberedAndNotLeased) {
  StubUpstream upstream(Zone().Addresses("api.test", {"93.184.216.34"}).Handler());
  ResolverHarness resolver(With(upstream, "  - allow: GET api.test/v1/**\n  - allow: tls api.test:8443\n"));
  EXPECT_THAT(AddressesIn(resolver.Ask(AskMessage("api.test", Type::kA))), ElementsAre("93.184.216.34"));
  EXPECT_THAT(kernel_.leases(), IsEmpty());
  EXPECT_THAT(NamesOf("93.184.216.34"), ElementsAre("api.test"));
}

TEST_F(RealTest, AWriterThatFailsOrStallsMeansServfailAndNoAddress) {
  StubUpstream upstream(Zone().Addresses("db.test", {"93.184.216.34"}).Handler());
  ResolverHarness resolver(With(upstream, "  - allow: tcp db.test:5432\n"));
  kernel_.Break(true);
  for (int i = 0; i < 2; ++i) {  // a miss, then a hit
    const auto start = std::chrono::steady_clock::now();
    const auto answer = resolver.Ask(WithOpt(AskMessage("db.test", Type::kA)));
    EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(500));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->header.rcode, Rcode::kServFail);
    EXPECT_TRUE(answer->answers.empty());
    ASSERT_TRUE(answer->edns && answer->edns->error);
    EXPECT_EQ(answer->edns->error->code, Ede::kOther);
    EXPECT_THAT(NamesOf("93.184.216.34"), IsEmpty());
  }
  kernel_.Break(false);
  kernel_.Delay(milliseconds(80));
  EXPECT_EQ(resolver.Ask(AskMessage("db.test", Type::kA))->header.rcode, Rcode::kServFail) << "over 50 ms";
  kernel_.Delay(milliseconds(130), milliseconds(60));
  EXPECT_EQ(resolver.Ask(AskMessage("db.test", Type::kA))->header.rcode, Rcode::kServFail) << "over 50 ms besides what it waited";
  kernel_.Delay(milliseconds(0));
  EXPECT_THAT(AddressesIn(resolver.Ask(AskMessage("db.test", Type::kA))), ElementsAre("93.184.216.34"));
}

TEST_F(RealTest, WaitingForAChangeOfTheRulesIsNoStall) {
  StubUpstream upstream(Zone().Addresses("db.test", {"93.184.216.34"}).Handler());
  ResolverHarness resolver(With(upstream, "  - allow: tcp db.test:5432\n"));
  kernel_.Delay(milliseconds(80), milliseconds(79));
  EXPECT_THAT(AddressesIn(resolver.Ask(AskMessage("db.test", Type::kA))), ElementsAre("93.184.216.34"));
}

TEST_F(RealTest, APolicyThatDeniesDuringTheWaitOpensNothing) {
  std::atomic<ResolverHarness*> resolver{nullptr};
  const auto answer_it = Zone().Addresses("db.test", {"93.184.216.34"}).Handler();
  StubUpstream upstream([&](const Message& q, Via via) {
    resolver.load()->SetYaml(Yaml("  - allow: tcp other.test:5432\n"));
    return answer_it(q, via);
  });
  ResolverHarness harness(With(upstream, "  - allow: tcp db.test:5432\n"));
  resolver = &harness;
  const auto answer = harness.Ask(WithOpt(AskMessage("db.test", Type::kA)));
  EXPECT_EQ(answer->header.rcode, Rcode::kNxDomain);
  EXPECT_EQ(answer->edns->error->code, Ede::kBlocked);
  EXPECT_THAT(kernel_.leases(), IsEmpty());
  EXPECT_THAT(NamesOf("93.184.216.34"), IsEmpty());
}

TEST_F(RealTest, ACommitAndAChangeOfThePolicyExcludeEachOther) {
  StubUpstream upstream(Zone().Addresses("db.test", {"93.184.216.34"}, 1).Handler());
  HarnessOptions options = With(upstream, "  - allow: tcp db.test:1000\n");
  std::atomic<const policy::CurrentPolicy*> policy{nullptr};
  std::atomic<int> wrong{0};
  std::atomic<int> published{0};
  options.publish = [&](std::span<const Lease> leases, milliseconds) -> Result<std::chrono::steady_clock::duration> {
    std::this_thread::sleep_for(milliseconds(2));
    const auto in_force = policy.load()->Get();
    for (const Lease& lease : leases)
      if (!in_force->DecideConnect({.host = "db.test", .address = lease.address, .port = lease.port, .now = SystemClock().Wall()})
               .allowed())
        ++wrong;
    ++published;
    return {};
  };
  ResolverHarness resolver(std::move(options));
  policy = &resolver.policy();
  std::vector<policy::SnapshotPtr> versions;
  for (int port = 1000; port < 1020; ++port)
    versions.push_back(ResolverHarness::LoadYaml(Yaml(fmt::format("  - allow: tcp db.test:{}\n", port))));
  std::atomic<bool> stop{false};
  std::thread changes([&] {
    for (size_t i = 0; !stop; ++i) {
      resolver.policy().Set(versions[i % versions.size()]);
      std::this_thread::sleep_for(std::chrono::microseconds(1500));
    }
  });
  int answered = 0;
  for (int i = 0; i < 5000 && (published < 60 || answered < 60); ++i)
    answered += AddressesIn(resolver.Ask(AskMessage("db.test", Type::kA))).size() == 1 ? 1 : 0;
  stop = true;
  changes.join();
  EXPECT_EQ(wrong, 0) << "nothing is published by a policy that has been replaced";
  EXPECT_GT(published, 50);
  EXPECT_GT(answered, 50);
}

TEST_F(RealTest, HitsPublishAgainWhenTheLeaseMayEndBeforeTheAnswer) {
  StubUpstream upstream(Zone().Addresses("db.test", {"93.184.216.34"}).Handler());
  ResolverHarness resolver(With(upstream, "  - allow: tcp db.test:5432\n"));
  for (int i = 0; i < 5; ++i) ASSERT_EQ(AddressesIn(resolver.Ask(AskMessage("db.test", Type::kA))).size(), 1u);
  EXPECT_EQ(kernel_.batches().size(), 1u) << "the kernel holds it for longer than the answers live";
  resolver.ForgetLeases();
  EXPECT_THAT(AddressesIn(resolver.Ask(AskMessage("db.test", Type::kA))), ElementsAre("93.184.216.34"));
  EXPECT_EQ(kernel_.batches().size(), 2u) << "taken out by somebody else: back before the answer";
  resolver.SetYaml(Yaml("  - allow: tcp db.test:5432,5433\n"));
  EXPECT_THAT(AddressesIn(resolver.Ask(AskMessage("db.test", Type::kA))), ElementsAre("93.184.216.34"));
  EXPECT_EQ(kernel_.batches().size(), 3u) << "another policy, other leases";
  EXPECT_THAT(kernel_.batches().at(2).leases, ElementsAre("93.184.216.34:5432", "93.184.216.34:5433"));
  EXPECT_EQ(upstream.seen().size(), 1u);
}

TEST_F(RealTest, TtlsAreClampedAndLeasesOutliveThemByAMinute) {
  struct Case {
    uint32_t ttl;
    uint32_t told;
    int64_t leased;
  };
  for (const Case& c : {Case{0, 5, 65}, Case{1, 5, 65}, Case{60, 60, 120}, Case{86400, 300, 360}, Case{0x80000000, 5, 65},
                        Case{0xffffffff, 5, 65}}) {
    Kernel kernel;
    StubUpstream upstream(Zone().Addresses("db.test", {"93.184.216.34"}, c.ttl).Handler());
    auto options = With(upstream, "  - allow: tcp db.test:5432\n");
    options.publish = kernel.publish();
    ResolverHarness resolver(std::move(options));
    const auto answer = resolver.Ask(AskMessage("db.test", Type::kA));
    ASSERT_EQ(answer->answers.size(), 1u) << c.ttl;
    EXPECT_EQ(answer->answers[0].ttl, c.told) << c.ttl;
    EXPECT_EQ(kernel.batches().at(0).seconds, c.leased) << c.ttl;
  }
}

TEST_F(RealTest, ALeaseEndsWithItsRule) {
  StubUpstream upstream(Zone().Addresses("db.test", {"93.184.216.34"}).Handler());
  const auto end = std::chrono::floor<seconds>(SystemClock().Wall()) + seconds(20);
  const auto text = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(end)));
  ResolverHarness resolver(With(upstream, "  - allow: tcp db.test:5432\n    until: " + text + "\n"));
  // In the middle of a second: whole seconds would end half of one too early or too late.
  std::this_thread::sleep_until(std::chrono::ceil<seconds>(SystemClock().Wall()) + milliseconds(500));
  ASSERT_EQ(AddressesIn(resolver.Ask(AskMessage("db.test", Type::kA))).size(), 1u);
  const auto off = std::chrono::abs(kernel_.batches().at(0).end - end);
  EXPECT_LT(off, milliseconds(250)) << std::chrono::duration_cast<milliseconds>(off).count();
}

TEST_F(RealTest, AliasesAreFollowedByOwnerAndNothingElseIsAdded) {
  const auto chain = [](int hops) {
    return [hops](const std::string& owner) {
      std::vector<Record> records;
      std::string from = owner;
      for (int i = 0; i < hops; ++i) {
        records.push_back(Cname(from, fmt::format("hop{}.example", i)));
        from = fmt::format("hop{}.example", i);
      }
      records.push_back(A(from, "93.184.216.34"));
      records.push_back(A("other.example", "93.184.216.66"));
      std::ranges::reverse(records);
      return records;
    };
  };
  StubUpstream upstream(Zone().On("three.test", Type::kA, chain(3)).On("twenty.test", Type::kA, chain(20)).Handler());
  ResolverHarness resolver(With(upstream, "  - allow: tcp three.test:5432\n  - allow: tcp twenty.test:5432\n"));
  EXPECT_THAT(AddressesIn(resolver.Ask(AskMessage("three.test", Type::kA))), ElementsAre("93.184.216.34"));
  EXPECT_THAT(kernel_.leases(), ElementsAre("93.184.216.34:5432"));
  EXPECT_THAT(NamesOf("93.184.216.66"), IsEmpty());
  EXPECT_EQ(resolver.Ask(AskMessage("twenty.test", Type::kA))->header.rcode, Rcode::kServFail);
  resolver.SetYaml(Yaml("  - allow: tcp three.test:5432\n  - deny: dns hop1.example\n"));
  EXPECT_EQ(resolver.Ask(AskMessage("three.test", Type::kA))->header.rcode, Rcode::kNxDomain) << "a deny holds for targets";
  EXPECT_EQ(kernel_.leases().size(), 1u);
}

TEST_F(RealTest, AddressesThatNoRuleMayReachAreLeftOut) {
  struct Case {
    std::vector<std::string> found;
    std::vector<std::string> told;
  };
  const Case cases[] = {
      {{"127.0.0.1"}, {}},
      {{"169.254.169.254"}, {}},
      {{"10.0.0.1", "93.184.216.34", "192.168.1.1"}, {"93.184.216.34"}},
      {{"0.0.0.0", "100.64.0.1", "172.16.0.1", "192.0.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255"}, {}},
      {{"::", "::1", "fe80::1", "fc00::1", "ff02::1", "64:ff9b::a00:1", "2002:a00:1::", "fd00:ec2::254"}, {}},
      {{"64:ff9b::5db8:d822", "2606:2800::1"}, {"64:ff9b::5db8:d822", "2606:2800::1"}},
  };
  for (const Case& c : cases) {
    Kernel kernel;
    const Type type = IpAddress::Parse(c.found[0])->is_v4() ? Type::kA : Type::kAaaa;
    StubUpstream upstream(Zone().Addresses("db.test", c.found).Handler());
    auto options = With(upstream, "  - allow: tcp db.test:5432\n");
    options.publish = kernel.publish();
    ResolverHarness resolver(std::move(options));
    const auto answer = resolver.Ask(WithOpt(AskMessage("db.test", type)));
    EXPECT_EQ(AddressesIn(answer), c.told) << c.found[0];
    EXPECT_EQ(answer->header.rcode, Rcode::kNoError);
    EXPECT_EQ(answer->edns->error.has_value(), c.told.empty()) << c.found[0];
    if (answer->edns->error) EXPECT_EQ(answer->edns->error->code, Ede::kFiltered);
    EXPECT_EQ(kernel.leases().size(), c.told.size());
    for (const std::string& lease : kernel.leases()) EXPECT_EQ(lease.find("10.0.0.1"), std::string::npos);
  }
}

TEST_F(RealTest, AMappedAddressInAnAaaaIsNoAddress) {
  for (const char* tail : {"\x0a\x00\x00\x01", "\x5d\xb8\xd8\x22"}) {
    StubUpstream upstream(Zone()
                              .On("db.test", Type::kAaaa,
                                  [tail](const std::string& owner) {
                                    Record record = A(owner, "2606:2800::1");
                                    record.rdata = std::string(10, '\0') + "\xff\xff" + std::string(tail, 4);
                                    return std::vector<Record>{record};
                                  })
                              .Handler());
    ResolverHarness resolver(With(upstream, "  - allow: tcp db.test:5432\n"));
    const auto answer = resolver.Ask(AskMessage("db.test", Type::kAaaa));
    EXPECT_EQ(answer->header.rcode, Rcode::kNoError);
    EXPECT_TRUE(answer->answers.empty());
  }
  EXPECT_THAT(kernel_.leases(), IsEmpty());
}

TEST_F(RealTest, WithoutIpv6AnAaaaIsNodataOnceThePolicyAllowedTheName) {
  StubUpstream upstream(Zone().Addresses("db.test", {"93.184.216.34", "2606:2800::1"}).Handler());
  auto options = With(upstream, "  - allow: tcp db.test:5432\n");
  options.ipv6 = Ipv6Egress::kAbsent;
  ResolverHarness resolver(std::move(options));
  const auto answer = resolver.Ask(AskMessage("db.test", Type::kAaaa));
  EXPECT_EQ(answer->header.rcode, Rcode::kNoError);
  EXPECT_TRUE(answer->answers.empty());
  EXPECT_EQ(answer->authority.size(), 1u);
  EXPECT_EQ(resolver.Ask(AskMessage("evil.test", Type::kAaaa))->header.rcode, Rcode::kNxDomain);
  EXPECT_TRUE(upstream.seen().empty());
  EXPECT_EQ(AddressesIn(resolver.Ask(AskMessage("db.test", Type::kA))).size(), 1u);
}

TEST_F(RealTest, DeniedNamesNeverLeaveWhicheverFormTheyTake) {
  StubUpstream upstream(Zone().Addresses("db.test", {"93.184.216.34"}).Handler());
  auto options = With(upstream, "  - allow: tcp db.test:5432\n  - allow: tcp api.example.test:5432\n");
  options.denial = DenialForm::kRefused;
  ResolverHarness resolver(std::move(options));
  const auto denied = resolver.Ask(WithOpt(AskMessage("evil.test", Type::kA)));
  EXPECT_EQ(denied->header.rcode, Rcode::kRefused);
  EXPECT_EQ(denied->edns->error->code, Ede::kBlocked);
  EXPECT_EQ(resolver.Ask(AskMessage("example.test", Type::kA))->header.rcode, Rcode::kNoError) << "an ancestor";
  EXPECT_TRUE(upstream.seen().empty());
}

TEST_F(RealTest, AWildcardDoesNotMeanOtherResolvers) {
  StubUpstream upstream(Zone()
                            .Addresses("dns.google", {"93.184.216.34"})
                            .Addresses("use-application-dns.net", {"93.184.216.34"})
                            .Addresses("one.one.one.one", {"93.184.216.34"})
                            .Handler());
  ResolverHarness resolver(With(upstream, "  - allow: tcp **:443\n  - allow: tcp one.one.one.one:443\n"));
  EXPECT_EQ(resolver.Ask(AskMessage("use-application-dns.net", Type::kA))->header.rcode, Rcode::kNxDomain);
  EXPECT_EQ(resolver.Ask(AskMessage("dns.google", Type::kA))->header.rcode, Rcode::kNxDomain);
  EXPECT_EQ(resolver.Ask(AskMessage("dns.google", Type::kHttps))->header.rcode, Rcode::kNxDomain);
  const auto discovery = resolver.Ask(AskMessage("_dns.resolver.arpa", Type::kSvcb));
  EXPECT_EQ(discovery->header.rcode, Rcode::kNoError);
  EXPECT_TRUE(discovery->answers.empty());
  EXPECT_TRUE(upstream.seen().empty());
  EXPECT_THAT(AddressesIn(resolver.Ask(AskMessage("one.one.one.one", Type::kA))), ElementsAre("93.184.216.34")) << "spelled";
  const auto events = resolver.events().decisions();
  EXPECT_EQ(std::ranges::count_if(events, [](const auto& event) { return !event.decision.allowed; }), 4);
}

TEST_F(RealTest, NamesThatAProxyLooksUpKeepTheirSyntheticAddress) {
  StubUpstream upstream(Zone().Addresses("db.test", {"93.184.216.34"}).Handler());
  auto options = With(upstream, "");
  options.yaml =
      "version: 1\nsettings: { dns: real }\nproxies:\n  corp: { url: 'http://proxy.test:3128' }\nrules:\n"
      "  - allow: GET far.test\n    via: corp\n  - allow: tcp db.test:5432\n";
  ResolverHarness resolver(std::move(options));
  const auto far = AddressesIn(resolver.Ask(AskMessage("far.test", Type::kA)));
  ASSERT_EQ(far.size(), 1u);
  EXPECT_EQ(resolver.pool().NameOf(*IpAddress::Parse(far[0])), "far.test");
  EXPECT_TRUE(upstream.seen().empty());
  EXPECT_THAT(AddressesIn(resolver.Ask(AskMessage("db.test", Type::kA))), ElementsAre("93.184.216.34"));
}

TEST_F(RealTest, AbsenceAndFailureAreKeptAndForgottenWithThePolicy) {
  std::atomic<int> state{0};
  StubUpstream upstream([&](const Message& q, Via via) {
    if (state == 2) return Zone().Addresses("db.test", {"93.184.216.34"}).Handler()(q, via);
    Message answer = AnswerTo(q, {});
    answer.header.rcode = state == 0 ? Rcode::kNxDomain : Rcode::kServFail;
    if (state == 0) answer.authority.push_back(SoaRecord(*Name::FromText("test"), Name(), Name(), 250));
    return Datagrams{Encode(answer)};
  });
  const std::string rules = "  - allow: tcp db.test:5432\n";
  ResolverHarness resolver(With(upstream, rules));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(resolver.Ask(AskMessage("db.test", Type::kA))->header.rcode, Rcode::kNxDomain);
  EXPECT_EQ(upstream.seen().size(), 1u);
  state = 1;
  resolver.SetYaml(Yaml(rules));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(resolver.Ask(AskMessage("db.test", Type::kA))->header.rcode, Rcode::kServFail);
  EXPECT_EQ(upstream.seen().size(), 2u) << "a failure is kept for a moment";
  state = 2;
  resolver.SetYaml(Yaml(rules));
  EXPECT_THAT(AddressesIn(resolver.Ask(AskMessage("db.test", Type::kA))), ElementsAre("93.184.216.34"));
}

TEST_F(RealTest, ManyAddressesAreCutByUdpAndWholeByTcp) {
  std::vector<std::string> sixty;
  for (int i = 0; i < 60; ++i) sixty.push_back("93.184.216." + std::to_string(i));
  StubUpstream upstream(Zone().Addresses("db.test", sixty).Handler());
  ResolverHarness resolver(With(upstream, "  - allow: tcp db.test:5432\n"));
  const auto plain = resolver.Ask(AskMessage("db.test", Type::kA));
  EXPECT_TRUE(plain->header.truncated);
  EXPECT_TRUE(plain->answers.empty());
  Message with = AskMessage("db.test", Type::kA);
  with.edns = Edns{.udp_octets = 512};
  const auto edns = resolver.Ask(with);
  EXPECT_TRUE(edns->header.truncated);
  EXPECT_TRUE(edns->edns) << "OPT is kept";
  const UniqueFd tcp = resolver.ConnectTcp();
  SendFrame(tcp.get(), Encode(AskMessage("db.test", Type::kA)));
  const auto whole = Decode(*ReceiveFrame(tcp.get()));
  EXPECT_EQ(whole->answers.size(), 60u);
  EXPECT_EQ(kernel_.leases().size(), 60u);
}

TEST_F(RealTest, HttpsRecordsLoseWhatLeadsAroundThePolicy) {
  const auto https = [](const std::string& owner) {
    const auto record = [&](const Svcb& svcb) {
      return Record{*Name::FromText(owner), Type::kHttps, kClassIn, 60, EncodeSvcb(svcb)};
    };
    return std::vector<Record>{
        record({1, Name(), {{1, "\x02h2"}, {4, "\x5d\xb8\xd8\x22"}, {5, "ech"}, {6, std::string(16, '\x20')}}}),
        record({2, Name(), {{3, "\x20\xfb"}}}), record({0, *Name::FromText("elsewhere.test"), {}})};
  };
  StubUpstream upstream(Zone().On("api.test", Type::kHttps, https).Handler());
  ResolverHarness resolver(With(upstream, "  - allow: GET api.test\n  - allow: dns api.test\n    types: [A, AAAA, HTTPS]\n"));
  const auto answer = resolver.Ask(AskMessage("api.test", Type::kHttps));
  ASSERT_EQ(answer->answers.size(), 1u);
  const auto svcb = ParseSvcb(Octets(answer->answers[0].rdata));
  ASSERT_EQ(svcb->params.size(), 1u);
  EXPECT_EQ(svcb->params[0].key, 1);
}

TEST_F(RealTest, WhatBecameReadyTogetherIsPublishedTogether) {
  Zone zone;
  for (int i = 0; i < 40; ++i) zone.Addresses(fmt::format("n{}.test", i), {"93.184.216." + std::to_string(i)});
  // The first answer is late: by then the others have been asked for, and they come together.
  std::atomic<bool> first{true};
  StubUpstream upstream([&first, handler = zone.Handler()](const Message& question, Via via) {
    if (first.exchange(false)) std::this_thread::sleep_for(milliseconds(300));
    return handler(question, via);
  });
  std::string rules;
  for (int i = 0; i < 40; ++i) rules += fmt::format("  - allow: tcp n{}.test:5432\n", i);
  ResolverHarness resolver(With(upstream, rules));
  kernel_.Delay(milliseconds(20));  // so that answers gather behind each commit
  const UniqueFd tcp = resolver.ConnectTcp();
  std::vector<uint8_t> all;
  for (int i = 0; i < 40; ++i) {
    Message question = AskMessage(fmt::format("n{}.test", i), Type::kA);
    question.header.id = static_cast<uint16_t>(i);
    const auto wire = Encode(question);
    all.push_back(static_cast<uint8_t>(wire.size() >> 8));
    all.push_back(static_cast<uint8_t>(wire.size()));
    all.insert(all.end(), wire.begin(), wire.end());
  }
  ASSERT_EQ(send(tcp.get(), all.data(), all.size(), MSG_NOSIGNAL), static_cast<ssize_t>(all.size()));
  for (int i = 0; i < 40; ++i) {
    const auto frame = ReceiveFrame(tcp.get());
    ASSERT_TRUE(frame);
    EXPECT_EQ(Decode(*frame)->answers.size(), 1u);
  }
  EXPECT_EQ(kernel_.leases().size(), 40u);
  EXPECT_LT(kernel_.batches().size(), 40u);
}

TEST_F(RealTest, WhatIsAnsweredFromOctetsIsStillRecordedJudgedAndRemembered) {
  StubUpstream upstream(Zone().Addresses("a.test", {"93.184.216.34"}).Addresses("b.test", {"93.184.216.34"}).Handler());
  ResolverHarness resolver(With(upstream, "  - allow: tcp *.test:5432\n"));
  for (int i = 0; i < 10; ++i) {
    Message question = AskMessage(i % 2 == 0 ? "A.test" : "a.TEST", Type::kA);
    question.header.id = static_cast<uint16_t>(1000 + i);
    const auto answer = resolver.Ask(question);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->header.id, question.header.id);
    EXPECT_EQ(answer->questions, question.questions) << "the spelling of this query";
    EXPECT_THAT(AddressesIn(answer), ElementsAre("93.184.216.34"));
    EXPECT_EQ(answer->answers[0].owner, question.questions[0].name);
  }
  EXPECT_EQ(resolver.events().decisions().size(), 10u);
  ASSERT_TRUE(resolver.Ask(AskMessage("b.test", Type::kA)));
  EXPECT_THAT(NamesOf("93.184.216.34"), ElementsAre("b.test", "a.test"));
  ASSERT_TRUE(resolver.Ask(AskMessage("a.test", Type::kA)));
  EXPECT_THAT(NamesOf("93.184.216.34"), ElementsAre("a.test", "b.test")) << "told last";
  EXPECT_EQ(resolver.Ask(WithOpt(AskMessage("a.test", Type::kA)))->edns.has_value(), true);
  EXPECT_EQ(resolver.Ask(AskMessage("a.test", Type::kA))->edns.has_value(), false);
  resolver.SetYaml(Yaml("  - allow: tcp b.test:5432\n"));
  EXPECT_EQ(resolver.Ask(AskMessage("a.test", Type::kA))->header.rcode, Rcode::kNxDomain) << "at once";
  resolver.events().RefuseAll();
  EXPECT_EQ(resolver.Ask(AskMessage("b.test", Type::kA))->header.rcode, Rcode::kServFail);
}

TEST_F(RealTest, WithoutAHistoryTheModeIsNotServed) {
  StubUpstream upstream(Zone().Addresses("db.test", {"93.184.216.34"}).Handler());
  auto options = With(upstream, "  - allow: tcp db.test:5432\n");
  options.history = nullptr;
  ResolverHarness resolver(std::move(options));
  EXPECT_EQ(resolver.Ask(AskMessage("db.test", Type::kA))->header.rcode, Rcode::kServFail);
  EXPECT_THAT(kernel_.leases(), IsEmpty());
}

TEST_F(RealTest, WithoutAKernelTheProxyCarriesAll) {
  StubUpstream upstream(Zone().Addresses("db.test", {"93.184.216.34"}).Handler());
  auto options = With(upstream, "  - allow: tcp db.test:5432\n");
  options.publish = nullptr;
  ResolverHarness resolver(std::move(options));
  EXPECT_THAT(AddressesIn(resolver.Ask(AskMessage("db.test", Type::kA))), ElementsAre("93.184.216.34"));
  EXPECT_THAT(NamesOf("93.184.216.34"), ElementsAre("db.test"));
}

TEST_F(RealTest, DestroyingTheServerWithAnswersWithheldIsSafe) {
  Zone zone;
  for (int i = 0; i < 20; ++i) zone.Addresses(fmt::format("n{}.test", i), {"93.184.216." + std::to_string(i)});
  StubUpstream upstream(zone.Handler());
  kernel_.Delay(milliseconds(10));
  for (int round = 0; round < 5; ++round) {
    ResolverHarness resolver(With(upstream, "  - allow: tcp *.test:5432\n"));
    const UniqueFd tcp = resolver.ConnectTcp();
    for (int i = 0; i < 16; ++i) SendFrame(tcp.get(), Encode(AskMessage(fmt::format("n{}.test", i), Type::kA)));
    std::this_thread::sleep_for(milliseconds(round * 3));
  }
}

}  // namespace
}  // namespace sluice::dns
