#include "supervisor/mount_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace sluice::supervisor {
namespace {

using testing::Contains;
using testing::Not;
using Kind = MountStep::Kind;

LaunchSpec Spec(std::string work) {
  LaunchSpec spec;
  spec.argv = {"true"};
  spec.work_directory = std::move(work);
  spec.environment = {{"HOME", "/home/u"}};
  return spec;
}

HostFacts Facts() {
  HostFacts facts;
  facts.system = {{"/usr", EntryKind::kDirectory, ""},   {"/bin", EntryKind::kSymlink, "usr/bin"},
                  {"/lib32", EntryKind::kAbsent, ""},    {"/etc", EntryKind::kDirectory, ""},
                  {"/etc/shadow", EntryKind::kFile, ""}, {"/etc/gshadow", EntryKind::kAbsent, ""}};
  return facts;
}

MountPlan Plan(const LaunchSpec& spec, const HostFacts& facts) {
  auto plan = PlanMounts(spec, facts);
  EXPECT_TRUE(plan.has_value()) << (plan ? "" : plan.error().message);
  return plan.value_or(MountPlan{});
}

// The position of the step for `target` of `kind`; -1 where there is none.
int At(const MountPlan& plan, Kind kind, std::string_view target) {
  const auto it =
      std::ranges::find_if(plan.steps, [&](const MountStep& step) { return step.kind == kind && step.target == target; });
  return it == plan.steps.end() ? -1 : static_cast<int>(it - plan.steps.begin());
}

const MountStep& Step(const MountPlan& plan, Kind kind, std::string_view target) {
  return plan.steps.at(static_cast<size_t>(At(plan, kind, target)));
}

TEST(MountPlan, StartsFromTheSystemReadOnly) {
  const auto plan = Plan(Spec("/work"), Facts());
  EXPECT_EQ(Step(plan, Kind::kShield, "/usr").access, Access::kReadOnly);
  EXPECT_EQ(Step(plan, Kind::kLink, "/bin").source, "usr/bin");
  EXPECT_EQ(At(plan, Kind::kBind, "/lib32"), -1);
  EXPECT_GE(At(plan, Kind::kMask, "/etc/shadow"), 0);
  EXPECT_EQ(At(plan, Kind::kMask, "/etc/gshadow"), -1);
  EXPECT_EQ(Step(plan, Kind::kBind, "/work").access, Access::kWritable);
}

TEST(MountPlan, ProcIsWritableWhereIdsMayBeMappedAlone) {
  for (const auto own : {OwnNamespaces::kRefused, OwnNamespaces::kAllowed, OwnNamespaces::kMapped}) {
    LaunchSpec spec = Spec("/work");
    spec.own_namespaces = own;
    const auto plan = Plan(spec, Facts());
    const bool writable = own == OwnNamespaces::kMapped;
    EXPECT_EQ(Step(plan, Kind::kProc, "/proc").access, writable ? Access::kWritable : Access::kReadOnly);
    EXPECT_EQ(plan.writable_processes, writable);
    EXPECT_THAT(plan.writable, Not(Contains("/proc")));
  }
}

TEST(MountPlan, ForContainersProcIsWholeAndNothingIsHeldWhereTheCommandMayWrite) {
  LaunchSpec spec = Spec("/work");
  spec.own_namespaces = OwnNamespaces::kContainers;
  const auto plan = Plan(spec, Facts());
  EXPECT_TRUE(plan.own_mounts);
  EXPECT_TRUE(Step(plan, Kind::kProc, "/proc").whole);
  EXPECT_EQ(Step(plan, Kind::kProc, "/proc").access, Access::kWritable);
  EXPECT_EQ(At(plan, Kind::kMask, "/proc/keys"), -1);
  EXPECT_GE(At(plan, Kind::kGroups, "/sys/fs/cgroup"), 0);
  EXPECT_GE(At(plan, Kind::kMask, "/etc/shadow"), 0) << "in a tree of the system's, which nobody may write";

  const auto refused = [&spec](const auto& change) {
    LaunchSpec with = spec;
    HostFacts facts = Facts();
    change(with, facts);
    const auto planned = PlanMounts(with, facts);
    with.own_namespaces = OwnNamespaces::kMapped;
    EXPECT_TRUE(PlanMounts(with, facts).has_value());
    return planned.has_value() ? std::string("planned") : planned.error().message;
  };
  EXPECT_THAT(refused([](LaunchSpec&, HostFacts& facts) { facts.run_later = {{"/work/.git/hooks", EntryKind::kDirectory, ""}}; }),
              testing::HasSubstr("/work/.git is to be held"));
  EXPECT_THAT(refused([](LaunchSpec&, HostFacts& facts) { facts.protect = {{"/work/p.yaml", EntryKind::kFile, ""}}; }),
              testing::HasSubstr("/work/p.yaml is to be held"));
  EXPECT_THAT(refused([](LaunchSpec&, HostFacts& facts) { facts.sockets = {"/work/s.sock"}; }),
              testing::HasSubstr("/work/s.sock is to be held"));
  EXPECT_THAT(refused([](LaunchSpec& with, HostFacts&) { with.read_only = {"/work/fixed"}; }),
              testing::HasSubstr("/work/fixed is to be held"));
  EXPECT_EQ(refused([](LaunchSpec& with, HostFacts& facts) {
              with.read_only = {"/given"};
              facts.sockets = {"/given/s.sock"};
            }),
            "planned")
      << "where the command may not write it can take nothing away";
  EXPECT_EQ(refused([](LaunchSpec& with, HostFacts&) { with.read_write = {"/work/more"}; }), "planned");
}

TEST(MountPlan, ATreeWithMountsBelowItIsShownByItsEntries) {
  HostFacts facts = Facts();
  facts.opened = {{"/etc",
                   {{"/etc/ssl", EntryKind::kDirectory, ""},
                    {"/etc/hosts", EntryKind::kFile, ""},
                    {"/etc/mtab", EntryKind::kSymlink, "../proc/mounts"},
                    {"/etc/given", EntryKind::kDirectory, ""},
                    {"/etc/apt", EntryKind::kDirectory, ""}}},
                  {"/etc/ssl", {{"/etc/ssl/mounted", EntryKind::kFile, ""}}}};
  LaunchSpec spec = Spec("/work");
  spec.read_write = {"/etc/given"};
  const auto plan = Plan(spec, facts);
  EXPECT_EQ(At(plan, Kind::kShield, "/etc"), -1);
  EXPECT_EQ(At(plan, Kind::kShield, "/etc/ssl"), -1);
  EXPECT_GE(At(plan, Kind::kShield, "/etc/apt"), 0);
  EXPECT_EQ(Step(plan, Kind::kBind, "/etc/hosts").access, Access::kReadOnly);
  EXPECT_EQ(Step(plan, Kind::kLink, "/etc/mtab").source, "../proc/mounts");
  EXPECT_EQ(Step(plan, Kind::kBind, "/etc/given").access, Access::kWritable);
  EXPECT_EQ(At(plan, Kind::kShield, "/etc/given"), -1);
  EXPECT_LT(At(plan, Kind::kFolder, "/etc"), At(plan, Kind::kFolder, "/etc/ssl"));
  EXPECT_LT(At(plan, Kind::kFolder, "/etc/ssl"), At(plan, Kind::kBind, "/etc/ssl/mounted"));
}

TEST(MountPlan, ATreeAtHandWithoutItsMountsIsShieldedAndTheyAreLaidOverIt) {
  HostFacts facts = Facts();
  facts.bare = {"/etc", "/etc/deep"};
  facts.mounted = {{{"/etc/deep", EntryKind::kDirectory, ""}, true},
                   {{"/etc/deep/file", EntryKind::kFile, ""}, true},
                   {{"/etc/hosts", EntryKind::kFile, ""}, true},
                   {{"/etc/secret", EntryKind::kFile, ""}, false},
                   {{"/etc/shallow", EntryKind::kDirectory, ""}, true}};
  const auto plan = Plan(Spec("/work"), facts);
  EXPECT_TRUE(Step(plan, Kind::kShield, "/etc").bare);
  EXPECT_TRUE(Step(plan, Kind::kShield, "/etc/deep").bare);
  EXPECT_FALSE(Step(plan, Kind::kShield, "/etc/shallow").bare);
  EXPECT_FALSE(Step(plan, Kind::kShield, "/usr").bare);
  EXPECT_EQ(Step(plan, Kind::kBind, "/etc/hosts").access, Access::kReadOnly);
  EXPECT_GE(At(plan, Kind::kMask, "/etc/secret"), 0);
  EXPECT_EQ(At(plan, Kind::kBind, "/etc/secret"), -1);
  EXPECT_LT(At(plan, Kind::kShield, "/etc"), At(plan, Kind::kShield, "/etc/deep"));
  EXPECT_LT(At(plan, Kind::kShield, "/etc/deep"), At(plan, Kind::kBind, "/etc/deep/file"));
}

TEST(MountPlan, AParentComesBeforeWhatLiesBelow) {
  LaunchSpec spec = Spec("/home/u/p/q");
  spec.read_only = {"/home/u/p", "/home/u/.pyenv", "/home/u/p/q/vendor"};
  const auto plan = Plan(spec, Facts());
  EXPECT_LT(At(plan, Kind::kScratch, "/home/u"), At(plan, Kind::kBind, "/home/u/p"));
  EXPECT_LT(At(plan, Kind::kBind, "/home/u/p"), At(plan, Kind::kBind, "/home/u/p/q"));
  EXPECT_LT(At(plan, Kind::kBind, "/home/u/p/q"), At(plan, Kind::kBind, "/home/u/p/q/vendor"));
}

TEST(MountPlan, HomeIsScratchUnlessItIsGranted) {
  EXPECT_THAT(Plan(Spec("/work"), Facts()).writable, Contains("/home/u"));
  EXPECT_EQ(At(Plan(Spec("/home/u"), Facts()), Kind::kScratch, "/home/u"), -1);
  EXPECT_EQ(At(Plan(Spec("/home"), Facts()), Kind::kScratch, "/home/u"), -1);
  for (const char* home : {"", "relative", "/", "/usr/home", "/proc/x", "/tmp", "/dev/shm", "/home/u/"}) {
    LaunchSpec spec = Spec("/work");
    spec.environment = {{"HOME", home}};
    EXPECT_THAT(Plan(spec, Facts()).writable, testing::UnorderedElementsAre("/dev/shm", "/tmp", "/run", "/var/tmp", "/work"))
        << home;
  }
}

TEST(MountPlan, NothingOfTheViewIsMadeInsideAGrantedTree) {
  LaunchSpec spec = Spec("/work");
  spec.read_write = {"/var"};
  const auto plan = Plan(spec, Facts());
  EXPECT_LT(At(plan, Kind::kBind, "/var"), At(plan, Kind::kScratch, "/var/tmp"));  // private whatever is granted
  EXPECT_EQ(At(plan, Kind::kFolder, "/var"), -1);
  EXPECT_GE(At(plan, Kind::kBind, "/var"), 0);
}

TEST(MountPlan, RefusesGrantsThatOpenTheView) {
  for (const char* path :
       {"/", "", "work", "/work/", "/proc", "/proc/1", "/sys", "/dev", "/dev/shm", "/tmp", "/run", "/var/tmp"}) {
    EXPECT_FALSE(PlanMounts(Spec(path), Facts()).has_value()) << path;
    LaunchSpec spec = Spec("/work");
    spec.read_only = {path};
    EXPECT_FALSE(PlanMounts(spec, Facts()).has_value()) << path;
  }
  LaunchSpec both = Spec("/work");
  both.read_only = both.read_write = {"/data"};
  EXPECT_EQ(PlanMounts(both, Facts()).error().message, "/data is both --rw and --ro");
  LaunchSpec read_only_work = Spec("/work");
  read_only_work.read_only = {"/work"};
  EXPECT_EQ(Step(Plan(read_only_work, Facts()), Kind::kBind, "/work").access, Access::kReadOnly);
}

TEST(MountPlan, AProtectedFileIsLockedAndItsFoldersPinned) {
  HostFacts facts = Facts();
  facts.protect = {{"/work/a/b/p.yaml", EntryKind::kFile, ""}, {"/usr/bin/sluice", EntryKind::kFile, ""}};
  const auto plan = Plan(Spec("/work"), facts);
  EXPECT_LT(At(plan, Kind::kPin, "/work/a"), At(plan, Kind::kPin, "/work/a/b"));
  EXPECT_LT(At(plan, Kind::kPin, "/work/a/b"), At(plan, Kind::kLock, "/work/a/b/p.yaml"));
  EXPECT_EQ(At(plan, Kind::kPin, "/work"), -1);
  EXPECT_EQ(At(plan, Kind::kLock, "/usr/bin/sluice"), -1) << "not writable anyway";
  EXPECT_THAT(plan.must_be_read_only, testing::ElementsAre("/work/a/b/p.yaml"));
}

TEST(MountPlan, TheRootFolderIsRefusedWithARemedy) {
  const auto plan = PlanMounts(Spec("/"), Facts());
  ASSERT_FALSE(plan.has_value());
  EXPECT_THAT(plan.error().message, testing::HasSubstr("name one below it, with --cwd or --workspace"));
}

TEST(MountPlan, AProtectedFileThatCannotBeHeldIsRefused) {
  HostFacts absent = Facts();
  absent.protect = {{"/work/audit.jsonl", EntryKind::kAbsent, ""}};
  EXPECT_FALSE(PlanMounts(Spec("/work"), absent).has_value());
  HostFacts granted = Facts();
  granted.protect = {{"/work", EntryKind::kDirectory, ""}};
  EXPECT_FALSE(PlanMounts(Spec("/work"), granted).has_value());
  LaunchSpec inner = Spec("/work");
  inner.read_only = {"/work/conf"};
  EXPECT_TRUE(PlanMounts(inner, Facts()).has_value());
  HostFacts in_read_only = Facts();
  in_read_only.protect = {{"/work/conf/new.yaml", EntryKind::kAbsent, ""}};
  EXPECT_TRUE(PlanMounts(inner, in_read_only).has_value()) << "the inner grant decides";
}

TEST(MountPlan, SocketsAreMaskedLastUnlessTheyAreGranted) {
  HostFacts facts = Facts();
  facts.sockets = {"/work/a.sock", "/work/b.sock"};
  facts.run_later = {{"/work/.git/hooks", EntryKind::kDirectory, ""}};
  LaunchSpec spec = Spec("/work");
  spec.unix_sockets = {"/work/b.sock", "/var/lib/x.sock"};
  const auto plan = Plan(spec, facts);
  EXPECT_GT(At(plan, Kind::kMask, "/work/a.sock"), At(plan, Kind::kPin, "/work/.git"));
  EXPECT_EQ(At(plan, Kind::kMask, "/work/b.sock"), -1);
  EXPECT_EQ(At(plan, Kind::kBind, "/work/b.sock"), -1);
  EXPECT_GE(At(plan, Kind::kBind, "/var/lib/x.sock"), 0);
  EXPECT_GE(At(plan, Kind::kLock, "/work/.git/hooks"), 0);
}

TEST(MountPlan, WhatHoldsASecretIsHiddenOrRefused) {
  struct Row {
    const char* path;
    bool planned;
    bool masked;
  };
  const Row rows[] = {{"/etc/sluice/token", true, true},
                      {"/home/me/token", true, false},
                      {"/work/token", false, false},
                      {"/data/token", false, false},
                      {"/etcetera/token", true, false}};
  for (const Row& row : rows) {
    LaunchSpec spec = Spec("/work");
    spec.read_only = {"/data"};
    spec.hide = {row.path};
    const auto plan = PlanMounts(spec, Facts());
    ASSERT_EQ(plan.has_value(), row.planned) << row.path;
    if (plan) EXPECT_EQ(At(*plan, Kind::kMask, row.path) >= 0, row.masked) << row.path;
  }
}

TEST(MountPlan, IsBounded) {
  HostFacts facts = Facts();
  for (size_t i = 0; i < kMaxMountSteps; ++i) facts.sockets.push_back("/work/" + std::to_string(i));
  EXPECT_EQ(PlanMounts(Spec("/work"), facts).error().code, Code::kExhausted);
  LaunchSpec spec = Spec("/work");
  for (size_t i = 0; i < kMaxGrantedTrees; ++i) spec.read_only.push_back("/data/" + std::to_string(i));
  EXPECT_EQ(PlanMounts(spec, Facts()).error().code, Code::kExhausted);
}

TEST(MountPlan, WithinIsByWholeNames) {
  EXPECT_TRUE(IsWithin("/work", "/work"));
  EXPECT_TRUE(IsWithin("/work/a", "/work"));
  EXPECT_FALSE(IsWithin("/workshop", "/work"));
  EXPECT_FALSE(IsWithin("/", "/work"));
}

}  // namespace
}  // namespace sluice::supervisor
