#include "nft/io/session.h"

#include <netinet/in.h>
// netinet/in.h comes before the kernel's headers: they define the same names.
#include <fmt/format.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>

#include "base/fault.h"
#include "base/random.h"
#include "nft/io/netlink_socket.h"
#include "nft/lower.h"

namespace sluice::nft {
namespace {

constexpr size_t kReceiveBytes = 64 * 1024;
constexpr int kReceiveBuffer = 4 * 1024 * 1024;
constexpr int kDefaultSendBuffer = 128 * 1024;

struct Points {
  static int Open(auto call) { return Faulty("nft.session.open", call); }
  static int Bind(auto call) { return Faulty("nft.session.bind", call); }
  static int Limit(auto call) { return Faulty("nft.session.timeout", call); }
};

Result<NetlinkSocket> OpenSocket(int flags, unsigned groups) {
  return OpenNetlink<Points>({.what = "a netfilter netlink socket", .flags = flags, .groups = groups, .room = kReceiveBuffer});
}

const nlattr* FirstAttribute(const nlmsghdr* header) {
  const auto* attribute = static_cast<const nlattr*>(mnl_nlmsg_get_payload_offset(header, sizeof(nfgenmsg)));
  const auto left = static_cast<int>(mnl_nlmsg_get_payload_len(header)) - static_cast<int>(sizeof(nfgenmsg));
  return mnl_attr_ok(attribute, left) ? attribute : nullptr;
}

// What each errno of a batch means, for people.
Error Refused(const Batch& batch, uint32_t sequence, int error) {
  const size_t index = sequence - batch.first_sequence - 1;
  const std::string what = index < batch.objects.size() ? batch.objects[index] : "the batch";
  const auto told = [&](Code code, std::string_view why) {
    Error result{code, fmt::format("the kernel refused {}: {}", what, why), error, std::nullopt};
    return result;
  };
  switch (error) {
    case ENFILE:
      return told(Code::kExhausted, "the set is full");
    case EEXIST:
      return told(Code::kInvalid, "it exists already, or overlaps what is there");
    case ENOTEMPTY:
      return told(Code::kInvalid, "it overlaps what is there");
    case EBUSY:
      return told(Code::kInvalid, "it is still in use");
    case ERESTART:
      return told(Code::kIo, "the ruleset was changed meanwhile");
    case EPERM:
      return told(Code::kPermission,
                  "this needs CAP_NET_ADMIN over the network namespace, and a table that another process owns is that one's");
    case EOPNOTSUPP:
      return told(Code::kUnsupported, "this kernel cannot do it");
    default:
      return SystemError(fmt::format("the kernel refused {}", what), error);
  }
}

class KernelSession final : public Session {
 public:
  explicit KernelSession(NetlinkSocket socket) : socket_(std::move(socket)), buffer_(kReceiveBytes) {}

  uint32_t NextSequence() override {
    // Far enough apart that no message of two batches has the same number.
    sequence_ += 1U << 20;
    return sequence_;
  }

  Result<void> Commit(const Batch& batch) override {
    if (batch.acknowledged == 0) return {};
    Discard();
    if (auto sent = Send(batch); !sent) return sent;
    while (true) {
      const ssize_t received = Receive();
      if (received < 0) return FailErrno("no answer from nftables", errno == EAGAIN ? ETIMEDOUT : errno);
      const auto answer = AnswerIn(static_cast<size_t>(received), batch.first_sequence, batch.acknowledged);
      if (!answer) continue;
      if (answer->error != 0) return std::unexpected(Refused(batch, answer->sequence, answer->error));
      return {};
    }
  }

  Result<uint32_t> Generation() override {
    uint32_t generation = 0;
    const auto dumped = Ask(NFT_MSG_GETGEN, 0, 0, {}, [&](std::span<const uint8_t> bytes) {
      const auto* header = reinterpret_cast<const nlmsghdr*>(bytes.data());
      const nlattr* attribute = FirstAttribute(header);
      if (attribute != nullptr && mnl_attr_get_type(attribute) == NFTA_GEN_ID) generation = ntohl(mnl_attr_get_u32(attribute));
    });
    if (!dumped) return std::unexpected(dumped.error());
    return generation;
  }

