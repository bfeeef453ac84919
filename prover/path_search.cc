#include "prover/path_search.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <deque>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "policy/target.h"

namespace sluice::prover {
namespace {

constexpr uint64_t kMaxSearchItems = 40'000'000;  // node numbers kept, over all open places

// A path is read symbol by symbol: an escape is one symbol of three bytes.
struct Symbol {
  std::string bytes;
  enum class Kind : uint8_t { kPlain, kSlash, kDot, kSemicolon, kEncodedSlash } kind = Kind::kPlain;
};

// Where one reading of the path stands.
struct Reader {
  enum class Segment : uint8_t { kEmpty, kDot, kDotDot, kOther };
  Segment segment = Segment::kEmpty;
  bool skipping = false;  ///< inside ";x"
  bool open = false;      ///< the text read ends in a slash, which the next one joins
  bool operator==(const Reader&) const = default;
};

// The path as it stands, with %2F as a slash, without ";x", and with both: two bits.
constexpr size_t kReadings = 4;
constexpr size_t kAsItStands = 0;
constexpr size_t kSlashesDecoded = 1;
constexpr size_t kParamsDropped = 2;
bool DecodesSlashes(size_t reading) { return (reading & kSlashesDecoded) != 0; }
bool DropsParams(size_t reading) { return (reading & kParamsDropped) != 0; }

struct Place {
  bool begun = false;
  size_t told_apart = 0;  ///< the bits in which readings differ by now: each from its first symbol on
  std::array<Reader, kReadings> readers{};
  bool operator==(const Place&) const = default;
  [[nodiscard]] uint64_t Packed() const {
    uint64_t packed = told_apart << 1 | (begun ? 1 : 0);
    for (const Reader& reader : readers)
      packed = packed << 4 | static_cast<uint64_t>(reader.segment) << 2 | (reader.skipping ? 2u : 0u) | (reader.open ? 1u : 0u);
    return packed;
  }
};

bool IsDots(const Reader& reader) {
  return reader.segment == Reader::Segment::kDot || reader.segment == Reader::Segment::kDotDot;
}

// What tells readings apart from here on that were one before.
size_t Parts(const Place& from, const Symbol& symbol) {
  const size_t bit = symbol.kind == Symbol::Kind::kEncodedSlash ? kSlashesDecoded
                     : symbol.kind == Symbol::Kind::kSemicolon  ? kParamsDropped
                                                                : 0;
  return bit & ~from.told_apart;
}

// What a reading adds to its text.
enum class Emitted : uint8_t { kNothing, kSlash, kSymbol };

// One symbol in one reading: false where the reading then has a dot segment, which no allow matches.
bool Advance(Reader* reader, size_t which, const Symbol& symbol, Emitted* emitted) {
  using Kind = Symbol::Kind;
  *emitted = Emitted::kNothing;
  if (symbol.kind == Kind::kSlash || (symbol.kind == Kind::kEncodedSlash && DecodesSlashes(which))) {
    if (IsDots(*reader)) return false;
    if (!reader->open) *emitted = Emitted::kSlash;
    *reader = {Reader::Segment::kEmpty, false, true};
    return true;
  }
  if (DropsParams(which) && symbol.kind == Kind::kSemicolon) reader->skipping = true;
  if (reader->skipping) return true;
  using Segment = Reader::Segment;
  reader->segment = symbol.kind != Kind::kDot            ? Segment::kOther
                    : reader->segment == Segment::kEmpty ? Segment::kDot
                    : reader->segment == Segment::kDot   ? Segment::kDotDot
                                                         : Segment::kOther;
  reader->open = false;
  *emitted = Emitted::kSymbol;
  return true;
}

bool IsRequestByte(int c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         (c != 0 && std::string_view("-._~:@!$&'()*+,=;/").find(static_cast<char>(c)) != std::string_view::npos);
}

// What stays escaped in the form that rules compare.
bool IsEscapedByte(int c) { return c >= 0x20 && c != 0x7f && c != '\\' && (c == ';' || c == '/' || !IsRequestByte(c)); }

Symbol::Kind KindOf(char c) {
  if (c == '/') return Symbol::Kind::kSlash;
  if (c == '.') return Symbol::Kind::kDot;
  return c == ';' ? Symbol::Kind::kSemicolon : Symbol::Kind::kPlain;
}

// Every symbol of a universe: letters, digits, then the rest, escapes last.
std::vector<Symbol> AllSymbols(Universe universe) {
  std::vector<Symbol> symbols;
  const bool request = universe == Universe::kRequestPath;
  const auto add = [&](int c) {
    const char byte = static_cast<char>(c);
    Symbol symbol{std::string(1, byte), KindOf(byte)};
    if (!request && symbol.kind == Symbol::Kind::kSemicolon) symbol.kind = Symbol::Kind::kPlain;
    if (!request || IsRequestByte(c)) symbols.push_back(std::move(symbol));
  };
  for (int c = 'a'; c <= 'z'; ++c) add(c);
  for (int c = '0'; c <= '9'; ++c) add(c);
  for (int c = 'A'; c <= 'Z'; ++c) add(c);
  add('/');
  for (int c = 1; c < 256; ++c)
    if (!isalnum(c) && c != '/') add(c);
  if (!request) return symbols;
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (unsigned c = 0x20; c < 256; ++c)
    if (IsEscapedByte(static_cast<int>(c)))
      symbols.push_back({{'%', kHex[c >> 4], kHex[c & 15]}, c == '/' ? Symbol::Kind::kEncodedSlash : Symbol::Kind::kPlain});
  return symbols;
}

// One symbol of each kind that the patterns tell apart.
std::vector<const Symbol*> SymbolsOf(const PathQuestion& question) {
  static const std::vector<Symbol> kRequest = AllSymbols(Universe::kRequestPath);
  static const std::vector<Symbol> kSocket = AllSymbols(Universe::kSocketPath);
  std::vector<const Nfa*> patterns;
  for (const auto* list : {&question.inside, &question.outside})
    for (const PathPattern* pattern : *list) patterns.push_back(&pattern->nfa);
  const ByteClasses classes = ClassesOf(patterns, {});
  std::unordered_set<uint64_t> seen;
  std::vector<const Symbol*> kept;
  for (const Symbol& symbol : question.universe == Universe::kRequestPath ? kRequest : kSocket) {
    if (symbol.kind == Symbol::Kind::kSemicolon && !question.path_params) continue;
    if (symbol.kind == Symbol::Kind::kEncodedSlash && !question.encoded_slash) continue;
    auto key = static_cast<uint64_t>(symbol.kind) + 1;
    for (const char c : symbol.bytes) key = key << 16 | (classes.of[static_cast<unsigned char>(c)] + 1u);
    if (seen.insert(key).second) kept.push_back(&symbol);
  }
  return kept;
}

// A node of a pattern in one reading.
using Item = uint64_t;
Item Pack(size_t pattern, size_t reading, NodeId node) { return Item{pattern} << 40 | Item{reading} << 36 | node; }
size_t PatternOf(Item item) { return static_cast<size_t>(item >> 40); }
size_t ReadingOf(Item item) { return static_cast<size_t>(item >> 36 & 15); }
NodeId NodeOf(Item item) { return static_cast<NodeId>(item); }

using Items = std::vector<Item>;  ///< sorted

struct ItemsHash {
  size_t operator()(const Items& items) const noexcept {
    size_t hash = items.size();
    for (const Item item : items) hash = (hash ^ item) * 0x9e3779b97f4a7c15u + (hash >> 31);
    return hash;
  }
};

// Where the nodes of one pattern lead by each text that a reading may add, kept: the same is asked at every place.
class Moves {
 public:
  Moves(const Nfa& nfa, size_t texts) : nfa_(&nfa), texts_(texts), known_(nfa.nodes.size()) {}

