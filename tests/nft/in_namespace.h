#pragma once

// Runs a function in a user and network namespace of its own, and a shell command for its output.

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <functional>
#include <string>

#include "base/unique_fd.h"

namespace sluice::nft {

inline bool WriteTo(const char* path, const std::string& text) {
  const UniqueFd file(::open(path, O_WRONLY | O_CLOEXEC));
  return file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// Runs `body` as root of a user and network namespace of its own; what it returns comes back as text.
inline std::string InNewNamespace(const std::function<std::string()>& body) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string uid = "0 " + std::to_string(::geteuid()) + " 1";
    const std::string gid = "0 " + std::to_string(::getegid()) + " 1";
    std::string answer = "no namespace";
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 && WriteTo("/proc/self/setgroups", "deny") &&
        WriteTo("/proc/self/uid_map", uid) && WriteTo("/proc/self/gid_map", gid))
      answer = body();
    ::_exit(::write(ends[1], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  const UniqueFd reader(ends[0]);
  std::string answer;
  std::array<char, 4096> piece{};
  for (ssize_t got = 0; (got = ::read(reader.get(), piece.data(), piece.size())) > 0;)
    answer.append(piece.data(), static_cast<size_t>(got));
  ::waitpid(child, nullptr, 0);
  return answer;
}

inline std::string Command(const std::string& line) {
  std::string output;
  FILE* pipe = ::popen(line.c_str(), "r");
  std::array<char, 4096> piece{};
  for (size_t got = 0; (got = std::fread(piece.data(), 1, piece.size(), pipe)) > 0;) output.append(piece.data(), got);
  return ::pclose(pipe) == 0 ? output : output + "(failed)";
}

inline constexpr const char* kList = "/usr/sbin/nft list ruleset 2>&1";

}  // namespace sluice::nft
