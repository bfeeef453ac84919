#include "prover/nfa.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_set>

namespace sluice::prover {
namespace {

using policy::Glob;

constexpr std::string_view kGitSuffix = ".git";

class Builder {
 public:
  NodeId Add() {
    nfa_.nodes.emplace_back();
    epsilons_.emplace_back();
    return static_cast<NodeId>(nfa_.nodes.size() - 1);
  }
  void Edge(NodeId from, const ByteSet& on, NodeId to) { nfa_.nodes[from].edges.push_back({on, to}); }
  void Epsilon(NodeId from, NodeId to) { epsilons_[from].push_back(to); }
  void Accept(NodeId node) { nfa_.nodes[node].accepts = true; }

  Nfa Finish(NodeId start) {
    for (NodeId i = 0; i < nfa_.nodes.size(); ++i) Close(i);
    nfa_.start = nfa_.nodes[start].closure;
    return std::move(nfa_);
  }

 private:
  void Close(NodeId from) {
    std::vector<NodeId> reached{from};
    for (size_t i = 0; i < reached.size(); ++i)
      for (const NodeId next : epsilons_[reached[i]])
        if (std::find(reached.begin(), reached.end(), next) == reached.end()) reached.push_back(next);
    Nfa::Node& node = nfa_.nodes[from];
    const bool accepts = std::any_of(reached.begin(), reached.end(), [&](NodeId n) { return nfa_.nodes[n].accepts; });
    node.absorbs = accepts && std::any_of(node.edges.begin(), node.edges.end(),
                                          [&](const Nfa::Edge& e) { return e.to == from && e.on.all(); });
    for (const NodeId n : reached)
      if (!nfa_.nodes[n].edges.empty() || nfa_.nodes[n].accepts) node.closure.push_back(n);
    std::sort(node.closure.begin(), node.closure.end());
  }

  Nfa nfa_;
  std::vector<std::vector<NodeId>> epsilons_;
};

ByteSet One(char c) {
  ByteSet set;
  set.set(static_cast<unsigned char>(c));
  return set;
}

ByteSet Letter(char c, Case fold) {
  ByteSet set = One(c);
  if (fold == Case::kFolded && c >= 'a' && c <= 'z') set.set(static_cast<unsigned char>(c - 0x20));
  if (fold == Case::kFolded && c >= 'A' && c <= 'Z') set.set(static_cast<unsigned char>(c + 0x20));
  return set;
}

ByteSet All() { return ByteSet().set(); }
ByteSet AllButSlash() { return All() & ~One('/'); }

NodeId AddText(Builder* builder, NodeId from, std::string_view text, Case fold) {
  for (const char c : text) {
    const NodeId next = builder->Add();
    builder->Edge(from, Letter(c, fold), next);
    from = next;
  }
  return from;
}

// A node that loops, and one after it.
NodeId AddStar(Builder* builder, NodeId from, const ByteSet& on) {
  const NodeId loop = builder->Add();
  builder->Epsilon(from, loop);
  builder->Edge(loop, on, loop);
  const NodeId after = builder->Add();
  builder->Epsilon(loop, after);
  return after;
}

NodeId AddGlob(Builder* builder, NodeId from, const Glob& glob, Case fold) {
  for (const Glob::Token& token : glob.tokens()) {
    if (token.kind == Glob::Kind::kLiteral) {
      from = AddText(builder, from, token.literal, fold);
    } else {
      from = AddStar(builder, from, token.kind == Glob::Kind::kAny ? All() : AllButSlash());
    }
  }
  return from;
}

// How much of ".git" (any case) stands at the end after one more byte.
size_t GitProgress(size_t progress, unsigned char byte) {
  const char c = byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + 0x20) : static_cast<char>(byte);
  if (progress < kGitSuffix.size() && c == kGitSuffix[progress]) return progress + 1;
  return c == '.' ? 1 : 0;
}

// The glob over repositories that do not end in ".git": the product of the glob with the progress above.
void AddUnsuffixed(Builder* builder, NodeId from, const Glob& glob, NodeId to) {
  Builder plain;
  const NodeId first = plain.Add();
  const NodeId last = AddGlob(&plain, first, glob, Case::kFolded);
  plain.Accept(last);
  const Nfa nfa = plain.Finish(first);
  std::map<std::pair<NodeId, size_t>, NodeId> known;
  std::vector<std::pair<NodeId, size_t>> queue;
  const auto visit = [&](NodeId node, size_t progress) {
    const auto [at, fresh] = known.try_emplace({node, progress}, 0);
    if (fresh) {
      at->second = builder->Add();
      queue.emplace_back(node, progress);
    }
    return at->second;
  };
  for (const NodeId n : nfa.start) builder->Epsilon(from, visit(n, 0));
  for (size_t i = 0; i < queue.size(); ++i) {
    const auto [node, progress] = queue[i];
    const NodeId here = known[queue[i]];
    if (nfa.nodes[node].accepts && progress != kGitSuffix.size()) builder->Epsilon(here, to);
    for (const Nfa::Edge& edge : nfa.nodes[node].edges) {
      std::array<ByteSet, 5> by_progress;
      for (unsigned byte = 0; byte < 256; ++byte)
        if (edge.on[byte]) by_progress[GitProgress(progress, static_cast<unsigned char>(byte))].set(byte);
      for (size_t next = 0; next < by_progress.size(); ++next)
        if (by_progress[next].any())
          for (const NodeId closed : nfa.nodes[edge.to].closure) builder->Edge(here, by_progress[next], visit(closed, next));
    }
  }
}

NodeId AddRepositories(Builder* builder, NodeId from, const policy::Rule& rule) {
  const NodeId end = builder->Add();
  if (rule.paths.empty()) {
    NodeId any = AddStar(builder, from, All());
    if (rule.allow) {
      const NodeId one = builder->Add();
      builder->Edge(any, All(), one);
      any = one;
    }
    builder->Epsilon(any, end);
    return end;
  }
  for (const Glob& glob : rule.paths) {
    AddUnsuffixed(builder, from, glob, end);
    const NodeId repo = AddGlob(builder, from, glob, Case::kFolded);
    if (rule.allow) {
      builder->Epsilon(AddText(builder, repo, kGitSuffix, Case::kFolded), end);
      continue;
    }
    // A deny takes any number of ".git" and "/" away.
    const NodeId again = builder->Add();
    builder->Epsilon(repo, again);
    for (const std::string_view token : {kGitSuffix, std::string_view("/")}) {
      const NodeId taken = AddText(builder, again, token, Case::kFolded);
      builder->Epsilon(taken, again);
      builder->Epsilon(taken, end);
    }
  }
  return end;
}

}  // namespace

