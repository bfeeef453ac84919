#include "prover/string_atoms.h"

#include <algorithm>
#include <array>
#include <queue>
#include <string_view>
#include <unordered_map>

namespace sluice::prover {
namespace {

constexpr uint8_t kNowhere = 0xff;
constexpr uint32_t kNone = UINT32_MAX;
constexpr size_t kMaxLabel = 63;
constexpr size_t kMaxValue = 4096;
constexpr size_t kMaxAtomStates = 200'000;

bool IsDigit(uint8_t c) { return c >= '0' && c <= '9'; }
bool IsHexDigit(uint8_t c) { return IsDigit(c) || (c >= 'a' && c <= 'f'); }
bool IsLabelByte(uint8_t c) { return IsDigit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '_'; }

// Places in a label: 0 nothing yet, 1 something that is no number; of the last one also 2 "0", 3 digits, 4 "0x…".
uint8_t LabelStep(uint8_t place, uint8_t byte, bool top) {
  if (!IsLabelByte(byte)) return kNowhere;
  if (!top || place == 1) return 1;
  if (place == 0) return byte == '0' ? 2 : IsDigit(byte) ? 3 : 1;
  if (place == 2 && byte == 'x') return 4;
  if (place == 4) return IsHexDigit(byte) ? 4 : 1;
  return IsDigit(byte) ? 3 : 1;
}

// Places in a file's path: 0 nothing, 1 after a slash, 2 ".", 3 "..", 4 a name.
uint8_t FileStep(uint8_t place, uint8_t byte) {
  if (byte == 0) return kNowhere;
  if (place == 0) return byte == '/' ? 1 : kNowhere;
  if (byte == '/') return place == 4 ? 1 : kNowhere;
  if (byte == '.') return place == 1 ? 2 : place == 2 ? 3 : 4;
  return 4;
}

uint8_t HeaderStep(uint8_t place, uint8_t byte) {
  const bool space = byte == ' ' || byte == '\t';
  if (!space && (byte < 0x20 || byte == 0x7f)) return kNowhere;
  if (space) return place == 0 ? kNowhere : 2;
  return 1;
}

uint8_t LanguageStep(Language language, uint8_t place, uint8_t byte) {
  switch (language) {
    case Language::kLabel:
      return LabelStep(place, byte, false);
    case Language::kTopLabel:
      return LabelStep(place, byte, true);
    case Language::kExecutable:
      return FileStep(place, byte);
    case Language::kQueryValue:
      return 0;
    case Language::kHeaderValue:
      return HeaderStep(place, byte);
  }
  return kNowhere;
}

bool MayEnd(Language language, uint8_t place) {
  switch (language) {
    case Language::kLabel:
    case Language::kTopLabel:
      return place == 1;
    case Language::kExecutable:
      return place == 4;
    case Language::kQueryValue:
      return true;
    case Language::kHeaderValue:
      return place != 2;
  }
  return false;
}

size_t LongestOf(Language language) {
  return language == Language::kLabel || language == Language::kTopLabel ? kMaxLabel : kMaxValue;
}

// What the language tells apart.
std::vector<ByteSet> MakeLanguageSets(Language language) {
  std::vector<ByteSet> sets(8);
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto b = static_cast<uint8_t>(byte);
    sets[0][byte] = LanguageStep(language, language == Language::kExecutable ? 1 : 0, b) != kNowhere;
    sets[1][byte] = language == Language::kTopLabel && IsDigit(b);
    sets[2][byte] = language == Language::kTopLabel && b == '0';
    sets[3][byte] = language == Language::kTopLabel && b == 'x';
    sets[4][byte] = language == Language::kTopLabel && IsHexDigit(b);
    sets[5][byte] = b == '/' && language == Language::kExecutable;
    sets[6][byte] = b == '.' && language == Language::kExecutable;
    sets[7][byte] = language == Language::kHeaderValue && (b == ' ' || b == '\t');
  }
  return sets;
}

const std::vector<ByteSet>& LanguageSets(Language language) {
  static const std::array<std::vector<ByteSet>, 5> kSets{
      MakeLanguageSets(Language::kLabel), MakeLanguageSets(Language::kTopLabel), MakeLanguageSets(Language::kExecutable),
      MakeLanguageSets(Language::kQueryValue), MakeLanguageSets(Language::kHeaderValue)};
  return kSets[static_cast<size_t>(language)];
}

// Letters before digits before the rest: what a person reads easily.
int Preference(uint8_t c) {
  if (c >= 'a' && c <= 'z') return c - 'a';
  if (IsDigit(c)) return 30 + c - '0';
  if (c >= 'A' && c <= 'Z') return 50 + c - 'A';
  if (std::string_view("-_.~/").find(static_cast<char>(c)) != std::string_view::npos) return 80;
  return c > 0x20 && c < 0x7f ? 100 + c : 300 + c;
}

std::vector<uint8_t> BytesByPreference() {
  std::vector<uint8_t> bytes;
  for (unsigned byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<uint8_t>(byte));
  std::sort(bytes.begin(), bytes.end(), [](uint8_t a, uint8_t b) { return Preference(a) < Preference(b); });
  return bytes;
}

std::vector<std::vector<uint8_t>> OrderedClasses(const ByteClasses& classes) {
  static const std::vector<uint8_t> kBytes = BytesByPreference();
  std::vector<size_t> place(classes.count, SIZE_MAX);
  std::vector<std::vector<uint8_t>> members;
  for (const uint8_t byte : kBytes) {
    size_t& at = place[classes.of[byte]];
    if (at == SIZE_MAX) {
      at = members.size();
      members.emplace_back();
    }
    members[at].push_back(byte);
  }
  return members;
}

}  // namespace

