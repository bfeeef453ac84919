#include "prover/process_domain.h"

#include <algorithm>
#include <memory>
#include <set>

#include "policy/match.h"
#include "prover/string_atoms.h"

namespace sluice::prover {
namespace {

using policy::Executable;
using policy::ExecutablePattern;
using policy::Rule;
using Digest = std::array<uint8_t, 32>;
using MaybeDigest = std::optional<Digest>;

constexpr std::string_view kSomeExecutable = "/usr/bin/a";

struct Named {
  std::set<std::string> literals{};
  std::vector<policy::Glob> globs{};
  std::set<Digest> digests{};
};

Named NamesOf(const std::vector<const Rule*>& rules) {
  Named named;
  std::set<std::string> seen;
  for (const Rule* rule : rules) {
    for (const auto* list : {&rule->by, &rule->under}) {
      for (const ExecutablePattern& pattern : *list) {
        if (pattern.sha256) {
          named.digests.insert(*pattern.sha256);
        } else if (pattern.path.is_literal()) {
          // The literal that is meant, not its spelling: "%2A" is a star.
          named.literals.insert(pattern.path.tokens().empty() ? "" : pattern.path.tokens()[0].literal);
        } else if (seen.insert(pattern.text).second) {
          named.globs.push_back(pattern.path);
        }
      }
    }
  }
  return named;
}

std::vector<std::string> Paths(const Named& named, Budget* budget) {
  std::vector<std::unique_ptr<Nfa>> nfas;
  std::vector<const Nfa*> patterns;
  for (const policy::Glob& glob : named.globs) {
    nfas.push_back(std::make_unique<Nfa>(OfGlob(glob)));
    patterns.push_back(nfas.back().get());
  }
  const std::unordered_set<std::string> literals(named.literals.begin(), named.literals.end());
  std::vector<std::string> paths = StringAtoms(patterns, Language::kExecutable, budget).Members(literals, budget);
  paths.insert(paths.end(), named.literals.begin(), named.literals.end());
  return paths;
}

// One that nobody names, one that could not be taken, and the named ones.
std::vector<MaybeDigest> Digests(const Named& named) {
  if (named.digests.empty()) return {std::nullopt};
  Digest other{};
  while (named.digests.contains(other)) ++other[31];
  std::vector<MaybeDigest> digests{other};
  digests.insert(digests.end(), named.digests.begin(), named.digests.end());
  digests.emplace_back(std::nullopt);
  return digests;
}

struct File {
  std::string path;
  MaybeDigest sha256;
};

std::vector<File> Files(const Named& named, const std::optional<std::vector<ManifestEntry>>& executables, Budget* budget) {
  std::vector<File> files;
  const std::vector<MaybeDigest> digests = Digests(named);
  if (!executables) {
    for (const std::string& path : Paths(named, budget))
      for (const MaybeDigest& digest : digests) files.push_back({path, digest});
    return files;
  }
  for (const ManifestEntry& entry : *executables) {
    if (entry.sha256) {
      files.push_back({entry.path, entry.sha256});
    } else {
      for (const MaybeDigest& digest : digests) files.push_back({entry.path, digest});
    }
  }
  return files;
}

std::vector<bool> Signature(const std::vector<const Rule*>& rules, const WitnessProcess& witness) {
  const auto process = AsProcess(witness);
  std::vector<bool> bits;
  for (const Rule* rule : rules) {
    if (!rule->allow) {
      bits.push_back(policy::DenyCoversProcess(*rule, process ? &*process : nullptr));
      continue;
    }
    bits.push_back(process && (rule->by.empty() || policy::AllowsExecutable(rule->by, process->exe)));
    bits.push_back(process && !rule->under.empty() && policy::AllowsExecutable(rule->under, process->exe));
  }
  return bits;
}

// Ancestors that differ for some `under`, and each two of them that differ from every one. A third only has more allows cover the
// process.
std::vector<std::vector<WitnessAncestor>> Ancestors(const std::vector<const Rule*>& rules, const std::vector<File>& files,
                                                    Lineage lineage, Budget* budget) {
  std::vector<std::vector<WitnessAncestor>> kept;
  std::vector<std::vector<bool>> of_one;
  std::set<std::vector<bool>> seen;
  for (const File& file : files) {
    const Executable exe{file.path, true, file.sha256};
    std::vector<bool> bits;
    for (const Rule* rule : rules)
      if (!rule->under.empty()) bits.push_back(policy::AllowsExecutable(rule->under, exe));
    if (std::find(bits.begin(), bits.end(), true) == bits.end() || !seen.insert(bits).second) continue;
    kept.push_back({{file.path, file.sha256}});
    of_one.push_back(std::move(bits));
  }
  for (size_t i = 0; lineage == Lineage::kTwo && i < of_one.size(); ++i) {
    for (size_t j = i + 1; j < of_one.size(); ++j) {
      if (!budget->Spend(1 + of_one[i].size() / 8)) return kept;
      std::vector<bool> bits = of_one[i];
      for (size_t b = 0; b < bits.size(); ++b) bits[b] = bits[b] || of_one[j][b];
      if (seen.insert(std::move(bits)).second) kept.push_back({kept[i].front(), kept[j].front()});
    }
  }
  return kept;
}

}  // namespace

std::optional<policy::Process> AsProcess(const WitnessProcess& witness) {
  using Kind = WitnessProcess::Kind;
  if (witness.kind == Kind::kUnknown) return std::nullopt;
  policy::Process process;
  process.pid = 1;
  process.exe.path = witness.kind == Kind::kAny ? std::string(kSomeExecutable) : witness.exe;
  process.exe.trusted = witness.kind != Kind::kUntrusted;
  process.exe.sha256 = witness.sha256;
  for (const WitnessAncestor& ancestor : witness.ancestors) process.ancestors.push_back({ancestor.exe, true, ancestor.sha256});
  return process;
}

std::vector<WitnessProcess> ProcessAtoms(const std::vector<const Rule*>& rules,
                                         const std::optional<std::vector<ManifestEntry>>& executables, Lineage lineage,
                                         Budget* budget) {
  using Kind = WitnessProcess::Kind;
  const bool named_at_all =
      std::any_of(rules.begin(), rules.end(), [](const Rule* r) { return !r->by.empty() || !r->under.empty(); });
  if (!named_at_all) return {WitnessProcess{}};
  const Named named = NamesOf(rules);
  const std::vector<File> files = Files(named, executables, budget);
  std::vector<WitnessProcess> all;
  for (const File& file : files) all.push_back({Kind::kNamed, file.path, file.sha256});
  for (const MaybeDigest& digest : Digests(named)) all.push_back({Kind::kUntrusted, "/tmp/a (deleted)", digest});
  all.push_back({Kind::kUnknown});
  std::vector<WitnessProcess> kept;
  std::set<std::vector<bool>> seen;
  for (const WitnessProcess& witness : all) {
    if (!budget->Spend(1 + rules.size())) return kept;
    if (seen.insert(Signature(rules, witness)).second) kept.push_back(witness);
  }
  // Without an ancestor first: it says less.
  const size_t alone = kept.size();
  for (const std::vector<WitnessAncestor>& ancestors : Ancestors(rules, files, lineage, budget)) {
    for (size_t i = 0; i < alone; ++i) {
      if (kept[i].kind == Kind::kUnknown) continue;
      kept.push_back(kept[i]);
      kept.back().ancestors = ancestors;
    }
  }
  return kept;
}

}  // namespace sluice::prover
