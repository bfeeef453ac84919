// A body in pieces of any size: the swapper gives what swapping the whole text gives, the scanner finds what the whole text
// holds. The input is two stand-ins, a byte that says how the text is cut, and the text; lines part them.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/credential/stand_in.h"

using namespace sluice::proxy;

namespace {

std::string_view Line(std::string_view* in) {
  const size_t end = in->find('\n');
  const std::string_view line = in->substr(0, end);
  in->remove_prefix(end == std::string_view::npos ? in->size() : end + 1);
  return line;
}

// By the meaning, not by the search of the code: at each place the longest that begins there.
std::string SwapByMeaning(std::string_view text, const std::vector<Swap>& swaps) {
  std::string out;
  while (!text.empty()) {
    const Swap* best = nullptr;
    for (const Swap& swap : swaps)
      if (text.starts_with(swap.from) && (best == nullptr || swap.from.size() > best->from.size())) best = &swap;
    out += best != nullptr ? best->to : std::string(text.substr(0, 1));
    text.remove_prefix(best != nullptr ? best->from.size() : 1);
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 4096) return 0;
  std::string_view in(reinterpret_cast<const char*>(data), size);
  std::vector<Swap> swaps;
  std::vector<std::string> names;
  for (const char* to : {"", "other"}) {
    const std::string name(Line(&in));
    if (name.empty() || (!names.empty() && names.front() == name)) continue;
    swaps.push_back({name, to});
    names.push_back(name);
  }
  uint32_t seed = 1;
  if (!in.empty()) {
    seed += static_cast<uint8_t>(in.front());
    in.remove_prefix(1);
  }
  const std::string expected = SwapByMeaning(in, swaps);
  if (SwapAll(in, swaps) != expected) std::abort();
  StreamSwapper swapper(swaps);
  StandInScanner scanner(names);
  std::string out;
  bool found = false;
  for (std::string_view rest = in; !rest.empty();) {
    seed = seed * 1664525 + 1013904223;
    const size_t n = std::min<size_t>(rest.size(), (seed >> 24) % 9);
    swapper.Push(rest.substr(0, n), &out);
    found = scanner.Push(rest.substr(0, n)).has_value() || found;
    rest.remove_prefix(n);
  }
  swapper.Finish(&out);
  if (out != expected) std::abort();
  const bool holds = std::ranges::any_of(names, [&](const std::string& name) { return in.find(name) != std::string_view::npos; });
  if (found != holds) std::abort();
  return 0;
}
