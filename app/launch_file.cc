#include "app/launch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <span>
#include <variant>

#include "base/json.h"
#include "base/printable.h"
#include "policy/rule_text.h"

namespace sluice::app {
namespace {

using Kind = JsonToken::Kind;

constexpr size_t kMaxDepth = 4;
constexpr size_t kMaxEntries = 4096;  // of a list or map

/// A number of octets, as 2147483648 or "2GiB".
struct SizeMember {
  std::string LaunchFile::* text;
};
/// Said for clearness, and never otherwise.
struct FixedNumber {
  uint64_t value;
};
struct FixedTrue {
  std::string_view why;
};
struct Section {
  std::span<const struct Member> members;
};

using Place = std::variant<std::string LaunchFile::*, std::vector<std::string> LaunchFile::*,
                           std::map<std::string, std::string> LaunchFile::*, std::optional<uint64_t> LaunchFile::*,
                           bool LaunchFile::*, SizeMember, FixedNumber, FixedTrue, Section>;

struct Member {
  std::string_view name;
  Place place;
  std::span<const std::string_view> choices{};  // of a text; empty: any
};

constexpr std::string_view kInherit[] = {"usual", "none"};
constexpr std::string_view kOnDisconnect[] = {"kill", "freeze"};

constexpr Member kEnvironment[] = {
    {"inherit", &LaunchFile::environment_inherit, kInherit},
    {"pass", &LaunchFile::environment_pass},
    {"set", &LaunchFile::environment_set},
    {"unsafe-pass", &LaunchFile::environment_unsafe},
};
constexpr Member kPolicy[] = {
    {"file", &LaunchFile::policy},
    {"fd", &LaunchFile::policy_fd},
    {"allow", &LaunchFile::allow},
    {"presets", &LaunchFile::presets},
};
constexpr Member kLimits[] = {
    {"wall-time", &LaunchFile::wall_time},   {"memory", SizeMember{&LaunchFile::memory}}, {"processes", &LaunchFile::processes},
    {"open-files", &LaunchFile::open_files}, {"output", SizeMember{&LaunchFile::output}},
};
constexpr Member kUpstream[] = {
    {"resolvers", &LaunchFile::resolvers},   {"stub-domains", &LaunchFile::stub_domains},
    {"ca", &LaunchFile::upstream_ca},        {"via", &LaunchFile::via},
    {"via-auth", &LaunchFile::via_auth},     {"via-ca", &LaunchFile::via_ca},
    {"via-except", &LaunchFile::via_except},
};
constexpr Member kFile[] = {
    {"version", FixedNumber{1}},
    {"command", &LaunchFile::command},
    {"workspace", &LaunchFile::workspace},
    {"cwd", &LaunchFile::cwd},
    {"read-write", &LaunchFile::read_write},
    {"read-only", &LaunchFile::read_only},
    {"environment", Section{kEnvironment}},
    {"policy", Section{kPolicy}},
    {"name", &LaunchFile::name},
    {"labels", &LaunchFile::labels},
    {"limits", Section{kLimits}},
    {"publish", &LaunchFile::publish},
    {"transcript", &LaunchFile::transcript},
    {"result", &LaunchFile::result},
    {"audit", &LaunchFile::audit},
    {"lifeline", &LaunchFile::lifeline},
    {"on-disconnect", &LaunchFile::on_disconnect, kOnDisconnect},
    {"fail-on-deny", &LaunchFile::fail_on_deny},
    {"kill-on-deny", &LaunchFile::kill_on_deny},
    {"pid-namespace", FixedTrue{"every run has a process namespace of its own, by which it is ended as a whole"}},
    {"allow-user-namespaces", &LaunchFile::allow_user_namespaces},
    {"allow-containers", &LaunchFile::allow_containers},
    {"allow-nested", &LaunchFile::allow_nested},
    {"quiet", &LaunchFile::quiet},
    {"verbose", &LaunchFile::verbose},
    {"log-fd", &LaunchFile::log_fd},
    {"control", &LaunchFile::control},
    {"await-hold", &LaunchFile::await_hold},
    {"upstream", Section{kUpstream}},
    {"ca-cert", &LaunchFile::ca_cert},
    {"ca-key", &LaunchFile::ca_key},
    {"mirror-certificates", &LaunchFile::mirror_certificates},
};

class Reader {
 public:
  Reader(std::string_view text, const std::string& name)
      : text_(text), name_(name), scanner_(text, {.depth = kMaxDepth, .values = kMaxLaunchValues}) {}

