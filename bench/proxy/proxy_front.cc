// The engine behind an ordinary listener, so that a load generator can speak to it: every connection accepted on a port of
// 127.0.0.1 becomes a flow to one destination. For compare.py; not part of the product.
//
//   proxy_front POLICY CA_FILE DESTINATION_PORT WORKERS [HOST]     prints its port, then serves until stdin ends

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "policy/io/load.h"
#include "proxy/io/engine.h"

namespace {

// Takes events apart as a real writer would have to, and keeps none.
class DroppingSink final : public sluice::policy::EventSink {
 public:
  bool Record(sluice::policy::DecisionEvent event) noexcept override {
    bytes_ += event.target.path.size();
    return true;
  }
  bool Record(sluice::policy::ExchangeEvent event) noexcept override {
    bytes_ += event.bytes_down;
    return true;
  }
  std::string NextDenialId() override { return fmt::format("d-{}", ++ids_); }

 private:
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint64_t> ids_{0};
};

int Serve(sluice::proxy::Engine& engine, uint16_t destination, const char* host) {
  sluice::UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener.get(), 1024) != 0) return 1;
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  std::printf("%d\n", ntohs(address.sin_port));
  std::fflush(stdout);
  for (uint64_t id = 1;; ++id) {
    pollfd wait[2] = {{listener.get(), POLLIN, 0}, {0, POLLIN, 0}};
    if (poll(wait, 2, -1) < 0 || wait[1].revents != 0) return 0;
    sluice::proxy::Flow flow;
    flow.id = id;
    flow.downstream.Reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    flow.target.host = host;
    flow.target.destination = {sluice::IpAddress::FromV4(0x7f000001), destination};
    if (flow.downstream) engine.Accept(std::move(flow));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: proxy_front POLICY CA_FILE DESTINATION_PORT WORKERS [HOST]\n");
    return 2;
  }
  auto snapshot = sluice::policy::LoadFile(argv[1]);
  if (!snapshot) {
    std::fprintf(stderr, "%s", sluice::policy::RenderError(snapshot.error(), false).c_str());
    return 2;
  }
  const sluice::policy::CurrentPolicy policy(*snapshot);
  DroppingSink sink;
  sluice::proxy::EngineOptions options;
  options.workers = static_cast<unsigned>(std::atoi(argv[4]));
  options.lookups.servers = {{.endpoint = {sluice::IpAddress::FromV4(0x7f000001), 53}}};
  options.upstream_ca_files = {argv[2]};
  auto engine = sluice::proxy::Engine::Start(std::move(options), policy, sink);
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().message.c_str());
    return 1;
  }
  return Serve(**engine, static_cast<uint16_t>(std::atoi(argv[3])), argc > 5 ? argv[5] : "");
}
