// The attacker: `attacker NAME ARGUMENT…` runs one attempt of attempts.h inside a sandbox.

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "tests/attack/launch/attempts.h"

namespace sluice::attack {

void Report::Check(bool held, std::string_view what) {
  if (held) return;
  ++failures_;
  std::printf("WORKED: %.*s\n", static_cast<int>(what.size()), what.data());
}

}  // namespace sluice::attack

int main(int argc, char** argv) {
  using namespace sluice::attack;
  const std::map<std::string, void (*)(Report&, Arguments)> attempts = {
      {"write-protected", WriteProtected},
      {"write-git", WriteGitControls},
      {"path-sockets", DialPathSockets},
      {"system-tree", DialSystemTree},
      {"write-system", WriteSystem},
      {"read-secrets", ReadSecrets},
      {"peel-mounts", PeelMounts},
      {"inherited", UseInherited},
      {"abstract", DialAbstract},
      {"supervisor", ReachSupervisor},
      {"init", ReachInit},
      {"kill", KillEverything},
      {"network", ChangeNetwork},
      {"nest", NestNamespaces},
      {"keyring", UseKeyring},
      {"shared-memory", UseSharedMemory},
      {"privileges", HoldPrivileges},
  };
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto attempt = arguments.empty() ? attempts.end() : attempts.find(arguments.front());
  if (attempt == attempts.end()) return 250;
  Report report;
  attempt->second(report, Arguments(arguments).subspan(1));
  std::fflush(stdout);
  return report.failures();
}
