#pragma once

// Answers that may not leave before the kernel has taken their leases. All that became ready in one turn of the loop are
// published together: under CurrentPolicy::Hold and only while the policy is still the one that judged them, so that nothing is
// opened by a policy that has been replaced.

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dns/lease.h"
#include "policy/event.h"

namespace sluice::dns {

class Withheld : public std::enable_shared_from_this<Withheld> {
 public:
  enum class Outcome : uint8_t {
    kPublished,
    kFailed,         ///< the kernel did not take them, or too slowly
    kPolicyChanged,  ///< nothing was published: to be judged anew
  };
  using Release = std::move_only_function<void(Outcome, const std::string& why)>;

  Withheld(boost::asio::io_context& context, const policy::CurrentPolicy& policy, Publish publish)
      : context_(context), policy_(policy), publish_(std::move(publish)) {}

  /// Judged under `generation`. `release` is called once, later, on the context's thread, unless Stop comes first.
  void Add(std::vector<Lease> leases, std::chrono::milliseconds lifetime, uint64_t generation, Release release);
  void Stop();

 private:
  struct Entry {
    std::vector<Lease> leases;
    std::chrono::milliseconds lifetime;
    uint64_t generation;
    Release release;
    Outcome outcome = Outcome::kPolicyChanged;
  };
  void Flush();
  [[nodiscard]] std::string PublishAll(std::span<Entry> entries, uint64_t generation);

  boost::asio::io_context& context_;
  const policy::CurrentPolicy& policy_;
  const Publish publish_;
  std::vector<Entry> entries_;
  bool posted_ = false;
  bool stopped_ = false;
};

}  // namespace sluice::dns
