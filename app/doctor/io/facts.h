#pragma once

// Reads what `sluice doctor` judges by: files of /proc and /sys, this process's own rights and limits. Starts nothing.

#include "app/doctor/machine.h"

namespace sluice::app {

[[nodiscard]] MachineFacts GatherMachineFacts();

}  // namespace sluice::app
