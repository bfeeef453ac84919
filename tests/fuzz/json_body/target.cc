// JSON bodies: what is read is JSON to another strict reader too, and the leaves are sorted, each pointer once.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "proxy/body/json_body.h"
#include "tests/fuzz/shape.h"

using namespace sluice::proxy;
using sluice::policy::JsonLeaf;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  const auto reading = ReadJson(in);
  if (reading.readable()) {
    const auto& leaves = reading.items;
    const auto misplaced = [](const JsonLeaf& a, const JsonLeaf& b) { return a.pointer >= b.pointer; };
    if (leaves.empty() || !leaves.front().pointer.empty()) std::abort();
    if (std::adjacent_find(leaves.begin(), leaves.end(), misplaced) != leaves.end()) std::abort();
    // The other reader refuses what no double holds (1e400), which is JSON all the same.
    const auto is_vast = [](const JsonLeaf& leaf) {
      return leaf.type == JsonLeaf::Type::kNumber && !std::isfinite(std::strtod(leaf.text.c_str(), nullptr));
    };
    if (std::any_of(leaves.begin(), leaves.end(), is_vast)) return 0;
    const auto tree = nlohmann::json::parse(in, nullptr, false);
    if (tree.is_discarded()) std::abort();
    for (const JsonLeaf& leaf : leaves) {
      const auto& value = tree.at(nlohmann::json::json_pointer(leaf.pointer));
      if (value.is_string() != (leaf.type == JsonLeaf::Type::kString)) std::abort();
      if (value.is_string() && value.get_ref<const std::string&>() != leaf.text) std::abort();
    }
  } else if (!reading.items.empty()) {
    std::abort();
  }
  const auto messages = ReadJsonMessages(in);
  if (reading.readable() && !messages.fault.empty()) std::abort();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return sluice::fuzz::Mutate(sluice::fuzz::kJson, data, size, most, seed);
}
