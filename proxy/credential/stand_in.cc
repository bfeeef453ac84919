#include "proxy/credential/stand_in.h"

#include <algorithm>
#include <array>

#include "proxy/credential/encoding.h"
#include "proxy/credential/secret.h"

namespace sluice::proxy {
namespace {

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
constexpr size_t kMaxPrefix = 64;
// What issuers say their tokens begin with. A longer one stands before one that it begins with.
constexpr auto kUsualPrefixes = std::to_array<std::string_view>(
    {"sk-ant-api03-", "sk-ant-",  "sk-proj-", "sk-or-v1-", "sk-",   "github_pat_", "ghp_",    "gho_",  "ghu_",   "ghs_",
     "ghr_",          "glpat-",   "gldt-",    "xoxb-",     "xoxp-", "xapp-",       "npm_",    "pypi-", "hf_",    "sk_live_",
     "sk_test_",      "rk_live_", "rk_test_", "AKIA",      "ASIA",  "AIza",        "dop_v1_", "SG.",   "shpat_", "lin_api_",
     "ntn_",          "r8_",      "gsk_",     "xai-",      "pplx-", "tvly-",       "key-"});

struct Hit {
  size_t at = std::string_view::npos;
  const Swap* swap = nullptr;
};

Hit FirstHit(std::string_view text, size_t from, std::span<const Swap> swaps) {
  Hit best;
  for (const Swap& swap : swaps) {
    const size_t at = text.find(swap.from, from);
    if (at == std::string_view::npos) continue;
    if (best.swap == nullptr || at < best.at || (at == best.at && swap.from.size() > best.swap->from.size())) best = {at, &swap};
  }
  return best;
}

// Where a stand-in could begin that `text` does not end: there a longer one may follow, too.
size_t Undecided(std::string_view text, std::span<const Swap> swaps) {
  size_t longest = 0;
  for (const Swap& swap : swaps) longest = std::max(longest, swap.from.size());
  for (size_t at = text.size() - std::min(text.size(), longest == 0 ? 0 : longest - 1); at < text.size(); ++at) {
    const std::string_view rest = text.substr(at);
    for (const Swap& swap : swaps)
      if (swap.from.size() > rest.size() && std::string_view(swap.from).starts_with(rest)) return at;
  }
  return text.size();
}

// "Basic dXNlcjpwYXNz" in its two parts, the second without blanks around it.
struct Scheme {
  std::string_view name;
  std::string_view rest;
};
Scheme SplitScheme(std::string_view value) {
  const size_t blank = value.find(' ');
  if (blank == std::string_view::npos) return {value, {}};
  std::string_view rest = value.substr(blank);
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  return {value.substr(0, blank), rest};
}

std::vector<Swap> Encoded(std::span<const Swap> swaps, std::string (*encode)(std::string_view)) {
  std::vector<Swap> out;
  out.reserve(swaps.size());
  for (const Swap& swap : swaps) out.push_back({swap.from, encode(swap.to)});
  return out;
}

std::string PercentEncodeAll(std::string_view text) { return PercentEncode(text); }

void WipeAll(std::vector<Swap>* swaps) {
  for (Swap& swap : *swaps) Wipe(&swap.to);
}

bool Holds(std::string_view text, std::span<const Swap> swaps) {
  return std::ranges::any_of(swaps, [&](const Swap& swap) { return text.contains(swap.from); });
}

bool SwapField(std::span<const Swap> swaps, Field* field, OutgoingHead* head) {
  if (Holds(field->value, swaps)) {
    field->value = head->Keep(SwapAll(field->value, swaps));
    return true;
  }
  const Scheme scheme = SplitScheme(field->value);
  if (!EqualsLower(scheme.name, "basic")) return false;
  std::optional<std::string> pair = Base64Decode(scheme.rest);
  if (!pair || !Holds(*pair, swaps)) return false;
  std::string swapped = SwapAll(*pair, swaps);
  field->value = head->Keep("Basic " + Base64Encode(swapped));
  Wipe(&swapped);
  return true;
}

std::optional<size_t> FindIn(std::string_view text, std::span<const std::string> stand_ins) {
  for (size_t i = 0; i < stand_ins.size(); ++i)
    if (text.contains(stand_ins[i])) return i;
  return std::nullopt;
}

std::optional<size_t> FindDecoded(std::string_view text, std::span<const std::string> stand_ins) {
  if (auto found = FindIn(text, stand_ins)) return found;
  if (text.contains('%')) return FindIn(PercentDecode(text, Plus::kLiteral), stand_ins);
  return std::nullopt;
}

}  // namespace

std::string_view UsualPrefix(std::string_view secret) {
  const auto found = std::ranges::find_if(kUsualPrefixes, [&](std::string_view prefix) { return secret.starts_with(prefix); });
  return found == kUsualPrefixes.end() ? std::string_view{} : *found;
}

bool IsStandInPrefix(std::string_view prefix) { return prefix.size() <= kMaxPrefix && PercentEncode(prefix) == prefix; }

std::string MakeStandIn(std::string_view prefix, size_t secret_bytes, std::span<const uint8_t> random) {
  const size_t length = std::clamp(secret_bytes, prefix.size() + kStandInRandom, kMaxStandInBytes);
  std::string text(prefix);
  // 62 does not divide 256: what lies above the last multiple is passed over, and 4 of 256 are few enough to run out of none.
  for (size_t at = 0; text.size() < length; ++at) {
    const uint8_t octet = random[at % random.size()];
    if (octet < 248) text.push_back(kLetters[octet % 62]);
    if (at > 4 * random.size()) break;
  }
  return text;
}

BodyForm BodyFormOf(std::string_view content_type) {
  std::string type = LowerCase(content_type.substr(0, content_type.find(';')));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.pop_back();
  if (type == "application/x-www-form-urlencoded") return BodyForm::kForm;
  if (type == "application/json" || type.ends_with("+json") || type == "application/x-ndjson" || type == "application/jsonl" ||
      type == "text/json")
    return BodyForm::kJson;
  if (type == "multipart/form-data" || type == "text/plain") return BodyForm::kVerbatim;
  return BodyForm::kOther;
}

std::vector<Swap> SwapsFor(std::span<const Swap> swaps, BodyForm form) {
  switch (form) {
    case BodyForm::kOther:
      return {};
    case BodyForm::kVerbatim:
      return {swaps.begin(), swaps.end()};
    case BodyForm::kForm:
      return Encoded(swaps, PercentEncodeAll);
    case BodyForm::kJson:
      return Encoded(swaps, JsonEscape);
  }
  return {};
}

bool KeepsLength(std::span<const Swap> swaps) {
  return std::ranges::all_of(swaps, [](const Swap& swap) { return swap.from.size() == swap.to.size(); });
}

std::string SwapAll(std::string_view text, std::span<const Swap> swaps) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  for (Hit hit = FirstHit(text, 0, swaps); hit.swap != nullptr; hit = FirstHit(text, at, swaps)) {
    out += text.substr(at, hit.at - at);
    out += hit.swap->to;
    at = hit.at + hit.swap->from.size();
  }
  out += text.substr(at);
  return out;
}

