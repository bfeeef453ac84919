#pragma once

// Live self-tests: this program is started as a user would, with a policy of two rules, and asked from the workload's place what
// it lets through. Nothing leaves this machine's loopback. Forks: one thread.

#include <string>
#include <vector>

#include "app/doctor/judge.h"
#include "app/doctor/report.h"

namespace sluice::app {

class LiveTests {
 public:
  /// `keep_path`: PATH, whose programs are tried.
  explicit LiveTests(std::string path) : path_(std::move(path)) {}

  /// `sluice run`, as whoever this is.
  [[nodiscard]] SelfTest Run() const;
  /// The same as an ordinary user; not tried where this process is one already, or may not become one.
  [[nodiscard]] SelfTest RunRootless() const;
  [[nodiscard]] SelfTest Proxy() const;
  /// `sluice sidecar` in a network namespace that is gone afterwards.
  [[nodiscard]] SelfTest Sidecar() const;
  /// `sluice agent`, which is handed a container over its socket.
  [[nodiscard]] SelfTest Agent() const;
  /// Container runtimes of PATH: whether they can hand their containers to an agent.
  [[nodiscard]] std::vector<ContainerRuntime> ContainerRuntimes() const;
  /// The programs of PATH, in `sluice run`.
  [[nodiscard]] std::vector<Runtime> TrustOfRuntimes() const;

 private:
  std::string path_;
};

}  // namespace sluice::app
