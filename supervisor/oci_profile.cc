#include "supervisor/oci_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "supervisor/seccomp_rules.h"

namespace sluice::supervisor {
namespace {

using namespace rules;
using Json = nlohmann::ordered_json;

#if defined(__x86_64__)
constexpr std::string_view kArchitecture = "SCMP_ARCH_X86_64";
constexpr std::string_view kArchitectureName = "amd64";
#else
constexpr std::string_view kArchitecture = "SCMP_ARCH_AARCH64";
constexpr std::string_view kArchitectureName = "arm64";
#endif

constexpr std::string_view kAllow = "SCMP_ACT_ALLOW";
constexpr std::string_view kErrno = "SCMP_ACT_ERRNO";
constexpr std::string_view kNotify = "SCMP_ACT_NOTIFY";
constexpr uint64_t kInt = 0xffffffff;  // libseccomp compares all 64 bits, the kernel looks at an int's 32

struct Condition {
  unsigned index;
  uint64_t value;
  std::string_view op;
  uint64_t value_two = 0;
};

Condition IntIs(unsigned index, uint64_t value) { return {index, kInt, "SCMP_CMP_MASKED_EQ", value}; }
Condition BitsAre(unsigned index, uint64_t mask, uint64_t value) { return {index, mask, "SCMP_CMP_MASKED_EQ", value}; }
Condition Above(unsigned index, uint64_t value) { return {index, value, "SCMP_CMP_GT"}; }
Condition AtLeast(unsigned index, uint64_t value) { return {index, value, "SCMP_CMP_GE"}; }
Condition Exactly(unsigned index, uint64_t value) { return {index, value, "SCMP_CMP_EQ"}; }
Condition Not(unsigned index, uint64_t value) { return {index, value, "SCMP_CMP_NE"}; }

// Conditions of rules for one call never overlap where one allows and another refuses, so that no order among them matters; but
// for a number wider than the kernel's int, where either answer is right.
class Rules {
 public:
  void Add(std::vector<std::string> names, std::string_view action, std::optional<int> error = {},
           std::initializer_list<Condition> conditions = {}) {
    Json rule = {{"names", std::move(names)}, {"action", action}};
    if (error) rule["errnoRet"] = *error;
    Json args = Json::array();
    for (const Condition& condition : conditions) {
      Json arg = {{"index", condition.index}, {"value", condition.value}, {"op", condition.op}};
      if (condition.op == "SCMP_CMP_MASKED_EQ") arg["valueTwo"] = condition.value_two;
      args.push_back(std::move(arg));
    }
    if (!args.empty()) rule["args"] = std::move(args);
    all_.push_back(std::move(rule));
  }
  void Refuse(const char* name, int error, std::initializer_list<Condition> conditions) {
    Add({name}, kErrno, error, conditions);
  }
  void Allow(const char* name, std::initializer_list<Condition> conditions) { Add({name}, kAllow, {}, conditions); }
  void AddGiven(Json rule) { all_.push_back(std::move(rule)); }
  [[nodiscard]] Json Take() { return std::move(all_); }

