#include "tests/dns/io/own_place.h"

#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/unique_fd.h"
#include "tests/dns/io/name_servers.h"

namespace sluice::dns {

bool InOwnPlace(const std::string& resolv_conf, const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    const bool root = geteuid() == 0;
    const auto uid = std::to_string(geteuid());
    if (unshare(CLONE_NEWNET | CLONE_NEWNS | (root ? 0 : CLONE_NEWUSER)) != 0) {
      std::perror("unshare");
      _exit(3);
    }
    if (!root) std::ofstream("/proc/self/uid_map") << "0 " << uid << " 1";
    ifreq lo{};
    std::snprintf(lo.ifr_name, sizeof lo.ifr_name, "lo");
    lo.ifr_flags = IFF_UP;
    const UniqueFd control(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    std::string conf = (std::filesystem::temp_directory_path() / "sluice-resolv-XXXXXX").string();
    const UniqueFd made(mkstemp(conf.data()));
    std::ofstream(conf) << resolv_conf;
    const bool ready = ioctl(control.get(), SIOCSIFFLAGS, &lo) == 0 &&
                       mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                       mount(conf.c_str(), "/etc/resolv.conf", nullptr, MS_BIND, nullptr) == 0;
    if (!ready) std::perror("preparing the namespace");
    // getaddrinfo's AI_ADDRCONFIG counts an address that is not loopback only (glibc's check_pf).
    Output("ip address add 100.64.0.2/32 dev lo; ip address add fd01::2/128 dev lo");
    const bool good = ready && body();
    std::filesystem::remove(conf);
    std::fflush(nullptr);
    _exit(good ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool Shows(const std::string& command, std::string_view wanted) {
  const std::string out = Output(command);
  if (out.find(wanted) != std::string::npos) return true;
  std::fprintf(stderr, "%s: expected \"%.*s\" in:\n%s\n", command.c_str(), static_cast<int>(wanted.size()), wanted.data(),
               out.c_str());
  return false;
}

}  // namespace sluice::dns
