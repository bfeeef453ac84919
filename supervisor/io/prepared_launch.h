#pragma once

// A launch of which everything is known but the capture: what the host looks like and what of it the workload will see. It takes
// about as long as a capture, beside which it can be made.
//
//   auto begun = CaptureInProgress::Begin();
//   auto prepared = PrepareLaunch(spec);
//   auto capture = begun->Finish();
//   auto workload = BeginLaunch(*std::move(prepared), *capture);

#include <linux/filter.h>

#include <memory>
#include <span>

#include "base/result.h"
#include "supervisor/io/capture.h"
#include "supervisor/io/launch.h"
#include "supervisor/io/opened_folders.h"
#include "supervisor/launch_spec.h"
#include "supervisor/mount_plan.h"

namespace sluice::supervisor {

struct PreparedLaunch {
  LaunchSpec spec;  ///< its paths resolved
  MountPlan mounts;
  BareFolders bare;  ///< that it names
  int landlock_abi = 0;
};

/// kUnsupported: Landlock is too old; else what is wrong with the spec.
[[nodiscard]] Result<PreparedLaunch> PrepareLaunch(const LaunchSpec& spec);

/// As launch.h's.
[[nodiscard]] Result<std::unique_ptr<Workload>> BeginLaunch(PreparedLaunch prepared, const Capture& capture);
[[nodiscard]] Result<std::unique_ptr<Workload>> BeginFilteredLaunch(PreparedLaunch prepared, const Capture& capture,
                                                                    std::span<const sock_filter> filter);

}  // namespace sluice::supervisor
