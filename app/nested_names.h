#pragma once

// What a run and the runs in its sandbox (app/nested.h) have together of the bounds on names: otherwise each run that is started
// would have rations of its own, and its policy, which the workload wrote, could spell out what the operator left to a wildcard.

#include <memory>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "dns/shared_rations.h"
#include "policy/snapshot.h"

namespace sluice::app {

/// Memory that the outer run makes and its inner runs' supervisors map. No workload gets it.
struct NameRations {
  UniqueFd file;
  std::shared_ptr<dns::SharedRations> rations;
};
[[nodiscard]] Result<NameRations> MakeNameRations();
/// Of a descriptor that was inherited.
[[nodiscard]] Result<std::shared_ptr<dns::SharedRations>> MapNameRations(int number);

/// A policy that lets out the names that this one lets out, and spells them as this one does. "version: 1\nrules: …"
[[nodiscard]] std::string NamesOf(const policy::Snapshot& outer);

}  // namespace sluice::app
