// JSON-RPC and LFS batches: what is read has the method, the tool and the operation that a tree of the text has.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "proxy/body/json_rpc.h"
#include "proxy/body/lfs.h"
#include "tests/fuzz/shape.h"

using namespace sluice;
using nlohmann::json;

namespace {

void Check(const json& message, const policy::RpcItem& item) {
  if (message.value("jsonrpc", "") != "2.0") std::abort();
  if (item.method.empty() == message.contains("method")) std::abort();
  if (!item.method.empty() && message.at("method") != item.method) std::abort();
  if (item.tool.has_value() != (item.method == "tools/call")) std::abort();
  if (item.tool && message.at("params").at("name") != *item.tool) std::abort();
}

// Nothing where a number is one that no double holds; fuzz_json_body sees to it that the two readers differ in nothing else.
json Tree(std::string_view text) { return json::parse(text, nullptr, false); }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  if (const auto rpc = proxy::ReadJsonRpc(in); rpc.readable()) {
    const json tree = Tree(in);
    if (tree.is_discarded()) return 0;
    if (rpc.items.empty() || (tree.is_array() ? tree.size() : 1) != rpc.items.size()) std::abort();
    for (size_t i = 0; i < rpc.items.size(); ++i) Check(tree.is_array() ? tree[i] : tree, rpc.items[i]);
  }
  if (const auto lfs = proxy::ReadLfsBatch(in); lfs.readable()) {
    const bool upload = lfs.items.at(0) == policy::LfsOperation::kUpload;
    const json tree = Tree(in);
    if (!tree.is_discarded() && tree.at("operation") != (upload ? "upload" : "download")) std::abort();
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return sluice::fuzz::Mutate(sluice::fuzz::kJson, data, size, most, seed);
}
