#pragma once

// The walk over all connections: host by host, then address, port, process and time, always with the rules that still cover it.
// Where the same rules are left on both sides, or none that allows, nothing below is looked at.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "prover/findings.h"
#include "prover/prove.h"
#include "prover/sides.h"

namespace sluice::prover {

class Walk {
 public:
  /// `accepted` is null where nothing is accepted. Findings that are null are not looked for.
  Walk(const Side& base, const Side& head, const Side* accepted, const Options& options, Requests* requests, Budget* budget)
      : sides_{&base, &head, accepted}, options_(options), requests_(requests), budget_(budget) {}
  /// How things travel is compared too.
  void CompareWays() { ways_ = sides_[0]->ways.any() || sides_[1]->ways.any(); }

  void Run(Findings* gains, Findings* losses);

 private:
  static constexpr size_t kSides = 3;  // base, head, accepted
  using Alive = std::array<RuleNumbers, kSides>;
  struct Cell {
    std::string host{};
    IpAddress address{};
    bool address_matters = false;
    std::vector<policy::PortRange> ports{};
    uint16_t port = 0;
    WitnessProcess process{};
    std::optional<policy::Process> known{};
    WallTime now{};
  };

  [[nodiscard]] const policy::Rule& RuleOf(size_t side, uint32_t i) const { return sides_[side]->rules()[i]; }
  [[nodiscard]] bool Nothing(const Alive& alive) const;
  template <class Keep>
  [[nodiscard]] Alive Filter(const Alive& alive, Keep keep) const;
  [[nodiscard]] std::vector<const policy::Rule*> RulesOf(const Alive& alive) const;
  [[nodiscard]] std::vector<WallTime> Instants(const Alive& alive) const;

  /// Where the way of travelling may change though no rule does: the host and ports of one entry of a credential's `to` or of a
  /// proxy's `except`. Entries of one proxy say the same.
  struct Place {
    size_t number = 0;
    const policy::HostPattern* host = nullptr;              ///< null: all
    const std::vector<policy::PortRange>* ports = nullptr;  ///< empty: all
  };
  void FindPlaces();
  /// Those that may hold at the name, or at a literal where it is empty.
  [[nodiscard]] std::vector<Place> PlacesAt(const std::string& host) const;

  void Hosts();
  void Literals();
  void Names(const Alive& alive, const std::string& host);
  void NamesAt(const Alive& alive, const Cell& cell);
  void Connections(const Alive& alive, const std::string& host);
  void Addresses(const Alive& alive, Cell cell);
  void Ports(const Alive& alive, Cell cell);
  void Processes(const Alive& alive, Cell cell, void (Walk::*next)(const Alive&, const Cell&));
  void At(const Alive& alive, const Cell& cell);
  /// Whether some of it may go through a proxy that looks the name up.
  [[nodiscard]] bool MayBeRemote(size_t side, const Cell& cell) const;
  /// The rules that cover the address, or that are asked where it is not known.
  [[nodiscard]] RuleNumbers JudgedAt(const Side& side, const RuleNumbers& covering, const policy::ConnectQuery& query);
  void Gain(const Alive& alive, const Cell& cell, const std::array<CellReach, kSides>& reach, size_t winner);
  void RequestGains(const Alive& alive, const Cell& cell, const std::array<CellReach, kSides>& reach, size_t winner,
                    policy::Scheme scheme, const RuleNumbers& everything_by);
  /// A rule's problem with what the rest of the gain needs.
  struct Asked {
    const Cell& cell;
    size_t winner;
    policy::Scheme scheme;
  };
  /// Gives up where the loser refuses a body of several items for the ways of two of its allows, which may let each item out
  /// alone.
  void MindCrossings(const Asked& asked, const std::array<CellReach, kSides>& reach);
  void Solve(const Alive& alive, const Asked& asked, const RequestProblem& problem, const Witness& like);
  void WayGains(const Alive& alive, const Cell& cell, const std::array<CellReach, kSides>& reach, size_t winner);
  /// What of the rule's requests its credential goes with.
  [[nodiscard]] InnerId Carried(size_t side, uint32_t rule, const Cell& cell) const;
  void CredentialGains(const Alive& alive, const Asked& asked, const std::array<CellReach, kSides>& reach);
  /// The same of gains that are no rule's: what `mode: audit` lets through.
  void SolveRest(const Asked& asked, const RequestProblem& problem, const Witness& like);
  void ViaGains(const Alive& alive, const Asked& asked, const std::array<CellReach, kSides>& reach);
  /// What the other side sends through `proxy`, as the base of a problem.
  [[nodiscard]] RequestProblem SentBy(const Asked& asked, const std::array<CellReach, kSides>& reach, uint32_t proxy) const;
  void SolveAudited(const Asked& asked, const RequestProblem& base, const SchemeReach& here, const std::vector<InnerId>& denies,
                    const Witness& like);
  /// Allows that bind what they cover more tightly than others do, on both sides.
  struct Tight {
    std::vector<InnerId> other;
    std::vector<InnerId> mine;  ///< as tightly as `other`
  };
  /// What the winner lets out more loosely than the other side's tight allows.
  void LooseGains(const Alive& alive, const Asked& asked, const std::array<CellReach, kSides>& reach, const Tight& tight,
                  const Witness& like);
  void OwnGains(const Alive& alive, const Asked& asked, const std::array<CellReach, kSides>& reach);
  void PinGains(const Alive& alive, const Asked& asked, const std::array<CellReach, kSides>& reach);
  /// The number of the proxy that the connection goes through, where the side lets it pass unread; 0: none.
  [[nodiscard]] uint32_t ViaOfBytes(const Cell& cell, size_t side) const;
  void OpaqueVia(const Cell& cell, const std::array<CellReach, kSides>& reach, size_t winner);
  void Sockets();
  void SocketsAt(const Alive& alive, const Cell& cell);

  void Found(size_t winner, policy::RuleRef rule, const Cell& cell, Witness witness, std::vector<std::string> methods = {});
  [[nodiscard]] Witness WitnessAt(const Cell& cell, Layer layer) const;
  [[nodiscard]] Findings* FindingsOf(size_t winner) { return winner == 1 ? gains_ : losses_; }

  std::array<const Side*, kSides> sides_;
  const Options& options_;
  Requests* requests_;
  Budget* budget_;
  Findings* gains_ = nullptr;
  Findings* losses_ = nullptr;
  bool ways_ = false;
  std::vector<Place> places_;
  std::array<RuleNumbers, kSides> prefixes_;  ///< rules by address that may speak for a name too
};

}  // namespace sluice::prover