bool InLanguage(Language language, std::string_view text) {
  uint8_t place = 0;
  for (const char c : text) {
    place = LanguageStep(language, place, static_cast<uint8_t>(c));
    if (place == kNowhere) return false;
  }
  return text.size() <= LongestOf(language) && MayEnd(language, place);
}

size_t StringAtoms::StateHash::operator()(const State& state) const noexcept {
  size_t hash = state.place;
  for (const uint64_t item : state.inside) hash = (hash ^ item) * 0x9e3779b97f4a7c15u + (hash >> 31);
  return hash;
}

StringAtoms::StringAtoms(std::vector<const Nfa*> patterns, Language language, Budget* budget)
    : patterns_(std::move(patterns)), language_(language) {
  classes_ = OrderedClasses(ClassesOf(patterns_, LanguageSets(language)));
  Explore(budget);
}

StringAtoms::State StringAtoms::Step(const State& from, uint8_t byte) const {
  State to;
  to.place = LanguageStep(language_, from.place, byte);
  if (to.place == kNowhere) return to;
  for (const uint64_t item : from.inside) {
    const uint64_t pattern = item >> 32;
    const Nfa& nfa = *patterns_[pattern];
    for (const Nfa::Edge& edge : nfa.nodes[static_cast<NodeId>(item)].edges)
      if (edge.on[byte])
        for (const NodeId node : nfa.nodes[edge.to].closure) to.inside.push_back(pattern << 32 | node);
  }
  std::sort(to.inside.begin(), to.inside.end());
  to.inside.erase(std::unique(to.inside.begin(), to.inside.end()), to.inside.end());
  return to;
}

uint32_t StringAtoms::AtomOf(const State& state) {
  if (!MayEnd(language_, state.place)) return kNone;
  std::vector<uint32_t> signature;
  for (const uint64_t item : state.inside) {
    const auto pattern = static_cast<uint32_t>(item >> 32);
    if (patterns_[pattern]->nodes[static_cast<NodeId>(item)].accepts && (signature.empty() || signature.back() != pattern))
      signature.push_back(pattern);
  }
  const auto [at, fresh] = signatures_.try_emplace(std::move(signature), static_cast<uint32_t>(shortest_.size()));
  if (fresh) shortest_.push_back(kNone);
  return at->second;
}