  Result<Listing> Read(const Table& table, const std::function<Result<uint32_t>()>& epoch) override {
    for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
      const auto before = epoch();
      if (!before) return std::unexpected(before.error());
      ListingReader reader(table);
      if (auto fed = FeedAll(table, reader); !fed) {
        if (fed.error().sys_errno == ENOBUFS || fed.error().sys_errno == EINTR) continue;
        return std::unexpected(fed.error());
      }
      const auto after = epoch();
      if (!after) return std::unexpected(after.error());
      // A dump is not told of commits in its midst: only the generation is.
      if (*before == *after) return reader.Take();
    }
    return Fail(Code::kTimeout, "the ruleset of this namespace is changed faster than it can be read");
  }

  Result<std::vector<HeldElement>> Elements(const Table& table, const Set& set) override {
    std::vector<HeldElement> elements;
    for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
      elements.clear();
      const auto before = Generation();
      if (!before) return std::unexpected(before.error());
      const auto dumped = Dump(NFT_MSG_GETSETELEM, table, set.name,
                               [&](std::span<const uint8_t> bytes) { ReadElements(bytes, table, set.name, &elements); });
      if (!dumped && dumped.error().sys_errno == ENOENT) return elements;
      if (!dumped && dumped.error().sys_errno != ENOBUFS && dumped.error().sys_errno != EINTR)
        return std::unexpected(dumped.error());
      const auto after = Generation();
      if (!after) return std::unexpected(after.error());
      if (dumped && *before == *after) break;
    }
    return elements;
  }

