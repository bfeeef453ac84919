#include "supervisor/oci_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "base/json.h"

namespace sluice::supervisor {
namespace {

using Kind = JsonToken::Kind;

constexpr JsonBounds kBounds{.depth = 16, .values = 8192};
constexpr int32_t kMostPid = 1 << 22;  // PID_MAX_LIMIT
constexpr size_t kMaxText = 64 * 1024;

std::unexpected<Error> Wrong(std::string_view what) {
  return Fail(Code::kInvalid, fmt::format("the container runtime's message: {}", what));
}

bool IsContainerId(std::string_view id) {
  constexpr std::string_view kAllowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+-.";
  return !id.empty() && id.size() <= kMaxContainerId && id.find_first_not_of(kAllowed) == std::string_view::npos && id != "." &&
         id != "..";
}

// One object at a time, member by member; what nobody asks for is skipped whole.
class Reader {
 public:
  explicit Reader(std::string_view text) : scanner_(text, kBounds) {}

  [[nodiscard]] const std::string& fault() const { return fault_; }
  bool Failed(std::string_view why) {
    if (fault_.empty()) fault_ = why;
    return false;
  }

  // Calls `member(name)` for each member of the object that begins; false when the text, or a member, is wrong.
  template <class Member>
  bool Object(std::string_view what, Member member) {
    if (Next().kind != Kind::kBeginObject) return Failed(fmt::format("`{}` is no object", what));
    std::set<std::string, std::less<>> seen;
    for (JsonToken token = Next(); token.kind != Kind::kEndObject; token = Next()) {
      if (token.kind != Kind::kKey) return Failed(token.kind == Kind::kFault ? token.text : "no JSON");
      std::string name(token.text);
      if (!seen.insert(name).second) return Failed(fmt::format("a member of `{}` is there twice", what));
      if (!member(name)) return Failed(fmt::format("`{}` cannot be read", name));
    }
    return true;
  }

  bool Text(std::string* out) {
    const JsonToken token = Next();
    if (token.kind != Kind::kString || token.text.size() > kMaxText || token.text.find('\0') != std::string_view::npos)
      return false;
    *out = token.text;
    return true;
  }

  bool Pid(int32_t* out) {
    const JsonToken token = Next();
    if (token.kind != Kind::kNumber) return false;
    const char* const end = token.text.data() + token.text.size();
    const auto [stop, error] = std::from_chars(token.text.data(), end, *out);
    return error == std::errc{} && stop == end && *out >= 0 && *out <= kMostPid;
  }

  bool Names(std::vector<std::string>* out) {
    if (Next().kind != Kind::kBeginArray) return false;
    for (JsonToken token = Next(); token.kind != Kind::kEndArray; token = Next()) {
      if (token.kind != Kind::kString || out->size() == kMaxOciFds) return false;
      out->emplace_back(token.text);
    }
    return true;
  }

  bool Skip() {
    size_t depth = 0;
    do {
      const JsonToken token = Next();
      if (token.kind == Kind::kFault || token.kind == Kind::kEnd) return false;
      if (token.kind == Kind::kBeginObject || token.kind == Kind::kBeginArray) ++depth;
      if (token.kind == Kind::kEndObject || token.kind == Kind::kEndArray) --depth;
    } while (depth != 0);
    return true;
  }

  bool AtEnd() { return Next().kind == Kind::kEnd; }

 private:
  JsonToken Next() {
    const JsonToken token = scanner_.Next();
    if (token.kind == Kind::kFault) Failed(token.text);
    return token;
  }

  JsonScanner scanner_;
  std::string fault_;
};

bool ReadState(Reader& in, OciState* state) {
  return in.Object("state", [&](const std::string& name) {
    if (name == "id") return in.Text(&state->id);
    if (name == "status") return in.Text(&state->status);
    if (name == "bundle") return in.Text(&state->bundle);
    if (name != "annotations") return in.Skip();
    return in.Object("annotations", [&](const std::string& key) {
      if (state->annotations.size() == kMaxOciAnnotations) return in.Failed("too many annotations");
      return in.Text(&state->annotations[key]);
    });
  });
}

bool ReadAll(Reader& in, OciState* state, bool* has_state) {
  const bool whole = in.Object("the message", [&](const std::string& name) {
    if (name == "fds") return in.Names(&state->fds);
    if (name == "pid") return in.Pid(&state->pid);
    if (name == "metadata") return in.Text(&state->metadata);
    if (name != "state") return in.Skip();
    *has_state = true;
    return ReadState(in, state);
  });
  return whole && in.AtEnd();
}

}  // namespace

Result<std::optional<size_t>> OciStateEnd::Find(std::string_view received) {
  for (; at_ < received.size() && at_ < kMaxOciMessage; ++at_) {
    const char c = received[at_];
    if (in_string_) {
      if (c == '\\') ++at_;
      if (c == '"') in_string_ = false;
      continue;
    }
    if (depth_ == 0 && c != '{') {
      if (c == ' ' || c == '\n' || c == '\r' || c == '\t') continue;
      return Wrong("it is no JSON object");
    }
    if (c == '"') in_string_ = true;
    if (c == '{') ++depth_;
    if (c == '}' && --depth_ == 0) return at_ + 1;
  }
  if (received.size() >= kMaxOciMessage) return Wrong(fmt::format("it is longer than {} bytes", kMaxOciMessage));
  return std::nullopt;
}

Result<std::optional<size_t>> FindOciStateEnd(std::string_view received) { return OciStateEnd().Find(received); }

Result<OciState> ParseOciState(std::string_view text) {
  OciState state;
  Reader in(text);
  bool has_state = false;
  if (!ReadAll(in, &state, &has_state)) return Wrong(in.fault().empty() ? "no JSON" : in.fault());
  if (!has_state) return Wrong("`state` is missing");
  if (!IsContainerId(state.id)) return Wrong("`state.id` is missing, or has characters that no container's has");
  const auto first = std::ranges::find(state.fds, kSeccompFdName);
  if (first == state.fds.end() || std::find(first + 1, state.fds.end(), kSeccompFdName) != state.fds.end())
    return Wrong(fmt::format("`fds` does not name one `{}`", kSeccompFdName));
  state.seccomp_fd = static_cast<size_t>(first - state.fds.begin());
  return state;
}

}  // namespace sluice::supervisor
