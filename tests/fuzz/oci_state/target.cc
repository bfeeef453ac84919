// What container runtimes send, and profiles they bring. The end of a message is found alike however it arrives, and what is read
// of it is what another JSON reader finds there.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "supervisor/oci_profile.h"
#include "supervisor/oci_state.h"

using namespace sluice;
using namespace sluice::supervisor;

namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

void CheckEnd(std::string_view in) {
  const auto end = FindOciStateEnd(in);
  if (!end || !*end) return;
  Check(**end <= in.size() && in[**end - 1] == '}');
  // Nothing less is a whole message, and more behind it changes nothing.
  const auto shorter = FindOciStateEnd(in.substr(0, **end - 1));
  Check(shorter && !*shorter);
  const auto longer = FindOciStateEnd(std::string(in.substr(0, **end)) + "\n{\"");
  Check(longer && *longer == *end);
}

void CheckState(std::string_view in) {
  const auto state = ParseOciState(in);
  if (!state) return;
  const auto json = nlohmann::json::parse(in, nullptr, false);
  Check(json.is_object() && json["state"]["id"] == state->id && json["fds"].size() == state->fds.size());
  Check(state->seccomp_fd < state->fds.size() && state->fds[state->seccomp_fd] == kSeccompFdName);
  Check(!json.contains("pid") || json["pid"] == state->pid);
  Check(!json.contains("metadata") || json["metadata"] == state->metadata);
  Check(state->id.find('/') == std::string::npos && state->annotations.size() <= kMaxOciAnnotations);
  for (const auto& [key, value] : state->annotations) Check(json["state"]["annotations"][key] == value);
  const auto end = FindOciStateEnd(in);
  Check(end && *end && **end <= in.size());
}

void CheckProfile(std::string_view in) {
  for (const ProfileForm form : {ProfileForm::kConfig, ProfileForm::kDocker}) {
    const auto profile = MakeOciProfile({form, "/run/a.sock", ""}, std::string(in));
    if (!profile) continue;
    const auto json = nlohmann::json::parse(profile->text);
    Check(json["listenerPath"] == "/run/a.sock" && json["defaultAction"] != "SCMP_ACT_ALLOW");
    // Nothing that Sluice refuses or judges is allowed as it is.
    for (const auto& rule : json["syscalls"])
      for (const char* call : {"connect", "execve", "io_uring_setup", "setns"})
        if (const auto& names = rule["names"]; std::ranges::find(names, call) != names.end())
          Check(rule["action"] != "SCMP_ACT_ALLOW");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  CheckEnd(in);
  CheckState(in);
  CheckProfile(in);
  return 0;
}
