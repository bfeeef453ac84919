#pragma once

// What a start of the sidecar finds out before its tables stand, so that a flag mistyped shuts nothing; and what it says where
// they stand. Nothing listens meanwhile, and nothing that is there already is touched.

#include "app/admin_server.h"
#include "app/sidecar.h"
#include "base/result.h"

namespace sluice::app {

/// Files that could not be written, sockets that could not be had, a `lo` that is down.
[[nodiscard]] Result<void> CheckPlaces(const SidecarOptions& options, const AdminAddresses& addresses);

/// The error of a start that leaves the fence shut behind it, with what to do about that.
[[nodiscard]] Error LeftShut(Error error);

}  // namespace sluice::app
