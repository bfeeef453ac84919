// What the kernel does with batches, each in a namespace of its own: the traps that callers must not fall into.

#include "nft/io/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/unique_fd.h"
#include "tests/nft/in_namespace.h"

namespace sluice::nft {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

Key KeyOf(uint32_t number) { return Key().Address(IpAddress::FromV4(0x0a000000 + number)).Protocol(6).Port(443); }

Table Frame(uint32_t size = 100000) {
  Table table{Family::kInet, "t", {}};
  table.sets.push_back(
      {.name = "s", .key = {KeyType::kAddress4, KeyType::kProtocol, KeyType::kPort}, .size = size, .timeouts = true});
  return table;
}

struct Open {
  std::unique_ptr<Session> session;
  Table table;

  explicit Open(uint32_t size = 100000) : session(std::move(*Session::Open())), table(Frame(size)) {}
  template <class Add>
  Result<void> Do(Add add) {
    BatchBuilder builder(session->NextSequence());
    add(builder);
    const auto batch = builder.Finish();
    if (!batch) return std::unexpected(batch.error());
    return session->Commit(*batch);
  }
  Result<void> Make() {
    return Do([&](BatchBuilder& builder) {
      builder.CreateTable(table, Existing::kRefuse);
      (void)builder.Fill(table);
    });
  }
  Result<void> Add(uint32_t number, std::chrono::milliseconds timeout) {
    const TimedElement element{KeyOf(number), timeout};
    return Do([&](BatchBuilder& builder) { builder.AddElements(table, table.sets[0], {&element, 1}); });
  }
  Result<void> Delete(std::vector<uint32_t> numbers, Absent absent) {
    std::vector<Key> keys;
    for (const uint32_t number : numbers) keys.push_back(KeyOf(number));
    return Do([&](BatchBuilder& builder) { builder.DeleteElements(table, table.sets[0], keys, absent); });
  }
  std::vector<HeldElement> Held() { return session->Elements(table, table.sets[0]).value(); }
};

std::string Yes(bool yes) { return yes ? "" : "no"; }
std::string Say(const Result<void>& result) { return result ? "done" : result.error().message; }

TEST(Session, ASecondAddSetsTheTimeoutAndMayShortenIt) {
  EXPECT_EQ(InNewNamespace([] {
              Open open;
              if (auto made = open.Make(); !made) return Say(made);
              (void)open.Add(1, 3600s);
              (void)open.Add(1, 60s);
              const auto traits = open.session->Probe();
              if (!traits) return traits.error().message;
              const bool shortened = open.Held().at(0).left < 100s;
              return Yes(shortened == traits->readd_updates_timeout);
            }),
            "");
}

TEST(Session, ASecondAddWithoutATimeoutMakesItPermanent) {
  EXPECT_EQ(InNewNamespace([] {
              Open open;
              (void)open.Make();
              (void)open.Add(1, 3600s);
              (void)open.Add(1, 0ms);
              // Which is why no element is ever sent without one.
              const auto held = open.Held();
              return held.size() == 1 && (held[0].timeout == 0ms) == open.session->Probe()->readd_updates_timeout ? "" : "not so";
            }),
            "");
}

TEST(Session, DeletingWhatIsAbsentAbortsTheBatchUnlessItIsIgnored) {
  EXPECT_EQ(InNewNamespace([] {
              Open open;
              (void)open.Make();
              (void)open.Add(1, 60s);
              (void)open.Add(2, 30ms);
              std::this_thread::sleep_for(60ms);
              const auto refused = open.Delete({1, 2}, Absent::kRefuse);
              if (refused || refused.error().sys_errno != ENOENT) return "refused: " + Say(refused);
              if (open.Held().size() != 1) return std::string("the batch was not all or nothing");
              if (!open.session->Probe()->destroys) return std::string();
              const auto ignored = open.Delete({1, 2}, Absent::kIgnore);
              return ignored && open.Held().empty() ? "" : "ignored: " + Say(ignored);
            }),
            "");
}

TEST(Session, EachRefusalHasItsOwnWords) {
  EXPECT_THAT(InNewNamespace([] {
                Open open(2);
                (void)open.Make();
                (void)open.Add(1, 60s);
                (void)open.Add(2, 60s);
                const auto full = open.Add(3, 60s);
                return Say(full) +
                       (full.error().sys_errno == ENFILE && full.error().code == Code::kExhausted ? "" : " (another code)");
              }),
              "the kernel refused elements of set t s: the set is full");
  EXPECT_THAT(InNewNamespace([] {
                Open open;
                open.table.sets[0] = {.name = "s", .key = {KeyType::kAddress4}, .kind = SetKind::kInterval};
                const auto range = [](uint32_t from, uint32_t to) {
                  return Element{Key().Address(IpAddress::FromV4(from)), Key().Address(IpAddress::FromV4(to))};
                };
                open.table.sets[0].elements = {range(10, 20), range(15, 30)};
                return Say(open.Make());
              }),
              HasSubstr("overlaps what is there"));
  EXPECT_THAT(InNewNamespace([] {
                Open open;
                open.table.chains.push_back(
                    {"c",
                     Hook::kOutput,
                     0,
                     Policy::kAccept,
                     {{InSet{{Field::kDestination4, Field::kProtocol, Field::kDestinationPort}, "s"}, Verdict::kDrop}}});
                (void)open.Make();
                // The message that makes the set, sent as the one that deletes it.
                BatchBuilder builder(open.session->NextSequence());
                Table only = Frame();
                (void)builder.Fill(only);
                auto batch = builder.Finish().value();
                auto* header = reinterpret_cast<nlmsghdr*>(
                    batch.bytes.data() + NLMSG_ALIGN(reinterpret_cast<nlmsghdr*>(batch.bytes.data())->nlmsg_len));
                header->nlmsg_type = static_cast<uint16_t>((header->nlmsg_type & 0xff00) | NFT_MSG_DELSET);
                header->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
                return Say(open.session->Commit(batch));
              }),
              HasSubstr("it is still in use"));
  EXPECT_THAT(InNewNamespace([] {
                Open open;
                (void)open.Make();
                return Say(open.Make());
              }),
              HasSubstr("it exists already"));
}

TEST(Session, ABatchAboveTheSendBufferSaysSo) {
  // In a user namespace of its own nobody may raise the buffer over the system's limit.
  EXPECT_THAT(InNewNamespace([] {
                Open open;
                (void)open.Make();
                std::vector<TimedElement> many;
                for (uint32_t i = 0; i < 50000; ++i) many.push_back({KeyOf(i), 60s});
                const auto sent =
                    open.Do([&](BatchBuilder& builder) { builder.AddElements(open.table, open.table.sets[0], many); });
                return Say(sent) + (sent || sent.error().code == Code::kExhausted ? "" : " (another code)");
              }),
              testing::AnyOf("done", HasSubstr("larger than this socket may send: Message too long")));
}

TEST(Session, ABatchOfManyMessagesAsksForOneAnswer) {
  EXPECT_EQ(InNewNamespace([] {
              Open open;
              (void)open.Make();
              // Batches as callers split them: each element a message.
              const auto many = [&](bool acknowledge_all) {
                BatchBuilder builder(open.session->NextSequence());
                for (uint32_t i = 0; i < 2500; ++i) {
                  const TimedElement element{KeyOf(i + (acknowledge_all ? 0 : 5000)), 60s};
                  builder.AddElements(open.table, open.table.sets[0], {&element, 1});
                }
                auto batch = builder.Finish().value();
                for (size_t at = 0; acknowledge_all && at + sizeof(nlmsghdr) <= batch.bytes.size();) {
                  auto* header = reinterpret_cast<nlmsghdr*>(batch.bytes.data() + at);
                  if (header->nlmsg_type >> 8 != 0) header->nlmsg_flags |= NLM_F_ACK;
                  at += NLMSG_ALIGN(header->nlmsg_len);
                }
                return open.session->Commit(batch);
              };
              const auto lost = many(true);
              if (open.Held().size() != 2500) return "the lost answers' elements: " + std::to_string(open.Held().size());
              if (!lost && lost.error().sys_errno != ENOBUFS) return "all acknowledged: " + Say(lost);
              const auto once = many(false);
              return once && open.Held().size() == 5000 ? "" : "one answer: " + Say(once);
            }),
            "");
}

TEST(Session, ABatchForAnotherGenerationIsRefused) {
  EXPECT_EQ(InNewNamespace([] {
              Open open;
              Open other;
              const uint32_t before = open.session->Generation().value();
              other.table.name = "other";
              if (auto made = other.Make(); !made) return Say(made);
              const auto make = [&](uint32_t generation) {
                BatchBuilder builder(open.session->NextSequence(), kMaxLargeBatchBytes, generation);
                builder.CreateTable(open.table, Existing::kRefuse);
                (void)builder.Fill(open.table);
                return open.session->Commit(builder.Finish().value());
              };
              const auto late = make(before);
              if (late || late.error().sys_errno != ERESTART) return "late: " + Say(late);
              return Say(make(open.session->Generation().value()));
            }),
            "done");
}

TEST(Session, AnOwnedTableIsItsOwnersAndOutlivesIt) {
  EXPECT_THAT(InNewNamespace([] {
                Open first;
                if (!first.session->Probe()->owned_persistent) return std::string();
                first.table.hold = Hold::kOwnedPersistent;
                if (auto made = first.Make(); !made) return Say(made);
                (void)first.Add(1, 60s);
                Open second;
                second.table.hold = Hold::kOwnedPersistent;
                const auto foreign = second.Add(2, 60s);
                if (foreign || foreign.error().code != Code::kPermission) return "foreign: " + Say(foreign);
                if (second.session->Read(second.table)->owner != first.session->port()) return std::string("another owner");
                Command("nft flush ruleset 2>&1");
                if (second.Held().size() != 1) return std::string("flushed");
                first.session.reset();
                const auto adopted =
                    second.Do([&](BatchBuilder& builder) { builder.CreateTable(second.table, Existing::kKeep); });
                if (!adopted) return "adopted: " + Say(adopted);
                return Say(second.Add(2, 60s)) + std::to_string(second.Held().size());
              }),
              testing::AnyOf("", "done2"));
}

TEST(Session, NoticesTellOfOthersChangesOnly) {
  EXPECT_EQ(InNewNamespace([] {
              Open open;
              auto notices = Notices::Open().value();
              (void)open.Make();
              if (notices->Drain({"t"}, open.session->port())) return "its own";
              Command("nft add table inet unrelated 2>&1");
              if (notices->Drain({"t"}, open.session->port())) return "an unrelated table";
              Command("nft add chain inet t c 2>&1");
              pollfd ready{.fd = notices->fd(), .events = POLLIN, .revents = 0};
              if (::poll(&ready, 1, 1000) != 1) return "silent";
              return notices->Drain({"t"}, open.session->port()) ? "" : "a foreign chain";
            }),
            "");
}

// Else it could acknowledge what the kernel refused, or end this process: libnftnl exits over a name that is no text.
TEST(Session, NobodyButTheKernelIsHeard) {
  EXPECT_EQ(
      InNewNamespace([] {
        Open open;
        (void)open.Make();
        const UniqueFd foreign(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER));
        struct {
          nlmsghdr header;
          nlmsgerr answer;
        } forged{};
        forged.header = {.nlmsg_len = sizeof forged, .nlmsg_type = NLMSG_ERROR, .nlmsg_flags = 0, .nlmsg_seq = 0, .nlmsg_pid = 0};
        sockaddr_nl to{};
        to.nl_family = AF_NETLINK;
        to.nl_pid = open.session->port();
        const auto sent = ::sendto(foreign.get(), &forged, sizeof forged, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
        if (sent >= 0) return std::string("taken");
        return errno == ECONNREFUSED ? Say(open.Add(1, 60s)) : std::string("another error");
      }),
      "done");
}

TEST(Session, AReplacementKeepsWhatTheDynamicSetHolds) {
  EXPECT_EQ(
      InNewNamespace([] {
        Open open;
        open.table.chains.push_back({"c", Hook::kOutput, 0, Policy::kAccept, {{Counter{}, Verdict::kAccept, Comment{"all"}}}});
        open.table.chains.push_back({"old", Hook::kInput, 0, Policy::kAccept, {}});
        (void)open.Make();
        (void)open.Add(1, 60s);
        open.table.chains[0].rules = {{ProtocolIs{Protocol::kTcp}, Verdict::kDrop}};
        open.table.chains.pop_back();
        open.table.chains.push_back({"new", Hook::kForward, 0, Policy::kDrop, {}});
        const auto found = open.session->Read(open.table).value();
        const auto done = open.Do([&](BatchBuilder& builder) { (void)builder.Refill(open.table, found.chains); });
        if (!done) return Say(done);
        if (open.Held().size() != 1) return std::string("elements lost");
        return Difference(Plan(open.table), open.session->Read(open.table).value());
      }),
      "");
}

}  // namespace
}  // namespace sluice::nft