  [[nodiscard]] const std::vector<NodeId>& Of(NodeId node, size_t number, std::string_view text) {
    auto& row = known_[node];
    if (row.empty()) row.resize(texts_);
    if (!row[number]) row[number] = After(node, text);
    return *row[number];
  }

 private:
  [[nodiscard]] std::vector<NodeId> After(NodeId node, std::string_view text) const {
    std::vector<NodeId> now{node};
    for (const char c : text) {
      std::vector<NodeId> next;
      for (const NodeId from : now)
        for (const Nfa::Edge& edge : nfa_->nodes[from].edges)
          if (edge.on[static_cast<unsigned char>(c)])
            next.insert(next.end(), nfa_->nodes[edge.to].closure.begin(), nfa_->nodes[edge.to].closure.end());
      std::sort(next.begin(), next.end());
      next.erase(std::unique(next.begin(), next.end()), next.end());
      now = std::move(next);
    }
    return now;
  }

  const Nfa* nfa_;
  size_t texts_;
  std::vector<std::vector<std::optional<std::vector<NodeId>>>> known_;  ///< by node, then by the text's number
};

class Search {
 public:
  Search(const PathQuestion& question, Budget* budget) : question_(question), budget_(budget), symbols_(SymbolsOf(question)) {
    for (const PathPattern* pattern : question.inside) inside_moves_.emplace_back(pattern->nfa, symbols_.size() + 1);
    for (const PathPattern* pattern : question.outside) outside_moves_.emplace_back(pattern->nfa, symbols_.size() + 1);
  }

