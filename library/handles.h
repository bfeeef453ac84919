#pragma once

// What stands behind the handles of sluice.h, and how failures leave through them.

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "library/include/sluice/sluice.h"
#include "library/io/run_session.h"
#include "policy/snapshot.h"

struct sluice_error {
  sluice_code code = SLUICE_INTERNAL;
  std::string message;
  std::string json;
};

struct sluice_text {
  std::string text;
};

struct sluice_policy {
  sluice::policy::SnapshotPtr snapshot;
  std::string digest;
  std::string file;                 // as it was named; empty: a text
  std::optional<std::string> text;  // where there is no file
};

struct sluice_decision {
  bool allowed = false;
  std::string rule;
  std::string json;
};

struct sluice_options {
  std::vector<std::string> command;
  std::vector<std::string> arguments;
  std::string policy_file;
  std::optional<std::string> policy_text;
  std::string program;
  std::array<sluice::UniqueFd, 3> streams;
  sluice_callbacks callbacks{};
  sluice::library::Loop loop = sluice::library::Loop::kCaller;
};

struct sluice_run {
  std::unique_ptr<sluice::library::RunSession> session;
};

namespace sluice::library {

/// Sets *error where the caller wants one; gives its code.
sluice_code Leave(sluice_error** error, const Error& fault, std::optional<sluice_code> code = {}) noexcept;

/// What an exception that was caught becomes: called in a handler.
sluice_code LeaveException(sluice_error** error) noexcept;

/// Runs `body`, which gives a Result<void>: nothing it throws gets out. A template, so that nothing is allocated before it is
/// guarded.
template <class Body>
sluice_code Guard(sluice_error** error, const Body& body) noexcept {
  try {
    const Result<void> done = body();
    return done ? SLUICE_OK : Leave(error, done.error());
  } catch (...) {
    return LeaveException(error);
  }
}

/// A struct of the caller's, who may be older or newer than this library: the fields that both know; the rest is zero. kInvalid:
/// a size that no version has.
template <class T>
[[nodiscard]] Result<T> TakeStruct(const T* given, size_t smallest) {
  if (given == nullptr) return Fail(Code::kInvalid, "a struct is NULL");
  T out{};
  constexpr size_t kMaxStruct = 4096;
  if (given->size < smallest || given->size > kMaxStruct) return Fail(Code::kInvalid, "the `size` of a struct is not its sizeof");
  std::copy_n(reinterpret_cast<const char*>(given), std::min(given->size, sizeof out), reinterpret_cast<char*>(&out));
  return out;
}

}  // namespace sluice::library
