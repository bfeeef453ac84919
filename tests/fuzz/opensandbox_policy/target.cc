// OpenSandbox's JSON: what is read is written and read again as the same, and what becomes a native policy is one that loads.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "app/opensandbox.h"
#include "policy/io/load.h"

using namespace sluice;
using namespace sluice::app;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  (void)ParseEgressRules(in);
  (void)ParseEgressTargets(in);
  EgressOverlay overlay;
  if (auto rules = ParseAlwaysRules(in.substr(0, 64), "deny", "deny.always")) overlay.deny = *std::move(rules);
  const auto policy = ParseEgressPolicy(in);
  if (!policy) return 0;
  const auto again = ParseEgressPolicy(EgressPolicyJson(*policy));
  if (!again || !(*again == *policy)) std::abort();
  if (MergeEgress(policy->egress, policy->egress).size() > policy->egress.size()) std::abort();
  for (const EgressOverlay& over : {EgressOverlay{}, overlay})
    if (const auto text = NativeText(*policy, over); text && !policy::LoadText(*text, "opensandbox")) std::abort();
  return 0;
}
