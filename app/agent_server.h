#pragma once

// The agent itself: takes what runtimes send, looks at each container's first call, and gives the container to a process of its
// own (container.h). One thread, which never waits for a peer: it must be able to fork, and to kill, at any time. What a peer
// sends is received by a child (runtime_message.h).

#include <sys/socket.h>
#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/agent.h"
#include "app/runtime_message.h"
#include "base/clock.h"
#include "base/closes_in_turns.h"
#include "base/unique_fd.h"
#include "proxy/io/tls.h"
#include "supervisor/io/container_process.h"
#include "supervisor/io/container_record.h"
#include "supervisor/io/seccomp_channel.h"
#include "supervisor/oci_state.h"

namespace sluice::app {

inline constexpr size_t kMaxAgentConnections = 256;  ///< runtimes that have not said all yet
inline constexpr size_t kMaxAgentFilters = 4096;     ///< whose first call is still to come, or was refused
inline constexpr size_t kMaxContainers = 4096;
inline constexpr size_t kMaxOfPeer = 4;  ///< the part of these three that one user who is not root may take: a quarter
inline constexpr std::chrono::seconds kAgentMessageWait{10};
inline constexpr std::chrono::seconds kFormerSelfWait{10};  ///< for what had a container's network namespace before it
inline constexpr std::chrono::seconds kStrangerPause{60};   ///< between two lines about the same user who is not served

class AgentServer {
 public:
  /// `listener` is non-blocking and listening. SIGCHLD, SIGTERM, SIGINT and SIGHUP are blocked.
  AgentServer(AgentOptions options, UniqueFd listener, supervisor::ContainerRecords records,
              std::shared_ptr<proxy::TlsAuthority> authority);
  ~AgentServer();
  AgentServer(const AgentServer&) = delete;
  AgentServer& operator=(const AgentServer&) = delete;

  /// Kills or freezes what an earlier agent left on record. Before runtimes are heard.
  [[nodiscard]] Result<void> EndOrphans();
  /// Until SIGTERM or SIGINT, and until no container that is supervised runs any more. In a container's own process: its exit
  /// code, when that has ended.
  [[nodiscard]] std::optional<int> Serve();
  /// Whether it ended because it could not go on.
  [[nodiscard]] bool broken() const { return broken_; }

 private:
  struct Connection {
    UniqueFd child;  ///< of runtime_message.h, which has the runtime's end
    pid_t pid = 0;
    ucred peer{};
    SteadyTime until;
  };
  // A filter of which no call has come yet, or of which every call is refused from now on.
  struct Filter {
    supervisor::SeccompChannel channel;
    uid_t peer = 0;
    supervisor::OciState state;
    bool refused = false;
    std::optional<seccomp_notif> held{};  ///< its first call, which is looked at again soon
    SteadyTime held_since{};
    UniqueFd process{};  ///< refused: killed at `until`, should it live then
    SteadyTime until{};
  };
  struct Container {
    UniqueFd control;
    supervisor::ContainerRecord record;
    supervisor::NamespaceId network;
    supervisor::NamespaceId pids;
    supervisor::NamespaceId mounts;
    UniqueFd network_held{};  ///< a number is given anew as soon as nobody holds it: to another container, while the
    UniqueFd pids_held{};     ///< supervisor of this one is still ending
    std::string name;
    uid_t peer = 0;
    bool ready = false;
  };

  [[nodiscard]] bool MayAsk(uid_t uid) const;
  /// Whether `taken` of `most` are all that this user may have.
  [[nodiscard]] bool HasEnough(uid_t uid, size_t taken, size_t most) const;
  void TurnAway(const ucred& peer);
  void Accept();
  void HearFrom(UniqueFd socket, const ucred& peer);
  void Drop(Connection& connection);
  void Hear(const Connection& connection);
  [[nodiscard]] Result<void> TakeMessage(const Connection& connection, RuntimeMessage message);
  /// Its first call has come. False: the filter is somebody else's to answer now, or gone.
  [[nodiscard]] bool Admit(Filter& filter);
  [[nodiscard]] Result<void> AdmitInto(Filter& filter, supervisor::ContainerProcess& process, const seccomp_notif& call);
  [[nodiscard]] Result<void> StartContainer(Filter& filter, supervisor::ContainerProcess& process, const seccomp_notif& call);
  [[nodiscard]] bool RefuseCall(Filter& filter);
  void HearContainers();
  void Reap();
  void Lose(Container& container, const std::string& why);
  void Signals();
  void EndAll();
  void Break(const char* what, int error);
  [[nodiscard]] int NextTimeout() const;
  void Expire();
  /// In a fresh child: nothing of the others' stays open in it.
  void LetGo();

  const AgentOptions options_;
  const supervisor::Unsupervised fate_;
  ClosesInTurns closes_;  // of what strangers sent or may have sent
  UniqueFd listener_;
  std::optional<supervisor::ContainerRecords> records_;
  const std::shared_ptr<proxy::TlsAuthority> authority_;
  UniqueFd signals_;
  std::vector<Connection> connections_;
  std::map<pid_t, uid_t> hearing_;  // children that receive, and for whom: also what has been killed and is not gone
  std::vector<Filter> filters_;
  std::map<pid_t, Container> containers_;
  std::map<uid_t, SteadyTime> strangers_;  // when each was told of last
  SteadyTime hear_from_{};                 // not before are runtimes heard
  std::optional<int> child_code_;          // this is a container's process, and it is over
  bool ending_ = false;
  bool broken_ = false;
};

}  // namespace sluice::app
