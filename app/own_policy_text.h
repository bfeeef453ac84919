#pragma once

// The operator's policy as one text, and other texts under the same flags: what the administration edits and puts in force.

#include "app/admin_api.h"
#include "app/served_policy.h"
#include "policy/io/load.h"

namespace sluice::app {

/// The file of the command line, or what --policy-fd gave. kUnsupported: flags have a part in the policy.
[[nodiscard]] Result<PolicyText> OwnPolicyText(const ServedOptions& options);

/// Compiles a text under the flags' upstream proxy.
[[nodiscard]] Result<policy::SnapshotPtr> CompileText(const ServedOptions& options, const PolicyText& text,
                                                      policy::LoadOptions load = {});

/// Reads descriptor `number`, inherited, up to its end for --policy-fd. kInvalid: longer than a policy may be.
[[nodiscard]] Result<std::string> ReadPolicyDescriptor(int number);

}  // namespace sluice::app
