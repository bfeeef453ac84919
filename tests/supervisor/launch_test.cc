#include "supervisor/io/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/supervisor/sandbox.h"

namespace sluice::supervisor {
namespace {

TEST(Launch, PassesTheExitCodeThrough) {
  for (const int code : {0, 1, 42, 255}) EXPECT_EQ(Sandboxed({"sh", "-c", "exit " + std::to_string(code)}).status.code, code);
}

TEST(Launch, ShowsTheView) {
  const auto ran = Sandboxed({"sh", "-c", "id -u; pwd; ls -la / /dev /proc/self/fd; cat /proc/self/status /proc/self/mounts; echo hi > /tmp/x; cat /tmp/x"});
  printf("%s\n", ran.output.c_str());
  EXPECT_EQ(ran.status.code, 0);
}

}  // namespace
}  // namespace sluice::supervisor
