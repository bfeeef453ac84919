#include "tests/dns/io/name_servers.h"

#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "base/unique_fd.h"
#include "dns/name.h"
#include "tests/dns/make.h"

namespace sluice::dns {
namespace {

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

// A port that is free by UDP and TCP now.
uint16_t FreePort() {
  for (int i = 0; i < 100; ++i) {
    const UniqueFd udp(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const UniqueFd tcp(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_storage address{};
    auto length = static_cast<socklen_t>(Endpoint{IpAddress::FromV4(0x7f000001), 0}.ToSockaddr(&address));
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(udp.get(), generic, length) != 0 || getsockname(udp.get(), generic, &length) != 0) continue;
    if (bind(tcp.get(), generic, length) == 0) return Endpoint::FromSockaddr(generic, length)->port;
  }
  Die("no port is free by both transports");
}

bool AnswersOnce(const Endpoint& server, const std::string& name) {
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  const auto length = static_cast<socklen_t>(server.ToSockaddr(&address));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) return false;
  const timeval limit{0, 100000};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const auto query = Encode(AskMessage(name, Type::kA));
  std::array<uint8_t, 1500> answer{};
  if (send(fd.get(), query.data(), query.size(), 0) < 0) return false;
  const ssize_t size = recv(fd.get(), answer.data(), answer.size(), 0);
  return size > 0 && (answer[3] & 0x0f) == 0;
}

std::string Found(const std::string& program, const char* package) {
  for (const char* folder : {"/usr/sbin/", "/usr/bin/"})
    if (std::filesystem::exists(folder + program)) return folder + program;
  Die(program + " cannot be started: Debian's " + package + " is needed");
}

}  // namespace

std::string Output(const std::string& command) {
  std::string out;
  FILE* pipe = popen(("PATH=$PATH:/usr/sbin; " + command + " 2>&1").c_str(), "re");
  if (pipe == nullptr) return "popen failed";
  std::array<char, 4096> buffer{};
  for (size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) out.append(buffer.data(), n);
  pclose(pipe);
  return out;
}

NameServer::NameServer() {
  folder_ = (std::filesystem::temp_directory_path() / "sluice-names-XXXXXX").string();
  if (mkdtemp(folder_.data()) == nullptr) Die("mkdtemp");
  port_ = FreePort();
  tls_port_ = FreePort();
}

NameServer::NameServer(NameServer&& other) noexcept
    : folder_(std::exchange(other.folder_, {})),
      port_(other.port_),
      tls_port_(other.tls_port_),
      pid_(std::exchange(other.pid_, 0)) {}

NameServer::~NameServer() {
  End();
  if (!folder_.empty()) std::filesystem::remove_all(folder_);
}

void NameServer::End() {
  if (pid_ <= 0) return;
  kill(pid_, SIGCONT);
  kill(pid_, SIGTERM);
  for (int i = 0; i < 200 && waitpid(pid_, nullptr, WNOHANG) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

void NameServer::Signal(int number) const { kill(pid_, number); }

std::string NameServer::Log() const {
  std::ifstream file(folder_ + "/log");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::ranges::transform(text, text.begin(), LowerAscii);
  return text;
}

bool NameServer::Start(const std::vector<std::string>& words, const std::string& probe) {
  std::vector<std::string> copy = words;
  std::vector<char*> argv;
  for (std::string& word : copy) argv.push_back(word.data());
  argv.push_back(nullptr);
  if (posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), environ) != 0) Die(words[0] + " cannot be started");
  for (int i = 0; i < 200; ++i) {
    if (AnswersOnce(endpoint(), probe)) return true;
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = 0;
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  End();
  return false;
}

NameServer NameServer::Dnsmasq(const std::vector<std::string>& flags, const std::string& probe) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    NameServer server;
    std::vector<std::string> words = {Found("dnsmasq", "dnsmasq-base"),
                                      "--keep-in-foreground",
                                      "--conf-file=/dev/null",
                                      "--pid-file",
                                      "--no-resolv",
                                      "--no-hosts",
                                      "--port=" + std::to_string(server.port_),
                                      "--listen-address=127.0.0.1",
                                      "--bind-interfaces",
                                      "--user=",
                                      "--log-queries",
                                      "--log-facility=" + server.folder_ + "/log"};
    words.insert(words.end(), flags.begin(), flags.end());
    if (server.Start(words, probe)) return server;
  }
  Die("dnsmasq does not answer");
}

NameServer NameServer::Unbound(const std::vector<std::string>& data, const std::string& probe, Tls tls) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    NameServer server;
    std::ofstream conf(server.folder_ + "/unbound.conf");
    conf << "server:\n  do-daemonize: no\n  chroot: \"\"\n  username: \"\"\n  directory: \"" << server.folder_ << "\"\n"
         << "  pidfile: \"\"\n  use-syslog: no\n  logfile: \"" << server.folder_ << "/log\"\n  log-queries: yes\n  verbosity: 1\n"
         << "  num-threads: 1\n  interface: 127.0.0.1@" << server.port_ << "\n  access-control: 127.0.0.0/8 allow\n"
         << "  local-zone: \"test.\" static\n";
    for (const std::string& line : data) conf << "  local-data: '" << line << "'\n";
    if (tls == Tls::kYes) {
      const std::string made =
          Output("cd " + server.folder_ +
                 " && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=root -keyout ca.key "
                 "-out ca.pem"
                 " && openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=dns -keyout key.pem -out csr.pem"
                 " && printf 'subjectAltName=DNS:dns.test,IP:127.0.0.1' > ext"
                 " && openssl x509 -req -in csr.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out cert.pem");
      if (!std::filesystem::exists(server.folder_ + "/cert.pem")) Die("openssl: " + made);
      conf << "  interface: 127.0.0.1@" << server.tls_port_ << "\n  tls-port: " << server.tls_port_ << "\n  tls-service-key: \""
           << server.folder_ << "/key.pem\"\n  tls-service-pem: \"" << server.folder_ << "/cert.pem\"\n";
    }
    conf << "remote-control:\n  control-enable: no\n";
    conf.close();
    if (server.Start({Found("unbound", "unbound"), "-d", "-p", "-c", server.folder_ + "/unbound.conf"}, probe)) return server;
  }
  Die("unbound does not answer");
}

NameServer NameServer::Knot(const std::string& zone, const std::string& probe) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    NameServer server;
    std::ofstream(server.folder_ + "/test.zone")
        << "$ORIGIN test.\n$TTL 120\n@ IN SOA ns.test. admin.test. 1 3600 600 86400 60\n@ IN NS ns.test.\nns IN A 93.184.216.1\n"
        << zone;
    std::ofstream(server.folder_ + "/knot.conf")
        << "server:\n  rundir: \"" << server.folder_ << "\"\n  listen: 127.0.0.1@" << server.port_ << "\n  listen: ::1@"
        << server.port_ << "\n  udp-workers: 1\n  tcp-workers: 1\n  background-workers: 1\nlog:\n  - target: \"" << server.folder_
        << "/log\"\n    any: info\ndatabase:\n  storage: \"" << server.folder_
        << "\"\ntemplate:\n  - id: default\n    storage: \"" << server.folder_
        << "\"\n    file: \"%s.zone\"\n    zonefile-load: whole\n    journal-content: none\nzone:\n  - domain: test\n";
    if (server.Start({Found("knotd", "knot"), "-c", server.folder_ + "/knot.conf"}, probe)) return server;
  }
  Die("knot does not answer");
}

}  // namespace sluice::dns
