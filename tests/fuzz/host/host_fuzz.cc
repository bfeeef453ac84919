// Names, authorities, host patterns and rule texts.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "policy/host_pattern.h"
#include "policy/rule_text.h"
#include "policy/target.h"

namespace {

using namespace sluice::policy;

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto name = CanonicalName(text)) {
    Require(CanonicalName(*name) == name);
    Require(!sluice::IpAddress::Parse(*name));
    const auto authority = ParseAuthority(*name + ":443");
    Require(authority && authority->name == *name && authority->port == 443 && !authority->address);
    // Policy text reads a runtime name as that name.
    const auto pattern = ParseHostPattern(*name);
    Require(pattern && pattern->kind == HostPattern::Kind::kName && pattern->text == *name);
  }
  if (const auto authority = ParseAuthority(text)) Require(authority->name.empty() == authority->address.has_value());
  if (const auto pattern = ParseHostPattern(text)) {
    const auto again = ParseHostPattern(pattern->text);
    Require(again && *again == *pattern);
  }
  // A rule's own text is the rule again.
  if (const auto rule = ParseCompact(Effect::kAllow, text)) {
    const std::string written = CompactText(*rule);
    const auto again = ParseCompact(Effect::kAllow, written);
    Require(again && CanonicalText(*again) == CanonicalText(*rule) && CompactText(*again) == written);
  }
  return 0;
}