  Result<std::vector<ChainName>> Chains() override {
    std::vector<ChainName> chains;
    Result<void> dumped;
    for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
      chains.clear();
      dumped = Ask(NFT_MSG_GETCHAIN, NLM_F_DUMP, AF_UNSPEC, {},
                   [&](std::span<const uint8_t> bytes) { ReadChainNames(bytes, &chains); });
      if (dumped) return chains;
      if (dumped.error().sys_errno != ENOBUFS && dumped.error().sys_errno != EINTR) break;
    }
    return std::unexpected(dumped.error());
  }

  Result<Traits> Probe() override;

  uint32_t port() const override { return mnl_socket_get_portid(socket_.get()); }

 private:
  struct Answer {
    uint32_t sequence = 0;
    int error = 0;
  };

  // What an earlier call left behind, after it gave up.
  void Discard() {
    while (::recv(mnl_socket_get_fd(socket_.get()), buffer_.data(), buffer_.size(), MSG_DONTWAIT | MSG_TRUNC) > 0 ||
           errno == ENOBUFS)
      errno = 0;
  }

  Result<void> Send(const Batch& batch) {
    const auto wanted = static_cast<int>(std::min(batch.bytes.size() + 64 * 1024, 2 * kMaxLargeBatchBytes));
    if (wanted > send_buffer_) {
      const int fd = mnl_socket_get_fd(socket_.get());
      if (::setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &wanted, sizeof wanted) != 0)
        ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &wanted, sizeof wanted);
      send_buffer_ = wanted;
    }
    const auto send = [&] { return mnl_socket_sendto(socket_.get(), batch.bytes.data(), batch.bytes.size()); };
    if (Faulty("nft.session.send", send) >= 0) return {};
    const int error = errno;
    if (error == EMSGSIZE) {
      Error result =
          SystemError(fmt::format("a batch of {} bytes is larger than this socket may send", batch.bytes.size()), error);
      result.code = Code::kExhausted;
      return std::unexpected(std::move(result));
    }
    if (error == EPERM) return FailErrno("nftables needs CAP_NET_ADMIN over its network namespace", error);
    return FailErrno("cannot send to nftables", error);
  }

  ssize_t Receive() {
    while (true) {
      const ssize_t received =
          Faulty("nft.session.receive", [&] { return mnl_socket_recvfrom(socket_.get(), buffer_.data(), buffer_.size()); });
      if (received >= 0 || errno != EINTR) return received;
    }
  }

  // The first error in `received` bytes, or the acknowledgement; absent: neither has come yet. Answers from before `first` are
  // not ours.
  std::optional<Answer> AnswerIn(size_t received, uint32_t first, uint32_t acknowledged) {
    int left = static_cast<int>(received);
    for (auto* header = reinterpret_cast<nlmsghdr*>(buffer_.data()); mnl_nlmsg_ok(header, left);
         header = mnl_nlmsg_next(header, &left)) {
      if (header->nlmsg_type != NLMSG_ERROR || mnl_nlmsg_get_payload_len(header) < sizeof(nlmsgerr)) continue;
      if (header->nlmsg_seq - first >= 1U << 20) continue;
      const auto* answer = static_cast<const nlmsgerr*>(mnl_nlmsg_get_payload(header));
      if (answer->error != 0 || header->nlmsg_seq == acknowledged) return Answer{header->nlmsg_seq, -answer->error};
    }
    return std::nullopt;
  }

  // One request that is no batch. `put` adds attributes; `each` gets the messages of the answer.
  Result<void> Ask(uint16_t type, uint16_t flags, uint8_t family, const std::function<void(nlmsghdr*)>& put,
                   const std::function<void(std::span<const uint8_t>)>& each) {
    Discard();
    alignas(nlmsghdr) std::array<char, 1024> request{};
    nlmsghdr* header = mnl_nlmsg_put_header(request.data());
    header->nlmsg_type = static_cast<uint16_t>(NFNL_SUBSYS_NFTABLES << 8 | type);
    header->nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
    header->nlmsg_seq = NextSequence();
    auto* extra = static_cast<nfgenmsg*>(mnl_nlmsg_put_extra_header(header, sizeof(nfgenmsg)));
    extra->nfgen_family = family;
    extra->version = NFNETLINK_V0;
    if (put) put(header);
    const uint32_t sequence = header->nlmsg_seq;
    if (Faulty("nft.session.ask", [&] { return mnl_socket_sendto(socket_.get(), header, header->nlmsg_len); }) < 0)
      return FailErrno("cannot ask nftables", errno);
    while (true) {
      const ssize_t received = Receive();
      if (received < 0) return FailErrno("no answer from nftables", errno == EAGAIN ? ETIMEDOUT : errno);
      int left = static_cast<int>(received);
      for (auto* answer = reinterpret_cast<nlmsghdr*>(buffer_.data()); mnl_nlmsg_ok(answer, left);
           answer = mnl_nlmsg_next(answer, &left)) {
        if (answer->nlmsg_seq != sequence) continue;
        if ((answer->nlmsg_flags & NLM_F_DUMP_INTR) != 0) return FailErrno("the ruleset changed while it was read", EINTR);
        if (answer->nlmsg_type == NLMSG_DONE) return {};
        if (answer->nlmsg_type == NLMSG_ERROR) {
          const int error = -static_cast<const nlmsgerr*>(mnl_nlmsg_get_payload(answer))->error;
          if (error == 0) return {};
          return FailErrno("nftables cannot be read", error);
        }
        each({reinterpret_cast<const uint8_t*>(answer), answer->nlmsg_len});
        if ((flags & NLM_F_DUMP) == 0) return {};
      }
    }
  }

  Result<void> Dump(uint16_t type, const Table& table, const std::string& set,
                    const std::function<void(std::span<const uint8_t>)>& each) {
    return Ask(
        type, NLM_F_DUMP, NetlinkFamily(table.family),
        [&](nlmsghdr* header) {
          if (type == NFT_MSG_GETSETELEM) {
            mnl_attr_put_strz(header, NFTA_SET_ELEM_LIST_TABLE, table.name.c_str());
            mnl_attr_put_strz(header, NFTA_SET_ELEM_LIST_SET, set.c_str());
          } else if (type != NFT_MSG_GETTABLE && type != NFT_MSG_GETCHAIN) {
            mnl_attr_put_strz(header, NFTA_RULE_TABLE, table.name.c_str());  // NFTA_SET_TABLE is the same
          }
        },
        each);
  }

  Result<void> FeedAll(const Table& table, ListingReader& reader) {
    const auto feed = [&](std::span<const uint8_t> bytes) { reader.Feed(bytes); };
    for (const uint16_t type : {NFT_MSG_GETTABLE, NFT_MSG_GETCHAIN, NFT_MSG_GETRULE, NFT_MSG_GETSET}) {
      const auto dumped = Dump(type, table, "", feed);
      // ENOENT: there is no such table, which the listing says.
      if (!dumped && dumped.error().sys_errno != ENOENT) return dumped;
    }
    for (const Set& set : table.sets) {
      if (!set.is_static()) continue;
      const auto dumped = Dump(NFT_MSG_GETSETELEM, table, set.name, feed);
      if (!dumped && dumped.error().sys_errno != ENOENT) return dumped;
    }
    return {};
  }

  NetlinkSocket socket_;
  std::vector<char> buffer_;
  uint32_t sequence_ = 0;
  int send_buffer_ = kDefaultSendBuffer;
};

