#pragma once

// Short spellings of proofs.

#include <gtest/gtest.h>

#include <string>

#include "policy/io/load.h"
#include "prover/prove.h"
#include "prover/replay.h"
#include "tests/prover/small_world.h"

namespace sluice::prover {

/// A policy of these `rules:` lines, already indented by two; text with a `version:` is a whole file.
inline policy::SnapshotPtr Loaded(const std::string& text) {
  const bool whole = text.find("version:") != std::string::npos;
  auto snapshot = policy::LoadText(whole          ? text
                                   : text.empty() ? "version: 1\nrules: []\n"
                                                  : "version: 1\nrules:\n" + text,
                                   "p.yaml");
  if (!snapshot) throw std::runtime_error(policy::RenderError(snapshot.error(), false) + "\n" + text);
  return *snapshot;
}

inline std::string Shown(const Proof& proof) {
  std::string text = std::string(VerdictText(proof.verdict)) + " " + proof.why_unknown;
  for (const Difference& gain : proof.gains)
    text +=
        "\n + " + gain.witness.Text() + "  [" + std::string(policy::ReasonText(gain.refused_because)) + "] " + gain.region.Text();
  for (const Difference& loss : proof.losses)
    text +=
        "\n - " + loss.witness.Text() + "  [" + std::string(policy::ReasonText(loss.refused_because)) + "] " + loss.region.Text();
  return text;
}

inline bool Has(const std::vector<Difference>& differences, const std::string& witness) {
  for (const Difference& difference : differences)
    if (difference.witness.Text() == witness) return true;
  return false;
}

}  // namespace sluice::prover
