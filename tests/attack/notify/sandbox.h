#pragma once

// A capture namespace, a workload in it and a notifier over it, with the rest of Sluice stood in for by the least that does:
// names in a table, an upstream that greets with the name and echoes.

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "policy/event.h"
#include "supervisor/io/capture.h"
#include "supervisor/io/launch.h"
#include "supervisor/io/notifier.h"

namespace sluice::supervisor::testing {

inline std::string g_workload_program = SLUICE_WORKLOAD;  ///< the workload, readable by the ordinary user too

/// Keeps what was recorded.
class Records : public policy::EventSink {
 public:
  bool Record(policy::DecisionEvent event) noexcept override;
  bool Record(policy::ExchangeEvent event) noexcept override;
  std::string NextDenialId() override;
  [[nodiscard]] std::vector<policy::DecisionEvent> All() const;
  /// How many decisions have this outcome and reason.
  [[nodiscard]] size_t Count(bool allowed, policy::Reason reason) const;
  void RefuseAll() { refuse_ = true; }

 private:
  mutable std::mutex mutex_;
  std::vector<policy::DecisionEvent> events_;
  std::atomic<int> next_{0};
  std::atomic<bool> refuse_{false};
};

/// Greets every flow with its name (or address) and a line feed, then echoes. One thread.
class Upstream : public FlowHandler {
 public:
  Upstream();
  ~Upstream() override;
  std::optional<std::string> NameOf(const IpAddress& address) override;
  bool IsSynthetic(const IpAddress& address) override;
  void Prepare(ApprovedConnect connect, std::function<void(int)> done) override;
  void Start(ApprovedConnect connect, Endpoint source, UniqueFd accepted) override;
  size_t Open() const override;

  [[nodiscard]] std::vector<ApprovedConnect> Started() const;
  /// Bytes that arrived, by the pid they were attributed to.
  [[nodiscard]] std::map<int, std::string> Received() const;

 private:
  struct Flow {
    ApprovedConnect connect;
    UniqueFd fd;
  };
  void Run();
  void Read(int fd);

  UniqueFd epoll_;
  UniqueFd wake_;
  mutable std::mutex mutex_;
  std::map<int, Flow> flows_;
  std::vector<ApprovedConnect> started_;
  std::map<int, std::string> received_;
  std::vector<std::pair<std::chrono::steady_clock::time_point, std::function<void(int)>>> later_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// How a case ended.
struct Outcome {
  int code = -1;
  std::string report;  ///< what was not as it should be
};

/// The policy of workload/cases.h.
[[nodiscard]] policy::SnapshotPtr TestPolicy();

class Sandbox {
 public:
  Sandbox();
  ~Sandbox();
  /// Runs a case of the workload program to its end under a notifier of its own.
  Outcome Run(const std::vector<std::string>& arguments);
  /// Starts one and leaves it running; Finish waits for it.
  void Begin(const std::vector<std::string>& arguments);
  Outcome Finish();
  /// Another file to run than the workload program as it was built.
  void UseProgram(std::string path) { program_ = std::move(path); }
  /// As the notifier's options.
  void LimitDescriptors(int limit, int ceiling) { descriptor_limit_ = limit, descriptor_ceiling_ = ceiling; }
  /// Takes the supervisor away while the workload runs.
  void StopNotifier() { notifier_.reset(); }
  void CloseListener() { capture_.listener.Reset(); }

  Upstream& upstream() { return upstream_; }
  Records& records() { return records_; }
  Capture& capture() { return capture_; }
  Notifier* notifier() { return notifier_.get(); }
  [[nodiscard]] const std::string& directory() const { return directory_; }

 private:
  std::string directory_;
  std::string program_ = g_workload_program;
  int descriptor_limit_ = NotifierOptions{}.descriptor_limit;
  int descriptor_ceiling_ = NotifierOptions{}.descriptor_ceiling;
  Capture capture_;
  Upstream upstream_;
  Records records_;
  policy::CurrentPolicy policy_{TestPolicy()};
  std::unique_ptr<Workload> workload_;
  std::unique_ptr<Notifier> notifier_;
};

}  // namespace sluice::supervisor::testing
