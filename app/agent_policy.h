#pragma once

// Which policy a container gets. With --policy-dir the operator may write a file `select` there, whose first line that matches
// decides; docs/containers.md has it:
//
//   # KIND PATTERN FILE
//   namespace prod            prod.yaml
//   label app.example=crawl*  crawler.yaml
//   annotation                       # the file that its annotation dev.sluice.policy names
//   any *                     closed.yaml
//
// Without that file, the annotation decides; a container that nothing matches gets --policy, and where there is none it does not
// start.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "supervisor/oci_state.h"

namespace sluice::app {

inline constexpr std::string_view kPolicyAnnotation = "dev.sluice.policy";
inline constexpr std::string_view kNameAnnotation = "dev.sluice.name";
/// In listenerMetadata, for runtimes that pass no annotation on: "policy=NAME".
inline constexpr std::string_view kPolicyMetadata = "policy=";
inline constexpr std::string_view kSelectFile = "select";

/// As its runtime or orchestrator calls it, by the annotations that containerd, CRI-O and nerdctl set; else its id.
[[nodiscard]] std::string ContainerName(const supervisor::OciState& state);
/// Empty where no annotation says.
[[nodiscard]] std::string ContainerNamespace(const supervisor::OciState& state);

/// What records say of it: its id and the annotations that name it, each cut at 256 bytes. `more`: further annotations.
[[nodiscard]] std::map<std::string, std::string> ContainerLabels(const supervisor::OciState& state,
                                                                 const std::vector<std::string>& more);

/// The policy file's path; `fallback` (may be empty) where nothing else is said. kInvalid: a `select` that cannot be read, or an
/// annotation that names no file; kNotFound: nothing matches. Reads `select` anew each time.
[[nodiscard]] Result<std::string> ChoosePolicy(const std::string& folder, const std::string& fallback,
                                               const supervisor::OciState& state);

}  // namespace sluice::app