  Result<LaunchFile> Read() {
    if (text_.size() > kMaxLaunchFile)
      return Fail(Code::kExhausted, fmt::format("{} is larger than {} octets", name_, kMaxLaunchFile));
    Next();
    if (token_.kind != Kind::kBeginObject) return Fault("a launch is one JSON object");
    if (auto read = ReadMembers(kFile, ""); !read) return std::unexpected(read.error());
    if (!version_) return FaultAt(0, 1, "`version` is missing: write \"version\": 1");
    Next();
    if (token_.kind != Kind::kEnd) return Fault("more follows the launch's object");
    return std::move(file_);
  }

 private:
  void Next() { token_ = scanner_.Next(); }

  std::unexpected<Error> FaultAt(size_t offset, size_t length, std::string message) const {
    const std::string_view before = text_.substr(0, std::min(offset, text_.size()));
    const auto line = static_cast<uint32_t>(std::ranges::count(before, '\n') + 1);
    const size_t feed = before.rfind('\n');
    const size_t start = feed == std::string_view::npos ? 0 : feed + 1;
    return std::unexpected(Error{Code::kInvalid, std::move(message), 0,
                                 SourceSpan{name_, line, static_cast<uint32_t>(before.size() - start + 1),
                                            static_cast<uint32_t>(std::min(length, size_t{64}))}});
  }
  std::unexpected<Error> Fault(std::string message) const {
    if (token_.kind == Kind::kFault) message = fmt::format("not valid JSON: {}", token_.text);
    return FaultAt(token_.offset, token_.length, std::move(message));
  }
  static std::string Full(const std::string& section, std::string_view name) {
    return section.empty() ? std::string(name) : fmt::format("{}.{}", section, name);
  }

  // From after the opening brace to the closing one.
  Result<void> ReadMembers(std::span<const Member> members, const std::string& section) {
    std::set<std::string_view> seen;
    for (Next(); token_.kind != Kind::kEndObject; Next()) {
      if (token_.kind != Kind::kKey) return Fault("a member was expected");
      const auto member = std::ranges::find(members, token_.text, &Member::name);
      if (member == members.end()) {
        std::vector<std::string_view> names;
        for (const Member& one : members) names.push_back(one.name);
        return Fault(fmt::format("`{}` is no member of {}{}", Printable(token_.text.substr(0, 64)),
                                 section.empty() ? "a launch" : fmt::format("`{}`", section),
                                 policy::DidYouMean(token_.text.substr(0, 64), names)));
      }
      if (!seen.insert(member->name).second) return Fault(fmt::format("`{}` is given twice", Full(section, member->name)));
      Next();
      if (auto read = ReadValue(*member, Full(section, member->name)); !read) return read;
    }
    return {};
  }

  Result<void> ReadValue(const Member& member, const std::string& name) {
    return std::visit([&](const auto& place) { return Take(place, member, name); }, member.place);
  }

  Result<void> Take(const Section& place, const Member&, const std::string& name) {
    if (token_.kind != Kind::kBeginObject) return Fault(fmt::format("`{}` is an object", name));
    return ReadMembers(place.members, name);
  }

  Result<std::string> Text(const std::string& name) const {
    if (token_.kind != Kind::kString) return Fault(fmt::format("`{}` is a string", name));
    if (token_.text.empty()) return Fault(fmt::format("`{}` is empty; leave it out instead", name));
    if (token_.text.contains('\0')) return Fault(fmt::format("`{}` holds a null character", name));
    return std::string(token_.text);
  }

  Result<void> Take(std::string LaunchFile::* place, const Member& member, const std::string& name) {
    auto text = Text(name);
    if (!text) return std::unexpected(text.error());
    if (!member.choices.empty() && std::ranges::find(member.choices, *text) == member.choices.end())
      return Fault(fmt::format("`{}` is \"{}\"", name, fmt::join(member.choices, "\" or \"")));
    file_.*place = *std::move(text);
    return {};
  }