  std::optional<std::string> Run() {
    Start();
    // By how long the whole path is at least, which no symbol makes less, so the buckets are visited in order.
    for (size_t least = 0; least < buckets_.size(); ++least) {
      for (size_t i = 0; i < buckets_[least].size(); ++i) {
        const uint32_t at = buckets_[least][i];
        if (open_[at].dropped) continue;
        if (Accepts(open_[at])) return TextOf(at);
        Expand(at, LengthOf(at));
        if (budget_->exhausted()) return std::nullopt;
      }
    }
    return std::nullopt;
  }

 private:
  struct Open {
    Place place{};
    Items inside{};   ///< one node of each pattern of `inside`
    Items outside{};  ///< every node that the path reaches in a pattern of `outside`
    uint32_t parent = 0;
    uint32_t symbol = 0;
    bool dropped = false;  ///< another way that is outside at least as much
  };

  [[nodiscard]] const PathPattern& InsideOf(Item item) const { return *question_.inside[PatternOf(item)]; }
  [[nodiscard]] const Nfa::Node& OutsideNode(Item item) const {
    return question_.outside[PatternOf(item)]->nfa.nodes[NodeOf(item)];
  }
  [[nodiscard]] bool ReadsWide(const PathPattern& pattern) const {
    return pattern.reading == Reading::kWide && question_.universe == Universe::kRequestPath &&
           (question_.encoded_slash || question_.path_params);
  }

  // Whether no way on leaves the pattern again: one that takes no %2F could still be left by it.
  [[nodiscard]] bool Absorbs(Item item) const {
    const PathPattern& pattern = *question_.outside[PatternOf(item)];
    const bool takes_all = pattern.reading == Reading::kWide || ((pattern.encoded_slash || !question_.encoded_slash) &&
                                                                 (pattern.path_params || !question_.path_params));
    return takes_all && OutsideNode(item).absorbs;
  }

  // All readings are one until a symbol tells them apart, so only that one is followed until then.
  void Start() {
    Open first;
    for (size_t p = 0; p < question_.outside.size(); ++p)
      for (const NodeId node : question_.outside[p]->nfa.start) first.outside.push_back(Pack(p, kAsItStands, node));
    std::vector<Items> choices;
    for (size_t p = 0; p < question_.inside.size(); ++p) {
      choices.emplace_back();
      for (const NodeId node : question_.inside[p]->nfa.start) choices.back().push_back(Pack(p, kAsItStands, node));
    }
    AddEach(std::move(first), choices, 0);
  }

