#pragma once

// Real name servers on loopback ports, stopped by their own pid: dnsmasq, unbound (plain and over TLS) and knot.

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/ip.h"

namespace sluice::dns {

/// What a shell command prints, both streams.
std::string Output(const std::string& command);

class NameServer {
 public:
  /// dnsmasq with these flags more; answers for `probe`.
  static NameServer Dnsmasq(const std::vector<std::string>& flags, const std::string& probe);
  /// unbound with `data` as its local data ("one.test. 120 IN A 192.0.2.1"), static below "test.". `tls`: also over TLS, with a
  /// certificate for "dns.test" and 127.0.0.1 whose root is at roots().
  enum class Tls : uint8_t { kNo, kYes };
  static NameServer Unbound(const std::vector<std::string>& data, const std::string& probe, Tls tls = Tls::kNo);
  /// knot with a zone "test." of these lines, on 127.0.0.1 and ::1.
  static NameServer Knot(const std::string& zone, const std::string& probe);

  NameServer(NameServer&& other) noexcept;
  NameServer& operator=(NameServer&&) = delete;
  ~NameServer();

  [[nodiscard]] Endpoint endpoint() const { return {IpAddress::FromV4(0x7f000001), port_}; }
  [[nodiscard]] Endpoint endpoint6() const { return {*IpAddress::Parse("::1"), port_}; }
  [[nodiscard]] Endpoint tls_endpoint() const { return {IpAddress::FromV4(0x7f000001), tls_port_}; }
  [[nodiscard]] std::string roots() const { return folder_ + "/ca.pem"; }
  /// What it logged, in lower case: names were asked in a random one.
  [[nodiscard]] std::string Log() const;
  /// Ends it, or holds it where it is.
  void Signal(int number) const;

 private:
  NameServer();
  [[nodiscard]] bool Start(const std::vector<std::string>& words, const std::string& probe);
  void End();

  std::string folder_;
  uint16_t port_ = 0;
  uint16_t tls_port_ = 0;
  pid_t pid_ = 0;
};

}  // namespace sluice::dns
