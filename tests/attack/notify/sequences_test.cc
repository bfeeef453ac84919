// The sequences of connect(2) that must behave as without a supervisor, each run as the workload.

#include "tests/attack/notify/sandbox.h"

namespace sluice::supervisor::testing {
namespace {

class Sequence : public ::testing::TestWithParam<const char*> {};

TEST_P(Sequence, BehavesAsWithoutASupervisor) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.Run({GetParam()});
  EXPECT_EQ(outcome.code, 0) << outcome.report;
}

INSTANTIATE_TEST_SUITE_P(Connect, Sequence,
                         ::testing::Values("nonblocking_allowed", "blocking_allowed", "denied_name", "denied_literal",
                                           "closed_loopback_port", "upstream_refuses", "alarm_without_restart",
                                           "alarm_with_restart", "terminated_while_waiting", "already_connected",
                                           "epoll_registered_before", "duplicate_sees_the_peer", "fork_shares_the_socket",
                                           "vfork_child_connects", "options_are_kept", "bound_port_is_kept", "own_listener",
                                           "dissolved_then_listening", "mapped_denied", "mapped_allowed", "ipv6_allowed",
                                           "bad_arguments", "send_timeout", "nonblocking_while_waiting",
                                           "full_backlog_of_its_own"),
                         [](const auto& about) { return std::string(about.param); });

}  // namespace
}  // namespace sluice::supervisor::testing
