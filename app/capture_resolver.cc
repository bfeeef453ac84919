#include "app/capture_resolver.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <utility>

namespace sluice::app {

void CaptureResolver::OnItsThread(const std::function<void()>& work) {
  std::promise<void> done;
  boost::asio::post(engine_.ResolverContext(), [&] {
    work();
    done.set_value();
  });
  done.get_future().wait();
}

Result<std::unique_ptr<CaptureResolver>> CaptureResolver::Start(proxy::Engine& engine, supervisor::Capture& capture,
                                                                supervisor::Notifier& notifier, dns::SyntheticPool& pool,
                                                                std::vector<IpAddress> host_addresses,
                                                                const policy::CurrentPolicy& policy, policy::EventSink& sink,
                                                                CommonNames common) {
  std::unique_ptr<CaptureResolver> resolver(new CaptureResolver(engine));
  Result<std::unique_ptr<dns::Server>> server = Fail(Code::kInternal, "the resolver did not start");
  resolver->OnItsThread([&] {
    dns::ServerOptions options;
    options.udp = std::move(capture.dns_udp);
    options.tcp = std::move(capture.dns_tcp);
    options.attribute = [&notifier](policy::Transport transport, const Endpoint& client, const Endpoint& server_end) {
      return notifier.Attribute(transport, client, server_end);
    };
    options.guess_sender = [&notifier](policy::Transport transport, const Endpoint& client) {
      return static_cast<uint64_t>(notifier.GuessSender(transport, client));
    };
    options.host_addresses = std::move(host_addresses);
    options.rations = std::move(common.rations);
    options.spelled_by = std::move(common.spelled_by);
    server = dns::Server::Start(engine.ResolverContext(), std::move(options), engine.ResolverClient(), pool, policy, sink);
  });
  if (!server) return std::unexpected(server.error());
  resolver->server_ = *std::move(server);
  return resolver;
}

CaptureResolver::~CaptureResolver() {
  if (server_) OnItsThread([this] { server_.reset(); });
}

}  // namespace sluice::app
