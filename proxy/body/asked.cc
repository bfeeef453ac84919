#include "proxy/body/asked.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::proxy {
namespace {

std::string Words(const policy::GraphqlItem& item) {
  const std::string_view kind = item.kind == policy::GraphqlKind::kQuery      ? "query"
                                : item.kind == policy::GraphqlKind::kMutation ? "mutation"
                                                                              : "subscription";
  return fmt::format("graphql {}{}{} {}", kind, item.operation.empty() ? "" : " ", item.operation, item.field);
}
std::string Words(const policy::RpcItem& item) {
  if (item.tool) return fmt::format("mcp {} {}", item.method, *item.tool);
  return item.method.empty() ? "jsonrpc response" : fmt::format("jsonrpc {}", item.method);
}
std::string Words(const policy::RefUpdate& item) {
  const std::string_view change = item.change == policy::kRefCreate   ? "create"
                                  : item.change == policy::kRefDelete ? "delete"
                                                                      : "update";
  return fmt::format("{} {}", change, item.ref);
}
std::string Words(const policy::LfsOperation& item) {
  return item == policy::LfsOperation::kUpload ? "lfs upload" : "lfs download";
}

class Asked {
 public:
  template <class Item>
  void Add(const std::optional<policy::BodyReading<Item>>& reading) {
    if (!reading) return;
    if (!reading->readable()) return AddText(fmt::format("not readable: {}", reading->fault));
    for (const Item& item : reading->items) AddText(Words(item));
  }

  std::vector<std::string> Take() {
    if (more_ != 0) words_.push_back(fmt::format("and {} more", more_));
    return std::move(words_);
  }

 private:
  void AddText(std::string text) {
    text.resize(std::min(text.size(), kMaxAskedText));
    if (std::find(words_.begin(), words_.end(), text) != words_.end()) return;
    if (words_.size() < kMaxAsked) {
      words_.push_back(std::move(text));
    } else {
      ++more_;
    }
  }

  std::vector<std::string> words_;
  size_t more_ = 0;
};

}  // namespace

std::vector<std::string> AskedOf(const policy::RequestBody& body) {
  Asked asked;
  asked.Add(body.graphql);
  asked.Add(body.rpc);
  asked.Add(body.push);
  asked.Add(body.lfs);
  return asked.Take();
}

}  // namespace sluice::proxy