  // Every combination of one node of each pattern.
  void AddEach(Open open, const std::vector<Items>& choices, size_t length) {
    std::vector<size_t> at(choices.size(), 0);
    for (const Items& list : choices)
      if (list.empty()) return;
    while (true) {
      open.inside.clear();
      for (size_t p = 0; p < choices.size(); ++p) open.inside.push_back(choices[p][at[p]]);
      Add(open, length);
      size_t p = 0;
      while (p < choices.size() && ++at[p] == choices[p].size()) at[p++] = 0;
      if (p == choices.size()) return;
    }
  }

  // Most are known already, so nothing is copied before that is clear.
  void Add(const Open& open, size_t length) {
    key_ = open.inside;
    key_.push_back(open.place.Packed());
    std::vector<uint32_t>& rivals = seen_[key_];
    if (!budget_->Spend(1 + rivals.size() / 4)) return;
    for (const uint32_t rival : rivals)
      if (std::includes(open.outside.begin(), open.outside.end(), open_[rival].outside.begin(), open_[rival].outside.end()))
        return;
    std::erase_if(rivals, [&](uint32_t rival) {
      Open& other = open_[rival];
      if (!std::includes(other.outside.begin(), other.outside.end(), open.outside.begin(), open.outside.end())) return false;
      if (LengthOf(rival) < length) return false;
      return other.dropped = true;
    });
    rivals.push_back(static_cast<uint32_t>(open_.size()));
    items_ += open.outside.size() + open.inside.size() + 8;
    if (items_ > kMaxSearchItems) budget_->Exhaust("the paths of one host combine in too many ways");
    const size_t least = length + Far(open);
    if (buckets_.size() <= least) buckets_.resize(least + 1);
    buckets_[least].push_back(static_cast<uint32_t>(open_.size()));
    lengths_.push_back(static_cast<uint32_t>(length));
    open_.push_back(open);
  }
  // What every pattern of `inside` still needs.
  [[nodiscard]] uint32_t Far(const Open& open) const {
    uint32_t far = 0;
    for (const Item item : open.inside) far = std::max(far, InsideOf(item).nfa.nodes[NodeOf(item)].far);
    return far;
  }
  [[nodiscard]] size_t LengthOf(uint32_t at) const { return lengths_[at]; }

  [[nodiscard]] bool Accepts(const Open& open) const {
    if (!open.place.begun) return false;
    if (question_.universe == Universe::kSocketPath) {
      if (IsDots(open.place.readers[kAsItStands]) || open.place.readers[kAsItStands].open) return false;
    } else if (std::any_of(open.place.readers.begin(), open.place.readers.end(), IsDots)) {
      return false;
    }
    return std::all_of(open.inside.begin(), open.inside.end(),
                       [&](Item item) { return InsideOf(item).nfa.nodes[NodeOf(item)].accepts; }) &&
           std::none_of(open.outside.begin(), open.outside.end(), [&](Item item) { return OutsideNode(item).accepts; });
  }

  // The next place, and what each reading takes in; false where no canonical path goes on so.
  bool Next(const Place& from, const Symbol& symbol, Place* to, std::array<Emitted, kReadings>* emitted) const {
    *to = from;
    if (!from.begun && symbol.kind != Symbol::Kind::kSlash) return false;
    if (from.begun && symbol.kind == Symbol::Kind::kSlash && from.readers[kAsItStands].open) return false;
    to->begun = true;
    to->told_apart |= Parts(from, symbol);
    const size_t readings = question_.universe == Universe::kRequestPath ? kReadings : 1;
    for (size_t r = 0; r < readings; ++r)
      if (!Advance(&to->readers[r], r, symbol, &(*emitted)[r])) return false;
    return true;
  }

  void StepNode(Moves* moves, Item item, uint32_t symbol, Emitted emitted, Items* out) const {
    if (emitted == Emitted::kNothing) return out->push_back(item);
    const bool slash = emitted == Emitted::kSlash;
    for (const NodeId node : moves->Of(NodeOf(item), slash ? symbols_.size() : symbol, slash ? "/" : symbols_[symbol]->bytes))
      out->push_back(Pack(PatternOf(item), ReadingOf(item), node));
  }

