#pragma once

// A name server on real loopback sockets whose answers a test writes, wrong ones included.

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/ip.h"
#include "base/unique_fd.h"
#include "dns/message.h"

namespace sluice::dns {

enum class Via : uint8_t { kUdp, kTcp };

struct SeenQuery {
  Via via = Via::kUdp;
  uint16_t id = 0;
  std::string name;  ///< as spelled
  Type type = Type::kA;
  uint16_t client_port = 0;
  bool edns = false;
};

class StubUpstream {
 public:
  /// The datagrams to send back, in order; none for silence. By TCP only the first is sent. Called on the stub's own thread.
  using Handler = std::function<std::vector<std::vector<uint8_t>>(const Message& query, Via via)>;

  explicit StubUpstream(Handler handler);
  ~StubUpstream();
  [[nodiscard]] Endpoint endpoint() const { return endpoint_; }
  [[nodiscard]] std::vector<SeenQuery> seen() const;

 private:
  void Run();
  void ServeDatagram();
  void ServeConnection();
  void Note(const Message& query, Via via, uint16_t port);

  Handler handler_;
  UniqueFd udp_;
  UniqueFd tcp_;
  Endpoint endpoint_;
  mutable std::mutex mutex_;
  std::vector<SeenQuery> seen_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace sluice::dns
