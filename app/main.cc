// Placeholder entry until the subcommands land: prints the version.
#include <cstdio>

int main() {
  std::puts("sluice " SLUICE_VERSION);
  return 0;
}