StreamSwapper::~StreamSwapper() { WipeAll(&swaps_); }

void StreamSwapper::Push(std::string_view piece, std::string* out) {
  std::string joined;
  std::string_view text = piece;
  if (!held_.empty()) {
    joined = held_;
    joined += piece;
    text = joined;
  }
  size_t settled = Undecided(text, swaps_);
  size_t at = 0;
  for (Hit hit = FirstHit(text, 0, swaps_); hit.swap != nullptr && hit.at < settled; hit = FirstHit(text, at, swaps_)) {
    out->append(text, at, hit.at - at);
    out->append(hit.swap->to);
    at = hit.at + hit.swap->from.size();
    // What was held back may belong to this one; the rest behind it is looked at anew.
    if (at > settled) settled = at + Undecided(text.substr(at), swaps_);
  }
  out->append(text, at, settled - at);
  held_.assign(text.substr(settled));
}

void StreamSwapper::Finish(std::string* out) {
  *out += SwapAll(held_, swaps_);
  held_.clear();
}

bool SwapHead(std::span<const Swap> swaps, OutgoingHead* head) {
  bool any = false;
  for (Field& field : head->fields) any = SwapField(swaps, &field, head) || any;
  if (Holds(head->target, swaps)) {
    std::vector<Swap> encoded = Encoded(swaps, PercentEncodeAll);
    head->target = SwapAll(head->target, encoded);
    WipeAll(&encoded);
    any = true;
  }
  return any;
}

std::optional<size_t> StandInScanner::Push(std::string_view piece) {
  size_t longest = 0;
  for (const std::string& text : stand_ins_) longest = std::max(longest, text.size());
  if (longest == 0) return std::nullopt;
  if (!tail_.empty()) {
    // Across the border: what was held, and as much of the piece as one stand-in may reach into.
    tail_ += piece.substr(0, longest - 1);
    if (auto found = FindIn(tail_, stand_ins_)) return found;
  }
  if (auto found = FindIn(piece, stand_ins_)) return found;
  if (piece.size() >= longest - 1) {
    tail_.assign(piece.substr(piece.size() - (longest - 1)));
  } else if (tail_.empty()) {
    tail_.assign(piece);
  } else if (tail_.size() > longest - 1) {
    tail_.erase(0, tail_.size() - (longest - 1));
  }
  return std::nullopt;
}

std::optional<size_t> FindStandIn(std::span<const std::string> stand_ins, std::span<const Field> fields,
                                  std::string_view target) {
  if (stand_ins.empty()) return std::nullopt;
  for (const Field& field : fields) {
    if (auto found = FindDecoded(field.value, stand_ins)) return found;
    const Scheme scheme = SplitScheme(field.value);
    if (scheme.rest.empty()) continue;
    const std::optional<std::string> inside = Base64Decode(scheme.rest);
    if (!inside) continue;
    if (auto found = FindIn(*inside, stand_ins)) return found;
  }
  return FindDecoded(target, stand_ins);
}

}  // namespace sluice::proxy
