#pragma once

// `--ca-cert` and `--ca-key`: an authority of the user's own, for workloads that trust it already.

#include <memory>
#include <string>

#include "proxy/io/secret_origin.h"
#include "proxy/io/tls.h"

namespace sluice::app {

/// The key's file. Refused where the workload could read it, or put another in its place: whoever has it may pose as any server
/// to all who trust the authority, also after the run.
[[nodiscard]] Result<proxy::FileStamp> FindAuthorityKey(const std::string& file, const proxy::SeenTrees& trees);

/// Reads and checks both, and warns of what is unwise. Both empty: one is made, its key in memory only.
[[nodiscard]] Result<std::unique_ptr<proxy::TlsAuthority>> MakeAuthority(const std::string& certificate, const std::string& key,
                                                                         const proxy::SeenTrees& trees);

}  // namespace sluice::app
