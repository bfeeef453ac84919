#pragma once

// What a hostile workload tries, each a function run inside the sandbox as its command. An attempt reports every defence that did
// not hold; the count is its exit code.

#include <span>
#include <string>
#include <string_view>

namespace sluice::attack {

/// Counts and prints what should not have worked.
class Report {
 public:
  /// `held`: the defence did its work. `what`: of the attempt, for a person.
  void Check(bool held, std::string_view what);
  /// The call failed, with one of `errors` where any are given.
  void Failed(long result, std::string_view what, std::span<const int> errors = {});
  [[nodiscard]] int failures() const { return failures_; }

 private:
  int failures_ = 0;
};

using Arguments = std::span<const std::string>;

// files.cc
void WriteProtected(Report& report, Arguments arguments);    // the policy's path
void WriteGitControls(Report& report, Arguments arguments);  // a repository in the work directory
void DialPathSockets(Report& report, Arguments arguments);   // stream socket, datagram socket, FIFO
void DialSystemTree(Report& report, Arguments arguments);    // sockets and FIFOs of the host, after a file `go` is there
void WriteSystem(Report& report, Arguments arguments);
void ReadSecrets(Report& report, Arguments arguments);
void PeelMounts(Report& report, Arguments arguments);  // a masked path
void PeelNested(Report& report, Arguments arguments);  // hidden and protected paths, with capabilities of a nested namespace
// processes.cc
void UseInherited(Report& report, Arguments arguments);
void DialAbstract(Report& report, Arguments arguments);     // an abstract name of the host
void ReachSupervisor(Report& report, Arguments arguments);  // the supervisor's pid
void ReachInit(Report& report, Arguments arguments);
void KillEverything(Report& report, Arguments arguments);  // does not return when it works
void ChangeNetwork(Report& report, Arguments arguments);
void NestNamespaces(Report& report, Arguments arguments);
void UseKeyring(Report& report, Arguments arguments);       // serial number of the supervisor's key
void UseSharedMemory(Report& report, Arguments arguments);  // a System V key of the host
void HoldPrivileges(Report& report, Arguments arguments);

}  // namespace sluice::attack