Result<Session::Traits> KernelSession::Probe() {
  Traits traits;
  Table table{Family::kInet, "sluice_probe_" + RandomHex(6), {}};
  table.hold = Hold::kOwned;  // whatever becomes of this process, nothing of it stays
  table.sets.push_back({.name = "s", .key = {KeyType::kAddress4}, .size = 4, .timeouts = true});
  const Key key = Key().Address(IpAddress::FromV4(0xc0000201));  // 192.0.2.1, of documentation
  {
    BatchBuilder builder(NextSequence());
    builder.CreateTable(table, Existing::kRefuse);
    if (auto filled = builder.Fill(table); !filled) return std::unexpected(filled.error());
    const TimedElement element{key, std::chrono::hours(1)};
    builder.AddElements(table, table.sets[0], {&element, 1});
    const auto batch = builder.Finish();
    if (!batch) return std::unexpected(batch.error());
    if (auto made = Commit(*batch); !made) return std::unexpected(made.error());
  }
  const auto tried = [&](auto&& add) {
    BatchBuilder builder(NextSequence());
    add(builder);
    const auto batch = builder.Finish();
    return batch && Commit(*batch).has_value();
  };
  const TimedElement longer{key, std::chrono::hours(2)};
  tried([&](BatchBuilder& builder) { builder.AddElements(table, table.sets[0], {&longer, 1}); });
  if (const auto held = Elements(table, table.sets[0]); held && held->size() == 1)
    traits.readd_updates_timeout = held->front().left > std::chrono::minutes(90);
  const Key absent = Key().Address(IpAddress::FromV4(0xc0000202));
  traits.destroys =
      tried([&](BatchBuilder& builder) { builder.DeleteElements(table, table.sets[0], {&absent, 1}, Absent::kIgnore); });
  Table owned{Family::kInet, table.name + "_owned", {}};
  owned.hold = Hold::kOwnedPersistent;
  traits.owned_persistent = tried([&](BatchBuilder& builder) { builder.CreateTable(owned, Existing::kRefuse); });
  BatchBuilder builder(NextSequence());
  builder.DeleteTable(table);
  if (traits.owned_persistent) builder.DeleteTable(owned);
  const auto batch = builder.Finish();
  if (!batch) return std::unexpected(batch.error());
  if (auto gone = Commit(*batch); !gone) return std::unexpected(gone.error());
  return traits;
}

class KernelNotices final : public Notices {
 public:
  explicit KernelNotices(NetlinkSocket socket) : socket_(std::move(socket)), buffer_(kReceiveBytes) {}
  int fd() const override { return mnl_socket_get_fd(socket_.get()); }

  bool Drain(const std::vector<std::string>& tables, uint32_t own_port) override {
    bool touched = false;
    while (true) {
      const ssize_t received =
          Faulty("nft.notice", [&] { return mnl_socket_recvfrom(socket_.get(), buffer_.data(), buffer_.size()); });
      if (received < 0 && errno == EINTR) continue;
      if (received < 0 && errno == ENOBUFS) {
        touched = true;
        continue;
      }
      // What cannot be read may be of one's own tables.
      if (received < 0 && errno != EAGAIN) return true;
      if (received <= 0) return touched;
      int left = static_cast<int>(received);
      for (const auto* header = reinterpret_cast<const nlmsghdr*>(buffer_.data()); mnl_nlmsg_ok(header, left);
           header = mnl_nlmsg_next(header, &left))
        touched = touched || (header->nlmsg_pid != own_port && Concerns(header, tables));
    }
  }

 private:
  // Of every kind of object the first attribute is the name of its table.
  static bool Concerns(const nlmsghdr* header, const std::vector<std::string>& tables) {
    const unsigned type = header->nlmsg_type & 0xffU;
    if (header->nlmsg_type >> 8 != NFNL_SUBSYS_NFTABLES || type == NFT_MSG_NEWGEN) return false;
    const nlattr* attribute = FirstAttribute(header);
    if (attribute == nullptr || mnl_attr_get_type(attribute) != 1 || mnl_attr_get_payload_len(attribute) == 0) return false;
    const std::string_view text(mnl_attr_get_str(attribute), mnl_attr_get_payload_len(attribute) - 1U);
    return std::ranges::find(tables, text) != tables.end();
  }

  NetlinkSocket socket_;
  std::vector<char> buffer_;
};

}  // namespace

Result<std::unique_ptr<Session>> Session::Open() {
  auto socket = OpenSocket(0, 0);
  if (!socket) return std::unexpected(socket.error());
  return std::make_unique<KernelSession>(std::move(*socket));
}

Result<std::unique_ptr<Notices>> Notices::Open() {
  auto socket = OpenSocket(SOCK_NONBLOCK, 1U << (NFNLGRP_NFTABLES - 1));
  if (!socket) return std::unexpected(socket.error());
  return std::make_unique<KernelNotices>(std::move(*socket));
}

}  // namespace sluice::nft
