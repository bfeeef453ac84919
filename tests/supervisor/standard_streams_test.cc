#include "supervisor/io/standard_streams.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "tests/supervisor/sandbox.h"

namespace sluice::supervisor {
namespace {

Result<StandardKind> Classify(int fd) {
  const UniqueFd owner(fd);
  return ClassifyStandard(owner.get());
}

TEST(StandardStreams, PassesFilesPipesAndHarmlessDevices) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd other(ends[1]);
  EXPECT_EQ(Classify(ends[0]).value(), StandardKind::kPassed);
  EXPECT_EQ(Classify(::open("/etc/passwd", O_RDONLY | O_CLOEXEC)).value(), StandardKind::kPassed);
  EXPECT_EQ(Classify(::open("/dev/null", O_RDWR | O_CLOEXEC)).value(), StandardKind::kPassed);
  EXPECT_EQ(Classify(::memfd_create("x", MFD_CLOEXEC)).value(), StandardKind::kPassed);
  EXPECT_EQ(ClassifyStandard(1000).value(), StandardKind::kAbsent);
}

TEST(StandardStreams, MovesBytesForSocketsAndKernelFiles) {
  for (const int family : {AF_INET, AF_INET6, AF_UNIX})
    for (const int type : {SOCK_STREAM, SOCK_DGRAM})
      EXPECT_EQ(Classify(::socket(family, type | SOCK_CLOEXEC, 0)).value(), StandardKind::kPumped);
  EXPECT_EQ(Classify(::open("/proc/self/status", O_RDONLY | O_CLOEXEC)).value(), StandardKind::kPumped);
}

TEST(StandardStreams, RefusesWhatNoPipeCanStandFor) {
  EXPECT_FALSE(Classify(::open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC)).has_value());
  EXPECT_FALSE(Classify(::open("/etc/passwd", O_PATH | O_CLOEXEC)).has_value());
  EXPECT_FALSE(Classify(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)).has_value());
  EXPECT_FALSE(Classify(::eventfd(0, EFD_CLOEXEC)).has_value());
  EXPECT_FALSE(Classify(::epoll_create1(EPOLL_CLOEXEC)).has_value());
}

// Runs `argv` with `fd` as descriptor `place` of the supervisor.
Outcome RunWith(int place, int fd, std::vector<std::string> argv) {
  const UniqueFd saved(::fcntl(place, F_DUPFD_CLOEXEC, 20));
  ::dup2(fd, place);
  const Outcome outcome = Sandboxed(std::move(argv));
  ::dup2(saved.get(), place);
  return outcome;
}

TEST(StandardStreams, InputFromASocketArrivesAndEnds) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd mine(ends[1]);
  UniqueFd theirs(ends[0]);
  const std::string text(500'000, 'x');
  std::thread writer([&] {
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t put = ::write(mine.get(), text.data() + sent, text.size() - sent);
      if (put <= 0) break;
      sent += static_cast<size_t>(put);
    }
    ::shutdown(mine.get(), SHUT_WR);
  });
  const auto ran = RunWith(0, theirs.get(), {"sh", "-c", "wc -c; readlink /proc/self/fd/0"});
  theirs.Reset();
  writer.join();
  EXPECT_THAT(ran.output, testing::HasSubstr("500000\n"));
  EXPECT_THAT(ran.output, testing::HasSubstr("pipe:["));
}

TEST(StandardStreams, ADatagramSocketOfTheHostIsNoWayOut) {
  const UniqueFd receiver(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(receiver.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(::getsockname(receiver.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const UniqueFd given(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto ran = RunWith(0, given.get(),
                           {"python3", "-c",
                            "import socket,sys\ntry:\n  socket.socket(fileno=0).sendto(b'out', ('127.0.0.1', "
                            "int(sys.argv[1])))\n  print('sent')\nexcept OSError as e: print('refused', e)",
                            std::to_string(ntohs(address.sin_port))});
  EXPECT_THAT(ran.output, testing::StartsWith("refused")) << ran.error;
  std::array<char, 8> bytes{};
  EXPECT_LT(::recv(receiver.get(), bytes.data(), bytes.size(), 0), 0);
}

TEST(StandardStreams, AClosedInputIsEmptyAndNoDescriptorOfOursTakesItsPlace) {
  const TemporaryFolder folder;
  const pid_t supervisor = ::fork();
  if (supervisor == 0) {
    ::close(0);
    auto capture = CreateCapture();
    if (!capture || capture->user_namespace.get() <= 2 || capture->listener.get() <= 2) ::_exit(100);
    auto workload =
        LaunchFiltered(SpecFor({"sh", "-c", "cat && readlink /proc/self/fd/0 > seen"}, folder.path()), *capture, kSmallFilter);
    if (!workload || !(*workload)->Release()) ::_exit(101);
    ::_exit((*workload)->Wait().code);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(supervisor, &status, 0), supervisor);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(folder.Read("seen"), "/dev/null\n");
}

TEST(StandardStreams, AFolderAsInputIsRefused) {
  const UniqueFd folder(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto ran = RunWith(0, folder.get(), {"ls", "/proc/self/fd/0/root"});
  EXPECT_EQ(ran.code, Code::kInvalid);
  EXPECT_EQ(ran.error, "descriptor 0 is a folder, which cannot be given to a workload: redirect it");
}

}  // namespace
}  // namespace sluice::supervisor
