#include "prover/nfa.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>

#include "policy/match.h"
#include "prover/nfa_builder.h"

namespace sluice::prover {
namespace {

using policy::Glob;

constexpr std::string_view kGitSuffix = ".git";

ByteSet AllButSlash() { return AllBytes() & ~ByteOf('/'); }

NodeId AddGlob(NfaBuilder* builder, NodeId from, const Glob& glob, Case fold) {
  for (const Glob::Token& token : glob.tokens()) {
    if (token.kind == Glob::Kind::kLiteral) {
      from = AddText(builder, from, token.literal, fold);
    } else {
      from = AddStar(builder, from, token.kind == Glob::Kind::kAny ? AllBytes() : AllButSlash());
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
void AddUnsuffixed(NfaBuilder* builder, NodeId from, const Glob& glob, NodeId to) {
  NfaBuilder plain;
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

NodeId AddRepositories(NfaBuilder* builder, NodeId from, const policy::Rule& rule) {
  const NodeId end = builder->Add();
  if (rule.paths.empty()) {
    NodeId any = AddStar(builder, from, AllBytes());
    if (rule.allow) {
      any = AddByte(builder, any, AllBytes());
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
  NfaBuilder builder;
  const NodeId start = builder.Add();
  if (globs.empty()) builder.Accept(AddStar(&builder, start, AllBytes()));
  for (const Glob& glob : globs) builder.Accept(AddGlob(&builder, start, glob, Case::kExact));
  return builder.Finish(start);
}

Nfa OfGlob(const Glob& glob) { return AnyOf({glob}); }

Nfa OfWords(const std::vector<std::string>& words) {
  NfaBuilder builder;
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

ByteSet Blanks() { return ByteOf(' ') | ByteOf('\t'); }

// Parameters after a media type: none, or that it is UTF-8.
NodeId AddUtf8(NfaBuilder* builder, NodeId from) {
  const NodeId end = AddStar(builder, from, Blanks());
  const NodeId parameter = AddStar(builder, AddByte(builder, end, ByteOf(';')), Blanks());
  builder->Epsilon(parameter, end);
  for (const std::string_view charset : {"charset=utf-8", "charset=\"utf-8\""})
    builder->Epsilon(AddStar(builder, AddText(builder, parameter, charset, Case::kFolded), Blanks()), end);
  return end;
}

// Any parameters.
NodeId AddParameters(NfaBuilder* builder, NodeId from) {
  const NodeId end = AddStar(builder, from, Blanks());
  builder->Epsilon(AddStar(builder, AddByte(builder, end, ByteOf(';')), AllBytes()), end);
  return end;
}

}  // namespace

Nfa OfJsonTypes() {
  NfaBuilder builder;
  const NodeId start = builder.Add();
  const NodeId begun = AddText(&builder, start, "application/", Case::kFolded);
  const NodeId type = builder.Add();
  for (const std::string_view name : {"json", "json-rpc", "jsonrequest"})
    builder.Epsilon(AddText(&builder, begun, name, Case::kFolded), type);
  builder.Epsilon(AddText(&builder, AddStar(&builder, begun, TypeName()), "+json", Case::kFolded), type);
  builder.Accept(AddUtf8(&builder, type));
  return builder.Finish(start);
}

Nfa OfGrpcTypes() {
  NfaBuilder builder;
  const NodeId start = builder.Add();
  const NodeId plain = AddText(&builder, start, "application/grpc", Case::kFolded);
  builder.Accept(AddParameters(&builder, plain));
  const NodeId plus = AddText(&builder, plain, "+", Case::kExact);
  const NodeId named = AddByte(&builder, plus, TypeName());
  builder.Accept(AddParameters(&builder, AddStar(&builder, named, TypeName())));
  return builder.Finish(start);
}

Nfa OfGraphqlNames() {
  ByteSet letters = ByteOf('_');
  for (char c = 'a'; c <= 'z'; ++c) letters |= ByteOf(c) | ByteOf(static_cast<char>(c - 'a' + 'A'));
  ByteSet all = letters;
  for (char c = '0'; c <= '9'; ++c) all |= ByteOf(c);
  NfaBuilder builder;
  const NodeId start = builder.Add();
  builder.Accept(AddStar(&builder, AddByte(&builder, start, letters), all));
  return builder.Finish(start);
}

Nfa OfLfsType() {
  NfaBuilder builder;
  const NodeId start = builder.Add();
  builder.Accept(AddUtf8(&builder, AddText(&builder, start, "application/vnd.git-lfs+json", Case::kFolded)));
  return builder.Finish(start);
}

namespace {

// What a text ends in, as far as some marks go (Aho and Corasick): a state is the longest end of it that begins a mark.
class Ends {
 public:
  explicit Ends(std::vector<std::string> marks) {
    for (const std::string& mark : marks) {
      for (size_t size = 0; size <= mark.size(); ++size) numbers_.try_emplace(mark.substr(0, size), 0);
      for (const char byte : mark) bytes_.set(static_cast<unsigned char>(byte));
    }
    for (auto& [text, number] : numbers_) {
      number = states_.size();
      states_.push_back(text);
    }
    for (size_t state = 0; state < states_.size(); ++state) {
      next_.emplace_back();
      for (unsigned byte = 0; byte < 256; ++byte)
        next_[state][byte] = static_cast<uint16_t>(bytes_[byte] ? Find(state, static_cast<char>(byte)) : numbers_.at(""));
    }
  }
  [[nodiscard]] size_t Step(size_t state, char byte) const { return next_[state][static_cast<unsigned char>(byte)]; }
  [[nodiscard]] size_t After(std::string_view text) const {
    size_t state = numbers_.at("");
    for (const char byte : text) state = Step(state, byte);
    return state;
  }
  /// `mark` is one of those it was made for.
  [[nodiscard]] bool In(size_t state, std::string_view mark) const { return states_[state].ends_with(mark); }

  /// The bytes that lead from a state to each next one.
  [[nodiscard]] std::map<size_t, ByteSet> Moves(size_t state, const ByteSet& on) const {
    std::map<size_t, ByteSet> moves;
    for (unsigned byte = 0; byte < 256; ++byte)
      if (on[byte] && bytes_[byte]) moves[Step(state, static_cast<char>(byte))].set(byte);
    // No mark has one of the others.
    if (const ByteSet others = on & ~bytes_; others.any()) moves[numbers_.at("")] |= others;
    return moves;
  }

 private:
  [[nodiscard]] size_t Find(size_t state, char byte) const {
    std::string text = states_[state] + byte;
    while (true) {
      if (const auto found = numbers_.find(text); found != numbers_.end()) return found->second;
      text.erase(0, 1);
    }
  }

  std::map<std::string, size_t> numbers_;
  std::vector<std::string> states_;
  std::vector<std::array<uint16_t, 256>> next_;
  ByteSet bytes_;  ///< of the marks
};

// One byte or more of any text whose states all pass `keep`, where the last one passes `accept`.
template <class Keep, class Accept>
NodeId AddEnds(NfaBuilder* builder, NodeId from, const Ends& ends, size_t first, Keep keep, Accept accept) {
  const NodeId to = builder->Add();
  std::map<size_t, NodeId> nodes;
  std::vector<size_t> queue;
  const auto visit = [&](size_t state) {
    const auto [at, fresh] = nodes.try_emplace(state, 0);
    if (fresh) {
      at->second = builder->Add();
      if (accept(state)) builder->Epsilon(at->second, to);
      queue.push_back(state);
    }
    return at->second;
  };
  const auto leave = [&](NodeId node, size_t state) {
    for (const auto& [next, on] : ends.Moves(state, AllBytes()))
      if (keep(next)) builder->Edge(node, on, visit(next));
  };
  const NodeId start = builder->Add();
  builder->Epsilon(from, start);
  leave(start, first);
  for (size_t i = 0; i < queue.size(); ++i) leave(nodes.at(queue[i]), queue[i]);
  return to;
}

constexpr std::string_view kLfs = "/info/lfs/";
constexpr std::string_view kLfsBatch = "/info/lfs/objects/batch";
constexpr std::string_view kVerify = "/verify";
constexpr std::string_view kInfoRefs = "/info/refs";

const Ends& EndsOfLfs(policy::Verb verb) {
  const auto make = [](policy::Verb v) {
    const std::string service = "/" + std::string(policy::GitService(v));
    return Ends({std::string(kLfs), std::string(kLfsBatch), std::string(kVerify), std::string(kInfoRefs), service, "/"});
  };
  static const Ends kFetch = make(policy::Verb::kGitFetchPack);
  static const Ends kPush = make(policy::Verb::kGitReceivePack);
  return verb == policy::Verb::kGitFetchPack ? kFetch : kPush;
}

}  // namespace

Nfa OfLfsCalls(const policy::Rule& rule, LfsCalls calls) {
  // What ends so is a call of git's own.
  const std::string service = "/" + std::string(policy::GitService(rule.verb));
  const Ends& ends = EndsOfLfs(rule.verb);
  // The last "/info/lfs/" of a path is the one that counts.
  const auto keep = [&](size_t state) { return !ends.In(state, kLfs); };
  const auto is_other = [&](size_t state) { return ends.In(state, kInfoRefs) || ends.In(state, service); };
  NfaBuilder builder;
  const NodeId start = builder.Add();
  const NodeId repositories = AddRepositories(&builder, start, rule);
  const auto behind = [&](std::string_view text, auto accept) {
    const NodeId node = AddText(&builder, repositories, text, Case::kExact);
    return AddEnds(&builder, node, ends, ends.After(text), keep, accept);
  };
  switch (calls) {
    case LfsCalls::kObjects:
      builder.Accept(behind("/info/lfs/objects/", [&](size_t state) {
        return !is_other(state) && !ends.In(state, kVerify) && !ends.In(state, kLfsBatch);
      }));
      break;
    case LfsCalls::kPosts:
      builder.Accept(behind("/info/lfs/objects/", [&](size_t state) { return !is_other(state) && ends.In(state, kVerify); }));
      builder.Accept(behind("/info/lfs/locks/", [&](size_t state) { return !is_other(state); }));
      for (const std::string_view whole : {"/info/lfs/verify", "/info/lfs/locks", "/info/lfs/locks/"})
        builder.Accept(AddText(&builder, repositories, whole, Case::kExact));
      break;
    case LfsCalls::kAny:
      // Some servers take a final slash away before they route.
      builder.Accept(AddStar(
          &builder, behind(kLfs, [&](size_t state) { return !ends.In(state, kLfsBatch) && !ends.In(state, "/"); }), ByteOf('/')));
      break;
  }
  return builder.Finish(start);
}

Nfa Without(const Nfa& pattern, std::string_view text) {
  const Ends ends({std::string(text)});
  NfaBuilder builder;
  const NodeId start = builder.Add();
  std::map<std::pair<NodeId, size_t>, NodeId> known;
  std::vector<std::pair<NodeId, size_t>> queue;
  const auto visit = [&](NodeId node, size_t state) {
    const auto [at, fresh] = known.try_emplace({node, state}, 0);
    if (fresh) {
      at->second = builder.Add();
      if (pattern.nodes[node].accepts) builder.Accept(at->second);
      queue.emplace_back(node, state);
    }
    return at->second;
  };
  for (const NodeId node : pattern.start) builder.Epsilon(start, visit(node, ends.After("")));
  for (size_t i = 0; i < queue.size(); ++i) {
    const auto [node, state] = queue[i];
    const NodeId here = known.at(queue[i]);
    for (const Nfa::Edge& edge : pattern.nodes[node].edges)
      for (const auto& [next, on] : ends.Moves(state, edge.on))
        if (!ends.In(next, text))
          for (const NodeId closed : pattern.nodes[edge.to].closure) builder.Edge(here, on, visit(closed, next));
  }
  return builder.Finish(start);
}

Nfa Both(const Nfa& a, const Nfa& b) {
  NfaBuilder builder;
  const NodeId start = builder.Add();
  std::map<std::pair<NodeId, NodeId>, NodeId> known;
  std::vector<std::pair<NodeId, NodeId>> queue;
  const auto visit = [&](NodeId in_a, NodeId in_b) {
    const auto [at, fresh] = known.try_emplace({in_a, in_b}, 0);
    if (fresh) {
      at->second = builder.Add();
      if (a.nodes[in_a].accepts && b.nodes[in_b].accepts) builder.Accept(at->second);
      queue.emplace_back(in_a, in_b);
    }
    return at->second;
  };
  for (const NodeId in_a : a.start)
    for (const NodeId in_b : b.start) builder.Epsilon(start, visit(in_a, in_b));
  for (size_t i = 0; i < queue.size(); ++i) {
    const auto [in_a, in_b] = queue[i];
    const NodeId here = known.at(queue[i]);
    for (const Nfa::Edge& x : a.nodes[in_a].edges)
      for (const Nfa::Edge& y : b.nodes[in_b].edges) {
        const ByteSet on = x.on & y.on;
        if (on.none()) continue;
        for (const NodeId after_a : a.nodes[x.to].closure)
          for (const NodeId after_b : b.nodes[y.to].closure) builder.Edge(here, on, visit(after_a, after_b));
      }
  }
  return builder.Finish(start);
}

Nfa OfRepositories(const policy::Rule& rule, std::string_view suffix) {
  NfaBuilder builder;
  const NodeId start = builder.Add();
  NodeId end = AddText(&builder, AddRepositories(&builder, start, rule), suffix, Case::kExact);
  if (!rule.allow) end = AddStar(&builder, end, ByteOf('/'));
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
    for (const ByteSet& set : nfa->sets) refine(set);
  return classes;
}

}  // namespace sluice::prover
