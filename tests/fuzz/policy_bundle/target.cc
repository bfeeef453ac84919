// Bundles, their signatures, and what is kept on disk: nothing passes that was not signed, and what is stored comes back whole.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "app/policy_bundle.h"
#include "app/policy_state.h"

using namespace sluice;
using namespace sluice::app;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  // Nobody has the private half of this key (it is no point that was ever generated).
  const BundleKeys keys = {std::array<uint8_t, 32>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
  const size_t half = size / 2;
  if (VerifyBundle(keys, in.substr(half), in.substr(0, half))) std::abort();
  if (const auto serial = BundleSerial(in); serial && *serial != 0 && !in.starts_with("# sluice-bundle serial=")) std::abort();
  (void)ReadBundleKeys(in, "keys");
  if (const auto signature = ReadSignature(in); signature && size != 64 && size < 88) std::abort();
  if (const auto stored = ParseStored(in)) {
    const auto again = ParseStored(StoredText(*stored));
    if (!again || !(*again == *stored)) std::abort();
  }
  return 0;
}
