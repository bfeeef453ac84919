#pragma once

// Runs a function in a process of its own inside a capture namespace, as a workload of it would be.

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervisor/io/capture.h"

namespace sluice::supervisor {

/// What `body` returned (0 to 255), or 200 and more when it could not run.
template <class Body>
int RunInside(const Capture& capture, Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setns(capture.user_namespace.get(), CLONE_NEWUSER) != 0) ::_exit(201);
    if (::setns(capture.network_namespace.get(), CLONE_NEWNET) != 0) ::_exit(202);
    ::_exit(body());
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return 203;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 204;
}

}  // namespace sluice::supervisor