// Breadth first, so that the first state of an atom has its shortest text.
void StringAtoms::Explore(Budget* budget) {
  std::unordered_map<State, uint32_t, StateHash> numbers;
  std::vector<State> states(1);
  for (size_t p = 0; p < patterns_.size(); ++p)
    for (const NodeId node : patterns_[p]->start) states[0].inside.push_back(uint64_t{p} << 32 | node);
  numbers.emplace(states[0], 0);
  found_.emplace_back();
  for (uint32_t i = 0; i < states.size(); ++i) {
    if (states.size() > kMaxAtomStates) budget->Exhaust("the globs of one field combine in too many ways");
    if (!budget->Spend(1 + (classes_.size() * (1 + states[i].inside.size())) / 8)) return;
    const uint32_t atom = AtomOf(states[i]);
    found_[i].atom = atom;
    if (atom != kNone && shortest_[atom] == kNone) shortest_[atom] = i;
    found_[i].next.assign(classes_.size(), kNone);
    if (found_[i].length >= LongestOf(language_)) continue;
    for (size_t c = 0; c < classes_.size(); ++c) {
      State next = Step(states[i], classes_[c][0]);
      if (next.place == kNowhere) continue;
      const auto [at, fresh] = numbers.try_emplace(next, static_cast<uint32_t>(states.size()));
      found_[i].next[c] = at->second;
      if (!fresh) continue;
      states.push_back(std::move(next));
      found_.push_back({i, classes_[c][0], found_[i].length + 1});
    }
  }
}

std::string StringAtoms::TextOf(uint32_t state) const {
  std::string text;
  for (; found_[state].length > 0; state = found_[state].parent) text += static_cast<char>(found_[state].byte);
  std::reverse(text.begin(), text.end());
  return text;
}

// The shortest text is taken: the others in order of length, along the distances to where the atom's texts end.
std::string StringAtoms::Outside(uint32_t atom, const Steps& before, const std::unordered_set<std::string>& excluded,
                                 Budget* budget) const {
  if (!budget->Spend(1 + found_.size() / 16)) return "";
  std::vector<uint32_t> distance(found_.size(), kNone);
  std::vector<uint32_t> ring;
  for (uint32_t i = 0; i < found_.size(); ++i) {
    if (found_[i].atom != atom) continue;
    distance[i] = 0;
    ring.push_back(i);
  }
  for (size_t i = 0; i < ring.size(); ++i)
    for (const uint32_t from : before[ring[i]])
      if (distance[from] == kNone) {
        distance[from] = distance[ring[i]] + 1;
        ring.push_back(from);
      }
  struct Open {
    size_t whole;
    std::string text;
    uint32_t state;
    uint64_t order;                            // classes and their members come in order of preference
    bool operator<(const Open& other) const {  // the queue gives the greatest
      if (whole != other.whole) return whole > other.whole;
      if (text.size() != other.text.size()) return text.size() < other.text.size();
      return order > other.order;
    }
  };
  uint64_t order = 0;
  std::priority_queue<Open> queue;
  if (distance[0] != kNone) queue.push({distance[0], "", 0, order});
  while (!queue.empty() && budget->Spend(4)) {
    const Open open = queue.top();
    queue.pop();
    if (distance[open.state] == 0 && open.whole == open.text.size() && !excluded.contains(open.text)) return open.text;
    for (size_t c = 0; c < classes_.size(); ++c) {
      const uint32_t next = found_[open.state].next[c];
      if (next == kNone || distance[next] == kNone) continue;
      const size_t whole = open.text.size() + 1 + distance[next];
      if (whole > LongestOf(language_)) continue;
      for (const uint8_t byte : classes_[c]) queue.push({whole, open.text + static_cast<char>(byte), next, ++order});
    }
  }
  return "";
}

std::vector<std::string> StringAtoms::Members(const std::unordered_set<std::string>& excluded, Budget* budget) const {
  std::vector<std::string> members;
  if (budget->exhausted()) return members;
  Steps before(excluded.empty() ? 0 : found_.size());
  for (uint32_t i = 0; i < before.size(); ++i)
    for (const uint32_t next : found_[i].next)
      if (next != kNone) before[next].push_back(i);
  for (uint32_t atom = 0; atom < shortest_.size(); ++atom) {
    std::string text = TextOf(shortest_[atom]);
    if (excluded.contains(text)) {
      text = Outside(atom, before, excluded, budget);
      if (text.empty()) continue;
    }
    members.push_back(std::move(text));
  }
  std::sort(members.begin(), members.end(), ShorterFirst);
  return members;
}

}  // namespace sluice::prover