 private:
  Json all_ = Json::array();
};

// In both kinds of profile.
void AddNotified(Rules& out) {
  out.Add({"connect", "execve"}, kNotify);
  out.Add({"sendto"}, kNotify, {}, {BitsAre(3, kMsgFastOpen, 0), Not(4, 0)});
  out.Refuse("sendto", EOPNOTSUPP, {BitsAre(3, kMsgFastOpen, kMsgFastOpen)});
  out.Refuse("sendmsg", EOPNOTSUPP, {BitsAre(2, kMsgFastOpen, kMsgFastOpen)});
  out.Refuse("sendmmsg", EOPNOTSUPP, {BitsAre(3, kMsgFastOpen, kMsgFastOpen)});
}

void AddRefused(Rules& out) {
  for (const int error : {EPERM, ENOSYS}) {
    std::vector<std::string> names;
    for (const Refusal& refusal : kRefusals)
      if (refusal.error == error) names.emplace_back(refusal.name);
    out.Add(std::move(names), kErrno, error);
  }
}

// Each family, type and protocol that is not one of ours, one by one, since a rule may look at an argument once.
void RefuseSockets(Rules& out) {
  constexpr std::array kOurs = {kFamilyUnix, kFamilyInet, kFamilyInet6, kFamilyNetlink};
  for (uint32_t family = 0; family <= kFamilyVsock; ++family) {
    if (std::ranges::find(kOurs, family) != kOurs.end()) continue;
    const bool raw = family == kFamilyPacket || family == kFamilyVsock;
    out.Refuse("socket", raw ? EPERM : EAFNOSUPPORT, {IntIs(0, family)});
  }
  out.Refuse("socket", EAFNOSUPPORT, {Above(0, kFamilyVsock)});
  for (const uint32_t family : {kFamilyInet, kFamilyInet6}) {
    for (uint32_t type = 0; type <= kTypeMask; ++type)
      if (type != kStream && type != kDatagram) out.Refuse("socket", EPERM, {IntIs(0, family), BitsAre(1, kTypeMask, type)});
    for (const uint32_t type : {kStream, kDatagram}) {
      for (uint32_t protocol = 1; protocol < kProtocolUdp; ++protocol)
        if (protocol != kProtocolTcp)
          out.Refuse("socket", EPROTONOSUPPORT, {IntIs(0, family), BitsAre(1, kTypeMask, type), IntIs(2, protocol)});
      out.Refuse("socket", EPROTONOSUPPORT, {IntIs(0, family), BitsAre(1, kTypeMask, type), Above(2, kProtocolUdp)});
    }
  }
  for (uint32_t type = 0; type <= kTypeMask; ++type) {
    if (type != kRaw && type != kDatagram) {
      out.Refuse("socket", EPERM, {IntIs(0, kFamilyNetlink), BitsAre(1, kTypeMask, type)});
    } else {
      out.Refuse("socket", EPROTONOSUPPORT, {IntIs(0, kFamilyNetlink), BitsAre(1, kTypeMask, type), Not(2, kNetlinkRoute)});
    }
  }
  out.Refuse("socketpair", EAFNOSUPPORT, {Not(0, kFamilyUnix)});
}

void RefuseOptions(Rules& out) {
  const auto each = [&out](uint32_t level, const auto& options) {
    for (const Option& option : options) out.Refuse("setsockopt", option.error, {IntIs(1, level), IntIs(2, option.number)});
  };
  each(kLevelSocket, kSocketOptions);
  each(kLevelTcp, kTcpOptions);
  each(kLevelIp, kIpOptions);
  each(kLevelIpv6, kIpv6Options);
  out.Refuse("setsockopt", EPERM, {IntIs(1, kLevelIp), AtLeast(2, kNetfilter4.first)});
  for (uint32_t option = kNetfilter6.first; option <= kNetfilter6.second; ++option)
    out.Refuse("setsockopt", EPERM, {IntIs(1, kLevelIpv6), IntIs(2, option)});
  out.Refuse("setsockopt", EPERM, {IntIs(1, kLevelMptcp)});
  for (const uint32_t request : kIoctls) out.Refuse("ioctl", EPERM, {IntIs(1, request)});
}

void RefuseNamespaces(Rules& out) {
  for (uint32_t bit = 1; bit != 0; bit <<= 1) {
    if ((kCloneNew & bit) != 0) out.Refuse("clone", EPERM, {BitsAre(0, bit, bit)});
    if (((kCloneNew | kCloneNewTime) & bit) != 0) out.Refuse("unshare", EPERM, {BitsAre(0, bit, bit)});
  }
}

// Where only what is listed is allowed.
void AllowConditionally(Rules& out, const std::set<std::string>& allowed) {
  const auto has = [&](const char* name) { return allowed.contains(name); };
  if (has("sendto")) out.Allow("sendto", {BitsAre(3, kMsgFastOpen, 0), Exactly(4, 0)});
  if (has("sendmsg")) out.Allow("sendmsg", {BitsAre(2, kMsgFastOpen, 0)});
  if (has("sendmmsg")) out.Allow("sendmmsg", {BitsAre(3, kMsgFastOpen, 0)});
  if (has("socket")) {
    out.Allow("socket", {IntIs(0, kFamilyUnix)});
    for (const uint32_t family : {kFamilyInet, kFamilyInet6})
      for (const uint32_t type : {kStream, kDatagram})
        for (const uint32_t protocol : {0u, kProtocolTcp, kProtocolUdp})
          out.Allow("socket", {IntIs(0, family), BitsAre(1, kTypeMask, type), IntIs(2, protocol)});
    for (const uint32_t type : {kRaw, kDatagram})
      out.Allow("socket", {IntIs(0, kFamilyNetlink), BitsAre(1, kTypeMask, type), IntIs(2, kNetlinkRoute)});
    // The errors too: programs go on without MPTCP on its own alone.
    RefuseSockets(out);
  }
  if (has("execveat")) out.Add({"execveat"}, kNotify);
  if (has("socketpair")) out.Allow("socketpair", {IntIs(0, kFamilyUnix)});
  if (has("clone")) out.Allow("clone", {BitsAre(0, kCloneNew, 0)});
  if (has("unshare")) out.Allow("unshare", {BitsAre(0, kCloneNew | kCloneNewTime, 0)});
}

constexpr std::array<std::string_view, 10> kDecidedHere = {"connect",  "execve", "execveat",   "sendto", "sendmsg",
                                                           "sendmmsg", "socket", "socketpair", "clone",  "unshare"};

std::unexpected<Error> Wrong(std::string_view what) { return Fail(Code::kInvalid, fmt::format("the base profile: {}", what)); }

// Docker's rules hold for some containers only: here, one without added capabilities, on a kernel newer than any it asks for.
bool AppliesHere(const Json& rule) {
  const auto holds = [&rule](const char* side, const char* what) {
    return rule.contains(side) && rule[side].is_object() && rule[side].contains(what) && rule[side][what].is_array() &&
           !rule[side][what].empty();
  };
  if (holds("includes", "caps")) return false;
  const auto names_us = [&rule](const char* side) {
    return std::ranges::any_of(rule[side]["arches"], [](const Json& arch) { return arch == kArchitectureName; });
  };
  if (holds("includes", "arches") && !names_us("includes")) return false;
  return !holds("excludes", "arches") || !names_us("excludes");
}

bool IsRefused(const std::string& name) {
  return std::ranges::any_of(kRefusals, [&](const Refusal& refusal) { return refusal.name == name; });
}

struct Base {
  Json json;
  std::set<std::string> allowed;  // without conditions, or with some
};

Result<Base> ReadBase(const std::string& text) {
  Base base{Json::parse(text, nullptr, false), {}};
  if (!base.json.is_object()) return Wrong("it is no JSON object");
  if (base.json.contains("linux") && base.json["linux"].is_object() && base.json["linux"].contains("seccomp"))
    base.json = Json(base.json["linux"]["seccomp"]);
  if (!base.json.is_object() || !base.json.contains("defaultAction") || !base.json["defaultAction"].is_string())
    return Wrong("it has no `defaultAction`");
  if (base.json.contains("listenerPath") || base.json.contains("listenerMetadata"))
    return Wrong("it has a listener of its own; one container can have one");
  const std::string action = base.json["defaultAction"];
  if (action != kErrno && !action.starts_with("SCMP_ACT_KILL"))
    return Wrong(fmt::format("its `defaultAction` is {}: a profile that lists what is allowed has SCMP_ACT_ERRNO", action));
  if (!base.json.contains("syscalls") || !base.json["syscalls"].is_array()) return Wrong("it has no `syscalls`");
  return base;
}

// Everything of the base but what is decided here, and what Sluice refuses.
Result<void> TakeBase(Base& base, ProfileForm form, Rules& out) {
  for (Json rule : base.json["syscalls"]) {
    if (!rule.is_object() || !rule.contains("action") || !rule["action"].is_string()) return Wrong("a rule has no `action`");
    // Docker's first profiles had one name each.
    if (!rule.contains("names") && rule.contains("name")) rule["names"] = Json::array({rule["name"]});
    rule.erase("name");
    if (!rule.contains("names") || !rule["names"].is_array()) return Wrong("a rule has no `names`");
    if (rule["action"] == kNotify) return Wrong("it notifies a listener of its own");
    const bool here = AppliesHere(rule);
    if (form == ProfileForm::kConfig) {
      if (!here) continue;
      for (const char* only_docker : {"comment", "includes", "excludes"}) rule.erase(only_docker);
    }
    const bool allows = rule["action"] == kAllow;
    Json names = Json::array();
    for (const Json& name : rule["names"]) {
      if (!name.is_string()) return Wrong("a name is no text");
      const std::string call = name;
      if (allows && here) base.allowed.insert(call);
      if (IsRefused(call) || std::ranges::find(kDecidedHere, call) != kDecidedHere.end()) continue;
      names.push_back(call);
    }
    if (names.empty()) continue;
    rule["names"] = std::move(names);
    out.AddGiven(std::move(rule));
  }
  return {};
}

}  // namespace

Result<OciProfile> MakeOciProfile(const OciProfileOptions& options, const std::optional<std::string>& base) {
  Json profile = Json::object();
  Rules out;
  if (base) {
    auto read = ReadBase(*base);
    if (!read) return std::unexpected(read.error());
    profile["defaultAction"] = read->json["defaultAction"];
    if (read->json.contains("defaultErrnoRet")) profile["defaultErrnoRet"] = read->json["defaultErrnoRet"];
    AddNotified(out);
    AddRefused(out);
    if (auto taken = TakeBase(*read, options.form, out); !taken) return std::unexpected(taken.error());
    AllowConditionally(out, read->allowed);
  } else {
    profile["defaultAction"] = kAllow;
    AddNotified(out);
    out.Add({"execveat"}, kNotify);
    AddRefused(out);
    RefuseSockets(out);
    RefuseOptions(out);
    RefuseNamespaces(out);
  }
  // No other: a 32-bit program's calls would have other numbers.
  if (options.form == ProfileForm::kConfig) {
    profile["architectures"] = Json::array({kArchitecture});
  } else {
    profile["archMap"] = Json::array({{{"architecture", kArchitecture}, {"subArchitectures", Json::array()}}});
  }
  if (options.wake == ListenerWake::kKillable) profile["flags"] = Json::array({"SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"});
  profile["listenerPath"] = options.agent;
  if (!options.metadata.empty()) profile["listenerMetadata"] = options.metadata;
  profile["syscalls"] = out.Take();
  return OciProfile{profile.dump(2, ' ', false, Json::error_handler_t::replace) + "\n", base.has_value()};
}

}  // namespace sluice::supervisor
