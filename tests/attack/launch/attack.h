#pragma once

// Runs the attacker in a sandbox, and makes sockets for it to attack.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/supervisor/sandbox.h"

namespace sluice::supervisor {

extern std::string g_attacker;  ///< the program, readable by the ordinary user too

inline LaunchSpec Attack(const TemporaryFolder& work, std::vector<std::string> attempt) {
  attempt.insert(attempt.begin(), g_attacker);
  LaunchSpec spec = SpecFor(std::move(attempt), work.path());
  spec.read_only = {std::filesystem::path(g_attacker).parent_path()};
  return spec;
}

inline void ExpectHeld(const LaunchSpec& spec, const std::function<void(Workload&)>& meanwhile = {}) {
  const Outcome ran = RunSpec(spec, meanwhile);
  EXPECT_EQ(ran.error, "");
  EXPECT_EQ(ran.status.code, 0) << ran.output;
}

inline UniqueFd UnixListener(int type, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0) << path;
  ::chmod(path.c_str(), 0777);
  if (type != SOCK_DGRAM) EXPECT_EQ(::listen(socket.get(), 8), 0);
  return socket;
}

}  // namespace sluice::supervisor
