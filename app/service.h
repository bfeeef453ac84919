#pragma once

// What the commands that serve until they are told to end have in common: their signals, and what they hand to clients.

#include <chrono>
#include <csignal>
#include <optional>
#include <string>

#include "base/result.h"
#include "proxy/io/engine.h"

namespace sluice::app {

/// SIGTERM and SIGINT for WaitForEnd, SIGHUP for the policy's watcher; SIGPIPE is ignored. Before any thread exists.
void BlockServiceSignals();
/// Until SIGTERM or SIGINT comes, or for so long. True: one came.
bool WaitForEnd(std::optional<std::chrono::milliseconds> longest);
/// Lets what is open end, for so long at most, or until a second signal comes. `quiet`: says nothing.
void DrainEngine(proxy::Engine& engine, std::chrono::milliseconds longest, bool quiet);
/// The --drain duration; ten seconds where there is none.
[[nodiscard]] Result<std::chrono::milliseconds> ParseDrain(const std::string& text);

/// Writes the authority's certificate, and the system's roots with it behind them, where they are asked for (empty: nowhere).
[[nodiscard]] Result<void> WriteAuthority(const std::string& ca_out, const std::string& bundle_out, const std::string& pem);
/// Whether WriteAuthority could write there now. What stands there stays as it is.
[[nodiscard]] Result<void> CheckAuthorityPlaces(const std::string& ca_out, const std::string& bundle_out);

/// "mode audit: ..." for the line that says what is enforced; empty where the policy is.
[[nodiscard]] std::string AuditModeRemark(const policy::Snapshot& snapshot);

}  // namespace sluice::app
