// Admin requests: "METHOD TARGET\nBODY", with "run " before it to a run in a sidecar's place. Whatever is asked, the answer is
// one, its body is JSON or a policy, and a policy that is not one, or that proves to widen where that was to be refused, is never
// in force.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tests/app/admin_support.h"
#include "tests/fuzz/sidecar_shape.h"

using namespace sluice;
using namespace sluice::app;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view in(reinterpret_cast<const char*>(data), size);
  const bool to_run = in.starts_with("run ");
  if (to_run) in.remove_prefix(4);
  const size_t line = std::min(in.find('\n'), in.size());
  const std::string_view first = in.substr(0, line);
  const size_t space = std::min(first.find(' '), first.size());
  AdminRequest request;
  request.method = std::string(first.substr(0, space));
  if (!ReadTarget(first.substr(std::min(space + 1, first.size())), &request)) return 0;
  request.body = std::string(in.substr(std::min(line + 1, in.size())));
  request.fields.emplace_back("if-match", "\"1\"");
  // The prover's time is bounded by steps; here it would only make the fuzzer slow.
  if (request.body.size() > 512 && request.Parameter("prove") != nullptr) return 0;
  AdminBed bed;
  if (to_run) bed.control.BecomeRun();
  const AdminResponse response = bed.api.Handle(request);
  if (response.status < 200 || response.status > 599) std::abort();
  const bool text = response.content_type != "application/json" || response.body.empty();
  if (!text && nlohmann::json::parse(response.body, nullptr, false).is_discarded()) std::abort();
  const bool changed = bed.control.Policy().revision != 1;
  if (changed && response.status != 200) std::abort();
  if (!bed.control.stops().empty() && (!to_run || request.method != "POST" || response.status != 202)) std::abort();
  if (changed && (request.method == "GET" || request.method == "POST")) std::abort();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return fuzz::Mutate(fuzz::kAdminRequest, data, size, most, seed);
}
