// Whose network this is, from what can be seen of it.

#include "supervisor/io/network_place.h"

#include <gtest/gtest.h>

namespace sluice::supervisor {
namespace {

TEST(NetworkPlace, AMachinesOwnNetworkIsTold) {
  struct Case {
    const char* what;
    NetworkSigns signs;
    bool machines;
  };
  for (const Case& c : {
           Case{"a machine, or one in a virtual machine",
                {.cookie = 1, .with_first_process = true, .first_process_namespace = true, .booted = true},
                true},
           Case{"a machine whose cookie is not the first (Linux 6.18)", {.first_number = true, .cookie = 3}, true},
           Case{"a container with the host's network", {.cookie = 1, .with_first_process = true}, true},
           Case{"an old kernel", {.with_first_process = true, .first_process_namespace = true}, true},
           Case{"an old kernel, in a namespace of its own", {.first_process_namespace = true, .booted = true}, false},
           Case{"an old kernel's container", {.with_first_process = true}, false},
           Case{"a container that was booted", {.cookie = 4711, .with_first_process = true, .booted = true}, true},
           Case{"ip netns exec there", {.cookie = 4712, .booted = true}, false},
           Case{"a pod", {.cookie = 4711, .with_first_process = true}, false},
       })
    EXPECT_EQ(WhyMachinesNetwork(c.signs).has_value(), c.machines) << c.what;
}

}  // namespace
}  // namespace sluice::supervisor
