// What a workload reaches of the host through trees that it sees but was never granted: sockets, FIFOs, files of mode 0600.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/attack/launch/attack.h"

namespace sluice::supervisor {
namespace {

// One service of the host in each of these: in the shield, and in a mount below the tree.
const std::vector<std::string> kFolders = {"/opt/service", "/opt/mounted/service"};

// Sockets of each type and a FIFO with a reader, each in both folders.
class Services {
 public:
  Services() {
    for (const std::string& folder : kFolders) {
      Bind(SOCK_STREAM, folder + "/stream");
      Bind(SOCK_DGRAM, folder + "/datagram");
      Bind(SOCK_SEQPACKET, folder + "/packets");
      paths_.push_back(folder + "/fifo");
      EXPECT_EQ(::mkfifo(paths_.back().c_str(), 0666), 0);
      ::chmod(paths_.back().c_str(), 0666);
      ends_.emplace_back(::open(paths_.back().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    }
  }
  Services(const Services&) = delete;
  Services& operator=(const Services&) = delete;
  ~Services() {
    for (const std::string& path : paths_) ::unlink(path.c_str());
  }
  static std::vector<std::string> Attempt() {
    std::vector<std::string> attempt = {"system-tree"};
    for (const std::string& folder : kFolders)
      for (const char* name : {"/stream", "/datagram", "/packets", "/fifo"}) attempt.push_back(folder + name);
    return attempt;
  }
  void ExpectNobodyCame() const {
    for (const UniqueFd& end : ends_) {
      char byte = 0;
      EXPECT_LE(::read(end.get(), &byte, 1), 0);
      EXPECT_LT(::accept4(end.get(), nullptr, nullptr, SOCK_NONBLOCK), 0);
    }
  }

 private:
  void Bind(int type, const std::string& path) {
    paths_.push_back(path);
    ends_.push_back(UnixListener(type, path));
    ::fcntl(ends_.back().get(), F_SETFL, O_NONBLOCK);
  }
  std::vector<std::string> paths_;
  std::vector<UniqueFd> ends_;
};

TEST(SystemTree, ServicesOfTheHostAreOutOfReach) {
  const TemporaryFolder work;
  const Services services;
  work.Write("go", "");
  ExpectHeld(Attack(work, Services::Attempt()));
  services.ExpectNobodyCame();
}

TEST(SystemTree, ServicesBoundLaterAreOutOfReachToo) {
  const TemporaryFolder work;
  std::optional<Services> services;
  ExpectHeld(Attack(work, Services::Attempt()), [&](Workload&) {
    services.emplace();
    work.Write("go", "");
  });
  services->ExpectNobodyCame();
}

TEST(SystemTree, WhatOthersMayNotReadIsHidden) {
  const TemporaryFolder work;
  ExpectHeld(Attack(work, {"read-secrets", "/opt/secret", "/opt/group", "/opt/closed", "/opt/closed/inside",
                           "/opt/mounted/secret", "/opt/service/secret", "/opt/covered"}));
}

TEST(SystemTree, WhatIsMountedOverAFileIsSeenAndTheFileIsNot) {
  const Outcome ran = Sandboxed({"sh", "-c", "cat /opt/over; cat /opt/covered"});
  EXPECT_THAT(ran.output, testing::HasSubstr("above")) << ran.error;
  EXPECT_THAT(ran.output, testing::Not(testing::HasSubstr("below")));
}

TEST(SystemTree, TheRestIsThere) {
  const Outcome ran = Sandboxed(
      {"sh", "-c", "cat /opt/open && ls /opt/service /opt/mounted/service && test -x /usr/bin/env && head -c 5 /etc/passwd"});
  EXPECT_THAT(ran.output, testing::HasSubstr("secret")) << ran.error;
  EXPECT_THAT(ran.output, testing::HasSubstr("root:"));
  EXPECT_EQ(ran.status.code, 0) << ran.output;
}

TEST(SystemTree, AGrantInAClosedFolderIsStillGiven) {
  if (::access("/opt/closed", X_OK) != 0) return;  // the ordinary user has nothing to grant there
  const TemporaryFolder work;
  ASSERT_TRUE(::mkdir("/opt/closed/granted", 0700) == 0 || errno == EEXIST);
  LaunchSpec spec = SpecFor({"sh", "-c", "echo x > /opt/closed/granted/file && ! cat /opt/closed/inside"}, work.path());
  spec.read_write = {"/opt/closed/granted"};
  ExpectHeld(spec);
}

TEST(SystemTree, ASocketThatARuleOpensIsReached) {
  const TemporaryFolder work;
  const UniqueFd listener = UnixListener(SOCK_STREAM, "/opt/service/wanted");
  LaunchSpec spec =
      SpecFor({"python3", "-c", "import socket; socket.socket(socket.AF_UNIX).connect('/opt/service/wanted')"}, work.path());
  spec.unix_sockets = {"/opt/service/wanted"};
  ExpectHeld(spec);
  ::unlink("/opt/service/wanted");
}

}  // namespace
}  // namespace sluice::supervisor
