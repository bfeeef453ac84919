#pragma once

// The policy resolver of a capture namespace: on the sockets that the capture holds, asking upstream through the engine, and
// learning from the notifier who asks.

#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "dns/io/server.h"
#include "dns/synthetic.h"
#include "policy/event.h"
#include "proxy/io/engine.h"
#include "supervisor/io/capture.h"
#include "supervisor/io/notifier.h"

namespace sluice::app {

/// Of a run in a sandbox of another, and of that other one: what they have together. Either may be null, as ServerOptions says.
struct CommonNames {
  std::shared_ptr<dns::SharedRations> rations{};
  policy::SnapshotPtr spelled_by{};
};

class CaptureResolver {
 public:
  /// Takes the capture's DNS sockets. All references outlive the resolver. Any thread but the engine's own.
  static Result<std::unique_ptr<CaptureResolver>> Start(proxy::Engine& engine, supervisor::Capture& capture,
                                                        supervisor::Notifier& notifier, dns::SyntheticPool& pool,
                                                        std::vector<IpAddress> host_addresses,
                                                        const policy::CurrentPolicy& policy, policy::EventSink& sink,
                                                        CommonNames common = {});
  /// Waits for the resolver's thread.
  ~CaptureResolver();
  CaptureResolver(const CaptureResolver&) = delete;
  CaptureResolver& operator=(const CaptureResolver&) = delete;

 private:
  explicit CaptureResolver(proxy::Engine& engine) : engine_(engine) {}
  /// Runs `work` on the resolver's thread and waits for it.
  void OnItsThread(const std::function<void()>& work);

  proxy::Engine& engine_;
  std::unique_ptr<dns::Server> server_;
};

}  // namespace sluice::app
