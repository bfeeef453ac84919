// Texts that say where a run is put: control groups of this process, and published ports.

#include <gtest/gtest.h>

#include "supervisor/cgroup_place.h"
#include "supervisor/published_port.h"

namespace sluice::supervisor {
namespace {

constexpr const char* kMounts =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs ro\n"
    "31 30 0:27 / /sys/fs/cgroup/unified rw shared:5 - cgroup2 cgroup2 rw\n"
    "32 30 0:28 / /sys/fs/cgroup/memory rw shared:6 - cgroup cgroup rw,memory\n"
    "33 30 0:29 /docker/abc /sys/fs/cgroup/pids\\040here rw - cgroup cgroup rw,pids\n";

TEST(CgroupPlace, IsBelowItsHierarchysMount) {
  const char* own = "4:memory:/a/b\n8:pids:/docker/abc/x\n0::/user.slice/s.scope\n";
  EXPECT_EQ(FindCgroup2(own, kMounts), (CgroupPlace{"/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified/user.slice/s.scope"}));
  EXPECT_EQ(FindCgroup1("memory", own, kMounts), (CgroupPlace{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/a/b"}));
  EXPECT_EQ(FindCgroup1("pids", own, kMounts), (CgroupPlace{"/sys/fs/cgroup/pids here", "/sys/fs/cgroup/pids here/x"}));
  EXPECT_EQ(FindCgroup1("cpu", own, kMounts), std::nullopt);
  EXPECT_EQ(FindCgroup2("0::/\n", kMounts), (CgroupPlace{"/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified"}));
}

TEST(CgroupPlace, IsKnownOrNotOfEachHierarchy) {
  const auto found = FindCgroups("8:pids,misc:/docker/abc/x\n4:cpu,cpuacct:/a\n0::/\n", kMounts);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].place, (CgroupPlace{"/sys/fs/cgroup/pids here", "/sys/fs/cgroup/pids here/x"}));
  EXPECT_EQ(found[1].name, "cpu,cpuacct");
  EXPECT_EQ(found[1].place, std::nullopt);
  EXPECT_EQ(found[2].place, (CgroupPlace{"/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified"}));
}

TEST(CgroupPlace, IsNowhereOutsideOfWhatIsMounted) {
  EXPECT_EQ(FindCgroup2("0::/../other\n", kMounts), std::nullopt);
  EXPECT_EQ(FindCgroup1("pids", "8:pids:/docker/abcdef\n", kMounts), std::nullopt);
  EXPECT_EQ(FindCgroup2("", kMounts), std::nullopt);
  EXPECT_EQ(FindCgroup2("0::/x\n", ""), std::nullopt);
}

TEST(CgroupPlace, ReadsListsAndCounters) {
  EXPECT_TRUE(NamesController("cpuset cpu memory pids\n", "pids"));
  EXPECT_FALSE(NamesController("cpuset cpu\n", "cp"));
  EXPECT_EQ(KeyedNumber("low 0\noom 2\noom_kill 3\n", "oom_kill"), 3u);
  EXPECT_EQ(KeyedNumber("oom_kill x\n", "oom_kill"), std::nullopt);
  EXPECT_EQ(KeyedNumber("oom_kill_disable 0\n", "oom_kill"), std::nullopt);
}

TEST(PublishedPort, IsAnAddressAndTwoPorts) {
  const auto v4 = ParsePublishedPort("127.0.0.1:8080:80");
  ASSERT_TRUE(v4.has_value());
  EXPECT_EQ(*v4, (PublishedPort{{IpAddress::FromV4(0x7f000001), 8080}, 80}));
  EXPECT_EQ(ParsePublishedPort("8080:80/tcp").value(), *v4);
  const auto v6 = ParsePublishedPort("[::1]:0:8080");
  ASSERT_TRUE(v6.has_value());
  EXPECT_EQ(v6->outside.ToString(), "[::1]:0");
}

TEST(PublishedPort, SaysWhyNot) {
  for (const auto& [text, why] :
       std::initializer_list<std::pair<const char*, const char*>>{{"127.0.0.1:53:5353/udp", "UDP cannot be published"},
                                                                  {"1:2/sctp", "only TCP"},
                                                                  {"localhost:8080:80", "digits"},
                                                                  {"::1:8080:80", "write [ADDRESS:]PORT:PORT"},
                                                                  {"[127.0.0.1]:1:2", "write [ADDRESS:]PORT:PORT"},
                                                                  {"8080", "write"},
                                                                  {"8080:", "write"},
                                                                  {"8080:0", "write"},
                                                                  {"65536:80", "write"},
                                                                  {":80", "write"},
                                                                  {"", "write"},
                                                                  {"1:801", "sluice's own"},
                                                                  {"1:53", "sluice's own"}}) {
    const auto port = ParsePublishedPort(text);
    ASSERT_FALSE(port.has_value()) << text;
    EXPECT_NE(port.error().message.find(why), std::string::npos) << port.error().message;
  }
}

}  // namespace
}  // namespace sluice::supervisor
