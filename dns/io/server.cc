#include "dns/io/server.h"

#include "dns/io/server_core.h"
#include "dns/io/server_tcp.h"
#include "dns/io/server_udp.h"

namespace sluice::dns {
namespace {

class Running final : public Server {
 public:
  Running(std::shared_ptr<ServerCore> core, std::shared_ptr<UdpSide> udp, std::shared_ptr<TcpSide> tcp)
      : core_(std::move(core)), udp_(std::move(udp)), tcp_(std::move(tcp)) {}
  ~Running() override {
    core_->Stop();
    if (udp_) udp_->Stop();
    if (tcp_) tcp_->Stop();
  }
  void ForgetLeases() override { core_->ForgetLeases(); }
  void NoteLeases(std::vector<CachedEntry>* entries) const override { core_->NoteLeases(entries); }

 private:
  std::shared_ptr<ServerCore> core_;
  std::shared_ptr<UdpSide> udp_;
  std::shared_ptr<TcpSide> tcp_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::Start(boost::asio::io_context& context, ServerOptions options, UpstreamClient& upstream,
                                              SyntheticPool& pool, const policy::CurrentPolicy& policy, policy::EventSink& sink) {
  if (!options.udp && !options.tcp) return Fail(Code::kInvalid, "the resolver was given no socket");
  if (!options.attribute)
    options.attribute = [](policy::Transport, const Endpoint&, const Endpoint&) { return policy::ProcessPtr(); };
  auto core = std::make_shared<ServerCore>(context, options, upstream, pool, policy, sink);
  std::shared_ptr<UdpSide> udp;
  std::shared_ptr<TcpSide> tcp;
  std::shared_ptr<FloodGate> gate;
  if (options.flood) gate = std::make_shared<FloodGate>(*options.flood, std::move(options.guess_sender));
  if (options.udp) {
    auto started = UdpSide::Start(context, std::move(options.udp), core, gate);
    if (!started) return std::unexpected(started.error());
    udp = std::move(*started);
  }
  if (options.tcp) {
    auto started = TcpSide::Start(context, std::move(options.tcp), options.tcp_idle, core, gate);
    if (!started) {
      core->Stop();
      if (udp) udp->Stop();
      return std::unexpected(started.error());
    }
    tcp = std::move(*started);
  }
  return std::make_unique<Running>(std::move(core), std::move(udp), std::move(tcp));
}

}  // namespace sluice::dns
