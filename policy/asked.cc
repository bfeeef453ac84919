#include "policy/asked.h"

#include <fmt/format.h>

#include <algorithm>

#include "policy/index.h"
#include "policy/media_type.h"
#include "policy/operation.h"

namespace sluice::policy {
namespace {

constexpr size_t kMaxShownItem = 80;  // characters of a name that the workload chose

std::string Shown(std::string_view text) {
  return text.size() <= kMaxShownItem ? std::string(text) : fmt::format("{}...", text.substr(0, kMaxShownItem));
}

// A text as a value of a list in YAML; nothing where a glob would read it otherwise.
std::string Listed(std::string_view key, std::string_view value) {
  const bool clean = !value.empty() && value.size() <= kMaxShownItem && std::all_of(value.begin(), value.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./").find(c) != std::string_view::npos;
  });
  return clean ? fmt::format("{}: [{}]", key, value) : "";
}

bool IsMcpMethod(std::string_view method) {
  static constexpr std::string_view kPrefixes[] = {"tools/",   "resources/", "prompts/", "notifications/", "completion/",
                                                   "logging/", "sampling/",  "roots/",   "elicitation/"};
  return method == "initialize" || method == "ping" || method.empty() ||
         std::any_of(std::begin(kPrefixes), std::end(kPrefixes), [&](std::string_view p) { return method.starts_with(p); });
}

std::string_view ChangeText(RefChange change) {
  return change == kRefCreate ? "create" : change == kRefUpdate ? "update" : "delete";
}

class Describer {
 public:
  Describer(const Snapshot::Compiled& compiled, const RequestQuery& request, const AskedTarget& target)
      : compiled_(compiled), request_(request), connection_(request.connection), view_(request), target_(target) {}

  Asked Body(BodyKinds reading) {
    const RequestBody& body = *request_.body;
    switch (reading) {
      case kBodyGraphql:
        return Reading(reading, body.graphql, [this](const GraphqlItem& item) { return Graphql(item); });
      case kBodyRpc:
        return Reading(reading, body.rpc, [this](const RpcItem& item) { return Rpc(item); });
      case kBodyPush:
        return Reading(reading, body.push, [this](const RefUpdate& item) { return Push(item); });
      case kBodyLfs:
        return Reading(reading, body.lfs, [this](LfsOperation item) { return Lfs(item); });
      default:
        break;
    }
    Asked asked;
    if (!body.json || !body.json->readable()) asked.fault = body.json ? body.json->fault : "it was not read";
    return asked;
  }

  [[nodiscard]] Asked Upgrade() const {
    Asked asked{.words = fmt::format("a WebSocket to {}{}", target_.authority, Shown(target_.path))};
    if (!target_.path.empty())
      asked.suggest = fmt::format("ws {}{}{}", target_.cleartext ? "ws://" : "", target_.authority, target_.path);
    return asked;
  }

  [[nodiscard]] Asked Grpc() const {
    const std::string_view call = request_.target->ForMatching().substr(1);
    Asked asked{.words = fmt::format("grpc {} at {}", Shown(call), target_.authority)};
    asked.suggest = fmt::format("grpc {}{} {}", Scheme(), target_.authority, call);
    return asked;
  }

 private:
  [[nodiscard]] std::string_view Scheme() const { return target_.cleartext ? "http://" : ""; }
  [[nodiscard]] std::string Where() const { return fmt::format("{}{}{}", Scheme(), target_.authority, target_.path); }

  template <class Item, class F>
  Asked Reading(BodyKinds reading, const std::optional<BodyReading<Item>>& items, F describe) {
    if (!items || !items->readable()) return {.fault = items ? items->fault : "it was not read"};
    for (const Item& item : items->items)
      if (!Covered(reading, item)) return describe(item);
    return items->items.empty() ? Asked{.fault = "it asks for nothing"} : Asked{};
  }