  static bool Takes(const PathPattern& pattern, const Symbol& symbol) {
    if (pattern.reading == Reading::kWide) return true;
    return (pattern.encoded_slash || symbol.kind != Symbol::Kind::kEncodedSlash) &&
           (pattern.path_params || symbol.kind != Symbol::Kind::kSemicolon);
  }

  // One node, in the reading that it stands for and, where `parts` tells another apart from that, in the other.
  void Step(const PathPattern& pattern, Moves* moves, Item item, uint32_t symbol, size_t parts,
            const std::array<Emitted, kReadings>& emitted, Items* out) const {
    if (!Takes(pattern, *symbols_[symbol])) return;
    StepNode(moves, item, symbol, emitted[ReadingOf(item)], out);
    if (parts == 0 || !ReadsWide(pattern)) return;
    const Item other = item | Pack(0, parts, 0);
    StepNode(moves, other, symbol, emitted[ReadingOf(other)], out);
  }

  // Whether some pattern of `inside` plainly has no way on by the symbol, which no reading takes for another.
  [[nodiscard]] bool IsNoWay(const Open& open, uint32_t symbol) {
    if (open.place.told_apart != 0 || Parts(open.place, *symbols_[symbol]) != 0) return false;
    return std::any_of(open.inside.begin(), open.inside.end(), [&](Item item) {
      return inside_moves_[PatternOf(item)].Of(NodeOf(item), symbol, symbols_[symbol]->bytes).empty();
    });
  }

  void Expand(uint32_t at, size_t length) {
    for (uint32_t s = 0; s < symbols_.size(); ++s) {
      if (!budget_->Spend(1 + open_[at].outside.size() / 4)) return;
      if (IsNoWay(open_[at], s)) continue;
      const Symbol& symbol = *symbols_[s];
      Open next;
      std::array<Emitted, kReadings> emitted{};
      if (!Next(open_[at].place, symbol, &next.place, &emitted)) continue;
      const size_t parts = Parts(open_[at].place, symbol);
      std::vector<Items> choices;
      bool alive = true;
      for (const Item item : open_[at].inside) {
        choices.emplace_back();
        Step(InsideOf(item), &inside_moves_[PatternOf(item)], item, s, parts, emitted, &choices.back());
        alive = alive && !choices.back().empty();
      }
      if (!alive) continue;
      for (const Item item : open_[at].outside)
        Step(*question_.outside[PatternOf(item)], &outside_moves_[PatternOf(item)], item, s, parts, emitted, &next.outside);
      std::sort(next.outside.begin(), next.outside.end());
      next.outside.erase(std::unique(next.outside.begin(), next.outside.end()), next.outside.end());
      if (std::any_of(next.outside.begin(), next.outside.end(), [&](Item item) { return Absorbs(item); })) continue;
      next.parent = at;
      next.symbol = s;
      AddEach(std::move(next), choices, length + symbol.bytes.size());
      if (budget_->exhausted()) return;
    }
  }

  [[nodiscard]] std::string TextOf(uint32_t at) const {
    std::vector<uint32_t> symbols;
    for (; LengthOf(at) > 0; at = open_[at].parent) symbols.push_back(open_[at].symbol);
    std::string text;
    for (size_t i = symbols.size(); i-- > 0;) text += symbols_[symbols[i]]->bytes;
    return text;
  }

  const PathQuestion& question_;
  Budget* budget_;
  std::vector<const Symbol*> symbols_;
  std::vector<Moves> inside_moves_;  ///< by pattern
  std::vector<Moves> outside_moves_;
  Items key_{};
  std::deque<Open> open_;
  std::vector<uint32_t> lengths_;
  std::vector<std::vector<uint32_t>> buckets_;
  std::unordered_map<Items, std::vector<uint32_t>, ItemsHash> seen_;
  uint64_t items_ = 0;
};

}  // namespace

std::optional<std::string> ShortestPath(const PathQuestion& question, Budget* budget) {
  if (budget->exhausted()) return std::nullopt;
  return Search(question, budget).Run();
}

}  // namespace sluice::prover