Nfa AnyOf(const std::vector<Glob>& globs) {
  Builder builder;
  const NodeId start = builder.Add();
  if (globs.empty()) builder.Accept(AddStar(&builder, start, All()));
  for (const Glob& glob : globs) builder.Accept(AddGlob(&builder, start, glob, Case::kExact));
  return builder.Finish(start);
}

Nfa OfGlob(const Glob& glob) { return AnyOf({glob}); }

Nfa OfWords(const std::vector<std::string>& words) {
  Builder builder;
  const NodeId start = builder.Add();
  for (const std::string& word : words) builder.Accept(AddText(&builder, start, word, Case::kFolded));
  return builder.Finish(start);
}

namespace {

ByteSet TypeName() {
  ByteSet set;
  for (unsigned byte = 0; byte < 128; ++byte) {
    const bool letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9');
    if (letter || byte == '+' || byte == '-' || byte == '.' || byte == '_') set.set(byte);
  }
  return set;
}

}  // namespace

Nfa OfJsonTypes() {
  Builder builder;
  const NodeId start = builder.Add();
  const NodeId begun = AddText(&builder, start, "application/", Case::kFolded);
  for (const std::string_view name : {"json", "json-rpc", "jsonrequest"})
    builder.Accept(AddText(&builder, begun, name, Case::kFolded));
  builder.Accept(AddText(&builder, AddStar(&builder, begun, TypeName()), "+json", Case::kFolded));
  return builder.Finish(start);
}

Nfa OfGrpcTypes() {
  Builder builder;
  const NodeId start = builder.Add();
  const NodeId plain = AddText(&builder, start, "application/grpc", Case::kFolded);
  builder.Accept(plain);
  const NodeId plus = AddText(&builder, plain, "+", Case::kExact);
  const NodeId named = builder.Add();
  builder.Edge(plus, TypeName(), named);
  builder.Accept(AddStar(&builder, named, TypeName()));
  return builder.Finish(start);
}

Nfa OfRepositories(const policy::Rule& rule, std::string_view suffix) {
  Builder builder;
  const NodeId start = builder.Add();
  NodeId end = AddText(&builder, AddRepositories(&builder, start, rule), suffix, Case::kExact);
  if (!rule.allow) end = AddStar(&builder, end, One('/'));
  builder.Accept(end);
  return builder.Finish(start);
}

ByteClasses ClassesOf(const std::vector<const Nfa*>& patterns, const std::vector<ByteSet>& more) {
  ByteClasses classes;
  classes.count = 1;
  std::unordered_set<ByteSet> seen;
  const auto refine = [&](const ByteSet& set) {
    if (!seen.insert(set).second) return;
    std::array<uint16_t, 256> inside{};  // the number that a class's members in the set get, plus one
    std::array<uint16_t, 256> outside{};
    uint16_t count = 0;
    for (size_t byte = 0; byte < 256; ++byte) {
      uint16_t& number = (set[byte] ? inside : outside)[classes.of[byte]];
      if (number == 0) number = ++count;
      classes.of[byte] = static_cast<uint16_t>(number - 1);
    }
    classes.count = count;
  };
  for (const ByteSet& set : more) refine(set);
  for (const Nfa* nfa : patterns)
    for (const Nfa::Node& node : nfa->nodes)
      for (const Nfa::Edge& edge : node.edges) refine(edge.on);
  return classes;
}

}  // namespace sluice::prover
