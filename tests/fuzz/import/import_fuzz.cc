// Other tools' policies: the first byte says as whose the rest is read ('0' to '6' for the kinds, 'a' for what the shape tells).
// A fault has a place; what is taken prints as a native policy with the same rules.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "policy/compiled.h"
#include "policy/finding.h"
#include "policy/io/foreign.h"
#include "policy/io/load.h"

namespace {

using namespace sluice;
using namespace sluice::policy;

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  ForeignOptions options;
  if (data[0] >= '0' && data[0] <= '6') options.kind = static_cast<ImportKind>(data[0] - '0');
  const auto imported = ReadForeign(text, "fuzz.yaml", options);
  if (!imported) {
    Require(!imported.error().message.empty() && imported.error().span.has_value());
    return 0;
  }
  for (const ImportRemark& remark : imported->remarks) Require(remark.before <= imported->rules.size());
  const std::string native = WriteNative(*imported, "fuzz.yaml");
  if (native.size() > size_t{1024} * 1024) return 0;  // what fits in one file may print as more than one may hold
  const auto loaded = LoadText(native, "native.yaml");
  Require(loaded.has_value());
  Require(DigestInput((*loaded)->compiled().rules, Mode::kEnforce) == DigestInput(imported->rules, Mode::kEnforce));
  return 0;
}
