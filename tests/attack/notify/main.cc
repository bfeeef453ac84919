#include "tests/attack/notify/sandbox.h"
#include "tests/attack/ordinary_user.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const sluice::testing::ProgramForAnyone workload(SLUICE_WORKLOAD);
  sluice::supervisor::testing::g_workload_program = workload.path();
  return sluice::testing::RunAsTestUser([] { return RUN_ALL_TESTS(); });
}