  Result<void> Take(std::vector<std::string> LaunchFile::* place, const Member& member, const std::string& name) {
    if (token_.kind != Kind::kBeginArray) return Fault(fmt::format("`{}` is a list of strings", name));
    for (Next(); token_.kind != Kind::kEndArray; Next()) {
      if ((file_.*place).size() == kMaxEntries) return Fault(fmt::format("`{}` has more than {} entries", name, kMaxEntries));
      // An argument of a command may well be empty.
      if (member.name == "command" && token_.kind == Kind::kString && token_.text.empty()) {
        (file_.*place).emplace_back();
        continue;
      }
      auto text = Text(fmt::format("{}[{}]", name, (file_.*place).size()));
      if (!text) return std::unexpected(text.error());
      (file_.*place).push_back(*std::move(text));
    }
    return {};
  }

  Result<void> Take(std::map<std::string, std::string> LaunchFile::* place, const Member&, const std::string& name) {
    if (token_.kind != Kind::kBeginObject) return Fault(fmt::format("`{}` is an object of strings", name));
    for (Next(); token_.kind != Kind::kEndObject; Next()) {
      if (token_.kind != Kind::kKey) return Fault("a member was expected");
      if ((file_.*place).size() == kMaxEntries) return Fault(fmt::format("`{}` has more than {} entries", name, kMaxEntries));
      if (token_.text.empty() || token_.text.contains('\0') || token_.text.contains('='))
        return Fault(fmt::format("a name in `{}` is empty, or holds `=` or a null character", name));
      const auto [entry, fresh] = (file_.*place).try_emplace(std::string(token_.text));
      if (!fresh) return Fault(fmt::format("`{}` is given twice in `{}`", Printable(token_.text.substr(0, 64)), name));
      Next();
      if (token_.kind != Kind::kString) return Fault(fmt::format("the values of `{}` are strings", name));
      if (token_.text.contains('\0')) return Fault(fmt::format("a value of `{}` holds a null character", name));
      entry->second = token_.text;
    }
    return {};
  }

  Result<uint64_t> Number(const std::string& name) const {
    uint64_t number = 0;
    if (token_.kind == Kind::kNumber) {
      const auto read = std::from_chars(token_.text.data(), token_.text.data() + token_.text.size(), number);
      if (read.ec == std::errc{} && read.ptr == token_.text.data() + token_.text.size()) return number;
    }
    return Fault(fmt::format("`{}` is a whole number, zero or more", name));
  }

  Result<void> Take(std::optional<uint64_t> LaunchFile::* place, const Member&, const std::string& name) {
    auto number = Number(name);
    if (!number) return std::unexpected(number.error());
    file_.*place = *number;
    return {};
  }

  Result<void> Take(const SizeMember& place, const Member&, const std::string& name) {
    if (token_.kind == Kind::kString) {
      auto text = Text(name);
      if (!text) return std::unexpected(text.error());
      file_.*place.text = *std::move(text);
      return {};
    }
    auto number = Number(name);
    if (!number) return Fault(fmt::format("`{}` is a number of octets, or a string such as \"512MiB\"", name));
    file_.*place.text = fmt::format("{}", *number);
    return {};
  }

  Result<void> Take(const FixedNumber& place, const Member&, const std::string& name) {
    auto number = Number(name);
    if (!number || *number != place.value)
      return Fault(fmt::format("`{}` is {}: this is all that is known here", name, place.value));
    version_ = true;
    return {};
  }

  Result<void> Take(const FixedTrue& place, const Member&, const std::string& name) {
    if (token_.kind != Kind::kTrue) return Fault(fmt::format("`{}` is true or left out: {}", name, place.why));
    return {};
  }

  Result<void> Take(bool LaunchFile::* place, const Member&, const std::string& name) {
    if (token_.kind != Kind::kTrue && token_.kind != Kind::kFalse) return Fault(fmt::format("`{}` is true or false", name));
    file_.*place = token_.kind == Kind::kTrue;
    return {};
  }

  std::string_view text_;
  const std::string& name_;
  JsonScanner scanner_;
  JsonToken token_;
  LaunchFile file_;
  bool version_ = false;
};

void AddNames(std::span<const Member> members, const std::string& section, std::vector<std::string>* out) {
  for (const Member& member : members) {
    const std::string name = section.empty() ? std::string(member.name) : fmt::format("{}.{}", section, member.name);
    out->push_back(name);
    if (const auto* inner = std::get_if<Section>(&member.place)) AddNames(inner->members, name, out);
  }
}

}  // namespace

Result<LaunchFile> ParseLaunchFile(std::string_view text, const std::string& name) { return Reader(text, name).Read(); }

std::vector<std::string> LaunchFileMembers() {
  std::vector<std::string> names;
  AddNames(kFile, "", &names);
  return names;
}

}  // namespace sluice::app
