// The judgement of bodies against one that is written from the language's page alone: every body of a small world, under
// policies drawn at random.
#include <random>

#include "tests/policy/support.h"

namespace sluice::policy {
namespace {

// A rule in words. `kind` is "POST", "query", "mutation", "rpc" (jsonrpc) or "json".
struct Words {
  bool allow = true;
  std::string kind;
  std::vector<std::string> values;  // fields, methods (one), or values of /m

  [[nodiscard]] std::string Text() const {
    std::string list;
    for (const std::string& v : values) list += (list.empty() ? "" : ", ") + ("'" + v + "'");
    const std::string head = allow ? "  - allow: " : "  - deny: ";
    if (kind == "POST") return head + "POST a.test/q\n";
    if (kind == "rpc") return head + "jsonrpc " + values[0] + " a.test/q\n";
    if (kind == "json") return head + "POST a.test/q\n    json: { /m: [" + list + "] }\n";
    return head + "graphql " + kind + " a.test/q\n" + (list.empty() ? "" : "    fields: [" + list + "]\n");
  }
};

bool Listed(const std::vector<std::string>& values, const std::string& text) {
  for (const std::string& v : values)
    if (v == "*" || v == text) return true;
  return values.empty();
}

// One reading as the oracle sees it: no text where it cannot be read. "query f", a method, or the value of /m.
using Reading = std::optional<std::vector<std::string>>;
struct World {
  Reading graphql;
  Reading rpc;
  Reading json;  // at most one value
};

bool Covers(const Words& rule, const std::string& reading, const std::string& item) {
  if (reading == "graphql") {
    const size_t space = item.find(' ');
    return rule.kind == item.substr(0, space) && Listed(rule.values, item.substr(space + 1));
  }
  return rule.kind == reading && Listed(rule.values, item);
}

std::string ReadingOf(const Words& rule) {
  return rule.kind == "query" || rule.kind == "mutation" ? "graphql" : rule.kind == "POST" ? "" : rule.kind;
}

bool Allowed(const std::vector<Words>& rules, const World& world) {
  const std::pair<std::string, const Reading*> readings[] = {
      {"graphql", &world.graphql}, {"rpc", &world.rpc}, {"json", &world.json}};
  bool granted = false;
  for (const Words& rule : rules) {
    if (rule.kind != "POST") continue;
    if (!rule.allow) return false;
    granted = true;
  }
  for (const auto& [name, reading] : readings) {
    bool any = false;
    for (const Words& rule : rules) {
      if (ReadingOf(rule) != name) continue;
      if (rule.allow) {
        any = true;
        continue;
      }
      if (!*reading) return false;
      for (const std::string& item : **reading)
        if (Covers(rule, name, item)) return false;
    }
    if (!any || !*reading || (*reading)->empty()) continue;
    bool all = true;
    for (const std::string& item : **reading) {
      bool covered = false;
      for (const Words& rule : rules) covered = covered || (rule.allow && Covers(rule, name, item));
      all = all && covered;
    }
    granted = granted || all;
  }
  return granted;
}

const std::vector<Reading>& GraphqlReadings() {
  static const std::vector<Reading> all = [] {
    const std::vector<std::string> items = {"query a", "query b", "mutation a", "mutation b"};
    std::vector<Reading> out = {std::nullopt, std::vector<std::string>{}};
    for (const auto& x : items) {
      out.push_back(std::vector{x});
      for (const auto& y : items) out.push_back(std::vector{x, y});
    }
    return out;
  }();
  return all;
}
const std::vector<Reading>& RpcReadings() {
  using S = std::vector<std::string>;
  static const std::vector<Reading> all = {std::nullopt, S{}, S{"x"}, S{"y"}, S{"z"}, S{"x", "y"}, S{"y", "z"}};
  return all;
}
const std::vector<Reading>& JsonReadings() {
  using S = std::vector<std::string>;
  static const std::vector<Reading> all = {std::nullopt, S{}, S{"1"}, S{"2"}, S{"3"}};
  return all;
}

RequestBody BodyOf(const World& world, BodyKinds kinds) {
  RequestBody body;
  if ((kinds & kBodyGraphql) != 0) {
    auto& reading = body.graphql.emplace();
    if (!world.graphql) reading.fault = "no";
    for (const std::string& item : world.graphql.value_or(std::vector<std::string>{})) {
      const size_t space = item.find(' ');
      reading.items.push_back(
          {item.starts_with("query") ? GraphqlKind::kQuery : GraphqlKind::kMutation, "", item.substr(space + 1)});
    }
  }
  if ((kinds & kBodyRpc) != 0) {
    auto& reading = body.rpc.emplace();
    if (!world.rpc) reading.fault = "no";
    for (const std::string& item : world.rpc.value_or(std::vector<std::string>{})) reading.items.push_back({item, {}, {}});
  }
  if ((kinds & kBodyJson) != 0) {
    auto& reading = body.json.emplace();
    if (!world.json) reading.fault = "no";
    reading.items.push_back({"", JsonLeaf::Type::kObject, ""});
    for (const std::string& item : world.json.value_or(std::vector<std::string>{}))
      reading.items.push_back({"/m", JsonLeaf::Type::kString, item});
  }
  return body;
}

std::vector<Words> Draw(std::mt19937* random) {
  const auto pick = [&](std::initializer_list<std::vector<std::string>> from) {
    return *(from.begin() + static_cast<std::ptrdiff_t>((*random)() % from.size()));
  };
  std::vector<Words> rules;
  const size_t count = 1 + (*random)() % 5;
  for (size_t i = 0; i < count; ++i) {
    Words words;
    words.allow = (*random)() % 3 != 0;
    switch ((*random)() % 6) {
      case 0:
        words.kind = "POST";
        words.allow = words.allow || (*random)() % 4 != 0;
        break;
      case 1:
      case 2:
        words.kind = (*random)() % 2 == 0 ? "query" : "mutation";
        words.values = pick({{}, {"a"}, {"b"}, {"a", "b"}, {"*"}});
        break;
      case 3:
      case 4:
        words.kind = "rpc";
        words.values = pick({{"x"}, {"y"}, {"*"}});
        break;
      default:
        words.kind = "json";
        words.values = pick({{"1"}, {"1", "2"}, {"*"}});
    }
    rules.push_back(std::move(words));
  }
  return rules;
}

void Judge(const std::vector<Words>& rules) {
  std::string text = "version: 1\nrules:\n";
  size_t denies = 0;
  for (const Words& rule : rules) {
    text += rule.Text();
    denies += rule.allow ? 0 : 1;
  }
  const auto policy = Loaded(text);
  Request request("POST", To("a.test", 443), "/q");
  request.With("content-type", "application/json");
  const Decision before = policy->DecideRequest(request.Get());
  bool some = false;
  bool all = true;
  for (const Reading& graphql : GraphqlReadings()) {
    for (const Reading& rpc : RpcReadings()) {
      for (const Reading& json : JsonReadings()) {
        const World world{graphql, rpc, json};
        const bool allowed = Allowed(rules, world);
        some |= allowed;
        all &= allowed;
        if (before.body_needed == 0) {
          ASSERT_EQ(before.allowed, allowed) << text;
          continue;
        }
        // The readings that were asked for are enough.
        const RequestBody body = BodyOf(world, before.body_needed);
        RequestQuery query = request.Get();
        query.body = &body;
        const Decision after = policy->DecideRequest(query);
        ASSERT_EQ(after.body_needed, 0) << text;
        ASSERT_EQ(after.allowed, allowed) << text << (graphql && !graphql->empty() ? graphql->front() : "-") << " "
                                          << (rpc && !rpc->empty() ? rpc->front() : "-");
      }
    }
  }
  // Several denies together may leave nothing where none does alone; that is not looked for.
  if (before.body_needed != 0 && denies < 2) {
    EXPECT_TRUE(some && !all) << text;
  }
}

TEST(BodyOracle, AgreesOnEveryBodyOfASmallWorld) {
  std::mt19937 random(20261129);
  for (int i = 0; i < 1500 && !::testing::Test::HasFatalFailure(); ++i) Judge(Draw(&random));
}

}  // namespace
}  // namespace sluice::policy
