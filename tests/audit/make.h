#pragma once

// Events for the tests of audit/, with a real policy behind them.

#include <cstdlib>
#include <memory>
#include <string>

#include "policy/event.h"
#include "policy/io/load.h"

namespace sluice::audit {

inline policy::SnapshotPtr TestPolicy() {
  auto loaded = policy::LoadRules({.extra_allows = {"GET api.test/v1/**"}, .check_executables = false});
  if (!loaded) std::abort();
  return *loaded;
}

inline policy::ProcessPtr TestProcess() {
  auto process = std::make_shared<policy::Process>();
  process->pid = 4711;
  process->start_time = 99;
  process->uid = 1000;
  process->exe = {"/usr/bin/node", true, {}};
  process->comm = "node";
  process->ancestors = {{"/usr/bin/npm", true, {}}, {"/usr/bin/make", true, {}}};
  return process;
}

inline policy::DecisionEvent Denial() {
  policy::DecisionEvent event;
  event.time = WallTime(std::chrono::microseconds(1764427018123456));
  event.connection = 3;
  event.request = 2;
  event.layer = policy::EventLayer::kRequest;
  event.target = {
      .host = "telemetry.example", .port = 443, .scheme = "https", .method = "POST", .path = "/v1/event", .query = ""};
  event.process = TestProcess();
  event.decision = {false, policy::Reason::kNoRule, policy::RuleRef::kNone, false};
  event.advice.suggest = "POST telemetry.example/v1/event";
  event.advice.explanation = "nothing mentions telemetry.example";
  event.denial_id = "d-7";
  return event;
}

}  // namespace sluice::audit
