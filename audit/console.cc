#include "audit/console.h"

#include <fmt/format.h>

#include <algorithm>

#include "audit/text.h"

namespace sluice::audit {
namespace {

using policy::EventLayer;

constexpr size_t kMaxSubject = 200;  ///< characters
constexpr size_t kMaxWord = 40;      ///< of a host-independent word: a method, a process name
constexpr size_t kMaxSuggest = 400;  ///< a longer one is not shown: cut, it would be another rule
constexpr size_t kMaxSentence = 300;
constexpr std::string_view kInfoRefs = "/info/refs";
constexpr size_t kShownAncestors = 4;
constexpr size_t kMaxEntries = 256;
constexpr std::chrono::seconds kWindow{5};
constexpr uint64_t kQuietLookups = 1;  ///< every client asks for A and AAAA: the second is no repeat
constexpr double kLinesPerSecond = 20;
constexpr double kBurst = 40;
constexpr int kIdColumn = 69;

std::string HostPort(const policy::EventTarget& target) {
  std::string host = Redact(target.host);
  if (host.empty() && target.address)
    host = target.address->is_v4() || target.port == 0 ? target.address->ToString() : "[" + target.address->ToString() + "]";
  return target.port == 0 ? host : fmt::format("{}:{}", host, target.port);
}

std::string Url(const policy::EventTarget& target) {
  const bool usual = (target.scheme == "https" && target.port == 443) || (target.scheme == "http" && target.port == 80);
  policy::EventTarget shown = target;
  if (usual) shown.port = 0;
  const std::string place = HostPort(shown);
  // A request that names no place has a path at most.
  std::string url = place.empty() ? "" : fmt::format("{}://{}", target.scheme, place);
  url += Redact(target.path);
  if (!target.query.empty()) url += "?" + Redact(QueryKeys(target.query));
  return url;
}

// A fetch and a push both begin with this request; which it is stands in the query's value, which no event carries, and in the
// rule that would allow it.
std::string GitText(const policy::DecisionEvent& event) {
  policy::EventTarget repository = event.target;
  repository.path.resize(repository.path.size() - kInfoRefs.size());
  repository.query.clear();
  std::string_view verb = event.advice.suggest;
  verb = verb.starts_with("git ") ? verb.substr(0, verb.find(' ', 4)) : "git";
  return fmt::format("{} {}", VisibleSentence(verb, kMaxWord), Visible(Url(repository), kMaxSubject));
}

std::string WithPlace(std::string_view what, std::string_view place) {
  return place.empty() ? fmt::format("{} (no place named)", what) : fmt::format("{} {}", what, Visible(place, kMaxSubject));
}

std::string_view Basename(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string ReasonWords(policy::Reason reason) {
  std::string text(policy::ReasonText(reason));
  std::ranges::replace(text, '_', ' ');
  return text;
}

}  // namespace

std::string SubjectText(const policy::DecisionEvent& event) {
  const policy::EventTarget& target = event.target;
  const std::string method = Visible(target.method, kMaxWord);
  switch (event.layer) {
    case EventLayer::kDns:
      return "lookup of " + Visible(Redact(target.host), kMaxSubject);
    case EventLayer::kConnect:
      return WithPlace("connect", HostPort(target));
    case EventLayer::kTls:
      return "TLS to " + Visible(HostPort(target), kMaxSubject);
    case EventLayer::kRequest:
      if (target.query == "service=" && target.path.ends_with(kInfoRefs)) return GitText(event);
      return WithPlace(method.empty() ? "request" : method, Url(target));
    case EventLayer::kUnix:
      return "unix " + Visible(Redact(target.path), kMaxSubject);
    case EventLayer::kUdp:
      return "UDP to " + Visible(HostPort(target), kMaxSubject);
    case EventLayer::kSyscall:
      return "system call " + method;
  }
  return "something unknown";
}

std::string ProcessText(const policy::ProcessPtr& process) {
  if (process == nullptr) return "unknown process";
  std::string_view name = Basename(process->exe.path);
  if (name.empty()) name = process->comm;
  std::string text;
  if (!process->client.empty()) text = "client " + Visible(process->client, kMaxWord);
  // Of a client whose process nobody sees there is nothing else to say.
  if (name.empty() && process->pid == 0) return text.empty() ? "unknown process" : text;
  text += fmt::format("{}{}[{}]", text.empty() ? "" : ", ", Visible(name, kMaxWord), process->pid);
  for (size_t i = 0; i < process->ancestors.size(); ++i) {
    if (i == kShownAncestors) return text + " < ...";
    const std::string_view ancestor = Basename(process->ancestors[i].path);
    text += " < " + Visible(ancestor.empty() ? "?" : ancestor, kMaxWord);  // another user's
  }
  return text;
}

std::string DenialText(const policy::DecisionEvent& event, Style style) {
  const std::string_view verdict = event.decision.audit_only ? "would deny" : "denied";
  const std::string shown = style == Style::kColor ? fmt::format("\x1b[31m{}\x1b[0m", verdict) : std::string(verdict);
  std::string text = fmt::format("sluice: {}  {}   {}   {}\n", shown, SubjectText(event), ProcessText(event.process),
                                 ReasonWords(event.decision.reason));
  const std::string id = event.denial_id.empty() ? "" : fmt::format("({})", Visible(event.denial_id, kMaxWord));
  std::string help;
  const std::string suggest = RedactSuggestion(event.advice.suggest);
  if (!suggest.empty() && suggest.size() <= kMaxSuggest) {
    help = "allow it: --allow " + ShellQuote(VisibleSentence(suggest, 3 * kMaxSuggest));
    if (event.layer == EventLayer::kDns) help += ", or another rule for what it will do there";
  } else if (!event.detail.empty() || !event.advice.explanation.empty()) {
    help = VisibleSentence(RedactSentence(event.detail.empty() ? event.advice.explanation : event.detail), kMaxSentence);
  }
  if (!help.empty()) {
    text += fmt::format("        {:<{}}{}\n", help,
                        id.empty() ? 0 : std::max<int>(static_cast<int>(help.size()) + 2, kIdColumn - 8), id);
  } else if (!id.empty()) {
    text.insert(text.size() - 1, "   " + id);
  }
  return text;
}

bool Repeats::TakeToken(SteadyTime now) {
  if (last_ != SteadyTime{} && now > last_)
    tokens_ = std::min(kBurst, tokens_ + kLinesPerSecond * std::chrono::duration<double>(now - last_).count());
  last_ = now;
  if (tokens_ < 1) return false;
  tokens_ -= 1;
  return true;
}

std::string Repeats::Offer(const policy::DecisionEvent& event, SteadyTime now, uint64_t times) {
  std::string out = Collect(now, Due::kOnly);
  const std::string subject = SubjectText(event);
  std::string key = (event.process ? event.process->exe.path : std::string()) + '\n' + subject + '\n' +
                    std::string(policy::ReasonText(event.decision.reason));
  if (const auto found = index_.find(key); found != index_.end()) {
    found->second->more += times;
    repeats_ += times;
    return out;
  }
  if (!TakeToken(now)) {
    if (hidden_ == 0) hidden_since_ = now;
    hidden_ += times;
    return out;
  }
  if (entries_.size() >= kMaxEntries) CloseEntry(entries_.begin(), &out);
  const uint64_t quiet = event.layer == EventLayer::kDns ? kQuietLookups : 0;
  entries_.push_back({key, fmt::format("{}   {}", subject, ReasonWords(event.decision.reason)), now, times - 1, quiet});
  repeats_ += times - 1;
  index_.emplace(std::move(key), std::prev(entries_.end()));
  return out + DenialText(event, style_);
}

std::string Repeats::Collect(SteadyTime now, Due due) {
  std::string out;
  while (!entries_.empty() && (due == Due::kAll || now - entries_.front().first >= kWindow)) CloseEntry(entries_.begin(), &out);
  if (hidden_ != 0 && (due == Due::kAll || now - hidden_since_ >= kWindow))
    out += fmt::format("sluice: … {} more denials not shown\n", std::exchange(hidden_, 0));
  return out;
}

void Repeats::CloseEntry(std::list<Entry>::iterator at, std::string* out) {
  if (at->more > at->quiet) *out += fmt::format("sluice: … {} more  {}\n", at->more, at->summary);
  repeats_ -= at->more;
  index_.erase(at->key);
  entries_.erase(at);
}

}  // namespace sluice::audit