  template <class Item>
  bool Covered(BodyKinds reading, const Item& item) {
    bool covered = false;
    ForEachCandidate(compiled_, request_.connection, [&](uint32_t i) {
      const Rule& rule = compiled_.rules[i];
      covered = covered || (rule.allow && IsInner(rule.verb) && AllowCoversConnection(rule, connection_) &&
                            view_.AllowCovers(rule) && view_.AllowReading(rule) == reading && AllowCoversItem(rule, item));
    });
    return covered;
  }

  [[nodiscard]] Asked Graphql(const GraphqlItem& item) const {
    Asked asked{.words = fmt::format("graphql {} {} at {}", GraphqlKindText(item.kind), Shown(item.field), Where())};
    if (target_.path.empty()) return asked;
    asked.suggest = fmt::format("graphql {} {}", GraphqlKindText(item.kind), Where());
    asked.key = Listed("fields", item.field);
    return asked;
  }

  [[nodiscard]] Asked Rpc(const RpcItem& item) const {
    const bool mcp = IsMcpMethod(item.method);
    const std::string_view verb = mcp ? "mcp" : "jsonrpc";
    const bool session = item.method.empty() || item.method == "ping" || item.method.starts_with("notifications/");
    Asked asked{.words = fmt::format("{} {}{} at {}", verb, item.method.empty() ? "(an answer)" : Shown(item.method),
                                     item.tool ? fmt::format(" of {}", Shown(*item.tool)) : "", Where())};
    if (target_.path.empty()) return asked;
    // What keeps a session comes with its beginning.
    asked.suggest = fmt::format("{} {} {}", verb, mcp && session ? "initialize" : item.method, Where());
    if (item.tool) asked.key = Listed("tool", *item.tool);
    return asked;
  }

  [[nodiscard]] Asked Push(const RefUpdate& item) const {
    Asked asked{.words = fmt::format("a push that would {} {}", ChangeText(item.change), Shown(item.ref))};
    asked.suggest = Repo(Verb::kGitReceivePack);
    asked.key = Listed("refs", item.ref);
    if (!asked.key.empty() && item.change == kRefDelete) asked.key += "` and `ref-changes: [delete]";
    return asked;
  }

  [[nodiscard]] Asked Lfs(LfsOperation item) const {
    const bool upload = item == LfsOperation::kUpload;
    Asked asked{.words = fmt::format("an {} of LFS objects", upload ? "upload" : "download")};
    if (!upload) asked.words.replace(0, 2, "a");
    asked.suggest = Repo(upload ? Verb::kGitReceivePack : Verb::kGitFetchPack);
    asked.key = "lfs: true";
    return asked;
  }

  [[nodiscard]] std::string Repo(Verb verb) const {
    std::string_view path = target_.path;
    for (const std::string_view end : {std::string_view("/git-receive-pack"), std::string_view("/info/lfs/objects/batch")})
      if (path.ends_with(end)) path.remove_suffix(end.size());
    if (path.ends_with(".git")) path.remove_suffix(4);
    return target_.cleartext || path.size() < 2 ? "" : fmt::format("{} {}{}", VerbText(verb), target_.authority, path);
  }

  const Snapshot::Compiled& compiled_;
  const RequestQuery& request_;
  const ConnectionView connection_;
  const RequestView view_;
  const AskedTarget& target_;
};

}  // namespace

Asked AskedOf(const Snapshot::Compiled& compiled, const RequestQuery& request, RuleRef nearest, const AskedTarget& target) {
  Describer describer(compiled, request, target);
  if (request.upgrade == Upgrade::kWebSocket) return describer.Upgrade();
  if (IsGrpc(ContentTypeOf(request.headers)) && request.method == "POST") return describer.Grpc();
  if (request.body == nullptr || nearest == RuleRef::kNone) return {};
  const Rule& rule = compiled.rules[static_cast<size_t>(nearest)];
  const RequestView view(request);
  if (!view.AllowCovers(rule)) return {};
  const BodyKinds reading = view.AllowReading(rule);
  return reading == 0 ? Asked{} : describer.Body(reading);
}

}  // namespace sluice::policy
