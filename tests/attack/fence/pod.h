#pragma once

// A pod's network namespace with one device, and the namespace on its other end that stands for the world and records what comes
// out.

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/ip.h"
#include "base/unique_fd.h"

namespace sluice::supervisor {

inline constexpr const char* kPodV4 = "10.77.0.2";
inline constexpr const char* kPodV6 = "fd77::2";
inline constexpr const char* kWorldV4 = "203.0.113.10";
inline constexpr const char* kWorldV6 = "2001:db8:77::10";
inline constexpr const char* kWorldLink = "fe80::77";
inline constexpr uint16_t kForbiddenPort = 7777;  ///< what reaches it in the world has escaped
inline constexpr const char* kForbidden = "ESCAPE";
inline constexpr uint16_t kProxyPort = 15001;

/// Runs `body` in the namespace, on a thread of its own.
void RunIn(const UniqueFd& network, const std::function<void()>& body);
/// A shell command there; its output.
std::string CommandIn(const UniqueFd& network, const std::string& line);

using Frame = std::vector<uint8_t>;

class Pod {
 public:
  Pod();
  ~Pod();
  Pod(const Pod&) = delete;
  Pod& operator=(const Pod&) = delete;

  [[nodiscard]] const UniqueFd& inner() const { return inner_; }
  [[nodiscard]] const UniqueFd& world() const { return world_; }
  [[nodiscard]] bool ready() const { return ready_; }

  /// `body` in a process inside the pod that is root with CAP_NET_RAW, SETUID and SETGID alone; what it returned, or 200 and more
  /// where it could not run.
  [[nodiscard]] int Workload(const std::function<int()>& body) const;

  /// What came out of the pod since the last call, a moment from now.
  [[nodiscard]] std::vector<Frame> Taken();
  void Forget();
  /// The frames among these that carry kForbidden or go to kForbiddenPort, as text; empty where none does.
  [[nodiscard]] static std::string Escaped(const std::vector<Frame>& frames);
  [[nodiscard]] static bool Carries(const std::vector<Frame>& frames, const std::string& text);

 private:
  void Record();

  UniqueFd inner_;
  UniqueFd world_;
  UniqueFd tap_;
  std::mutex mutex_;
  std::vector<Frame> frames_;
  std::atomic<bool> stop_ = false;
  bool ready_ = false;
  std::thread recorder_;
};

struct Attack {
  const char* name;
  std::function<void()> run;  ///< in the workload
};
/// Each gets something out of a namespace without a fence.
std::vector<Attack> Attacks();

/// A packet that a workload makes up, of UDP or of TCP data.
struct Forged {
  uint8_t protocol = 0;
  const char* source = "";
  uint16_t source_port = 0;
  const char* destination = "";
  uint16_t destination_port = 0;
  std::string text{};
  std::vector<uint8_t> options{};  ///< of the IPv4 header, whole words
};
/// By a raw socket, and by a packet socket of the device.
void SendRaw(const Forged& packet);
void SendFrame(const char* device, const Forged& packet);

}  // namespace sluice::supervisor
