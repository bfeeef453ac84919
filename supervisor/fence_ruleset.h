#pragma once

// The nftables rules of a network namespace that Sluice shares with a workload, as a value. Two tables: `inet` judges what the
// namespace sends and gets, `netdev` lets out of each device only what the first has passed. Everything else is dropped, whatever
// its protocol or the kind of socket that sent it. docs/sidecar.md tells what each rule is for.
//
// How Sluice's own packets are known: FencePlan::seal is on its sockets; what the inet table passes, sealed or not, gets
// `passage` written on the packet, which no socket ever carries, and the egress chains accept only that and erase it before a tap
// could see it. Guesses of the seal are counted by distinct marks: after kGuessedMarks of them nothing leaves for kAlarm.
//
//   FencePlan plan{.seal = DrawSeal(), .passage = DrawSeal(), .proxy_port = 15001, .dns_port = 15053};
//   for (const nft::Table& table : FenceRuleset(plan)) std::cout << nft::ToText(table);

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ip.h"
#include "base/result.h"
#include "base/socket_seal.h"
#include "nft/ruleset.h"

namespace sluice::supervisor {

inline constexpr const char* kFenceTable = "sluice";
inline constexpr const char* kFenceEgressTable = "sluice_egress";

/// Elements of dyn4, and as many of dyn6.
inline constexpr uint32_t kFenceElements = 131072;
/// Entries of one static set after overlaps were split.
inline constexpr size_t kFenceStaticElements = 65536;
/// Distinct marks that packets may carry in a day without being the seal; the next one shuts the namespace for kFenceAlarm.
inline constexpr uint32_t kFenceGuesses = 256;
inline constexpr std::chrono::seconds kFenceGuessMemory{24 * 60 * 60};
inline constexpr std::chrono::seconds kFenceAlarm{60};

/// One opaque allow that a DNS answer stands for: the key of dyn4 and dyn6.
struct FenceElement {
  IpAddress address;
  nft::Protocol protocol = nft::Protocol::kTcp;  ///< kTcp or kUdp
  uint16_t port = 0;
  auto operator<=>(const FenceElement&) const = default;
};

/// A static allow by address, for opaque rules that need no process.
struct FenceCidr {
  Cidr prefix;
  nft::Protocol protocol = nft::Protocol::kTcp;  ///< kTcp or kUdp
  uint16_t first_port = 0;
  uint16_t last_port = 0;  ///< inclusive
  bool operator==(const FenceCidr&) const = default;
};

enum class FenceLayout : uint8_t {
  kShared,  ///< the workload lives in the namespace that has the real interfaces
  kBehind,  ///< the workload has a namespace of its own; this one holds the other end of its veth
};

/// New TCP connections from outside into the shared namespace, and their answers.
enum class FenceInbound : uint8_t { kAccept, kDrop };

/// How the kernel holds the tables.
enum class FenceHold : uint8_t {
  kOwnedPersistent,  ///< Linux 6.9: nobody else can change them, and they outlive this process
  kPlain,            ///< others with CAP_NET_ADMIN can; the watcher puts them back
};

/// For FenceLayout::kBehind: the device toward the workload and the addresses assigned to it.
struct FenceDownlink {
  std::string device;
  std::vector<IpAddress> addresses;
};

/// 169.254.169.254 and fd00:ec2::254, where clouds hand out credentials.
[[nodiscard]] std::vector<Cidr> MetadataAddresses();

struct FencePlan {
  SocketSeal seal;          ///< of Sluice's sockets
  SocketSeal passage;       ///< of packets between the output chain and a device
  uint16_t proxy_port = 0;  ///< 0: TCP is reset
  uint16_t dns_port = 0;    ///< 0: lookups are refused
  std::vector<FenceCidr> allow{};
  std::vector<Cidr> deny = MetadataAddresses();  ///< ahead of every accept, Sluice's own traffic included
  FenceInbound inbound = FenceInbound::kAccept;
  uint32_t generation = 0;          ///< raised by whoever narrows; flows of an older one are judged anew
  uint32_t mark_mask = 0xff000000;  ///< bits of the conntrack mark that hold it; others are left alone
  FenceLayout layout = FenceLayout::kShared;
  FenceDownlink downlink{};
  FenceHold hold = FenceHold::kOwnedPersistent;  ///< the most to ask of the kernel
  std::vector<std::string> devices{};            ///< with an egress chain, beside `lo`; the fence fills it in from the kernel
};

/// The conntrack mark of flows that the kernel passes by itself, within mark_mask; never zero.
[[nodiscard]] uint32_t GenerationMark(const FencePlan& plan);

/// The chains of each device beside `lo`, in the order of FencePlan::devices.
[[nodiscard]] std::vector<std::string> DeviceChains(const FencePlan& plan);

/// The tables, complete with the elements of the static sets; the dynamic sets are empty. The first is the one that judges. A set
/// that would have more than kFenceStaticElements is empty.
[[nodiscard]] std::vector<nft::Table> FenceRuleset(const FencePlan& plan);
/// The same; kExhausted where a set would have more.
[[nodiscard]] Result<std::vector<nft::Table>> CheckedFenceRuleset(const FencePlan& plan);
/// Deny-all: the same without any allow, port or inbound connection, for the time before anything listens.
[[nodiscard]] FencePlan ClosedPlan(const FencePlan& plan);

/// Whether the static sets of `plan` pass this, as the kernel would judge it.
[[nodiscard]] bool StaticallyAllowed(const FencePlan& plan, const FenceElement& element);

/// The same for many questions about one plan.
class StaticAllows {
 public:
  StaticAllows() = default;
  explicit StaticAllows(const FencePlan& plan);
  [[nodiscard]] bool Contain(const FenceElement& element) const;

 private:
  std::vector<Cidr> deny_;
  std::vector<nft::Element> allow4_;
  std::vector<nft::Element> allow6_;
};

}  // namespace sluice::supervisor
