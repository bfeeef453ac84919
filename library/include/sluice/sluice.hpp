// libsluice, the C++ interface (C++17): owners and values over sluice.h, all of it inline, so that the library's binary interface
// is the C one and no compiler or standard library has to fit another.
//
//   auto policy = sluice::Policy::FromFile("policy.yaml");
//   if (!policy) { std::cerr << policy.error().message << '\n'; return 2; }
//   auto decision = policy->Decide({"POST https://api.github.com/x"});
//
//   sluice::Options options;
//   options.Command({"make", "test"}).UsePolicy(*policy).Set(SLUICE_TIME_LIMIT, "10m");
//   options.OnRecord([](std::string_view json) { std::cout << json << '\n'; });
//   auto run = sluice::Run::Start(options);
//   if (run) std::cout << run->Wait()->exit_code << '\n';
//
// What sluice.h says of errors, owners, threads and bounds holds here too. Nothing here throws but std::bad_alloc, for want of
// memory in the caller's own strings; a callback that throws ends the program.
#ifndef SLUICE_SLUICE_HPP
#define SLUICE_SLUICE_HPP
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "sluice/sluice.h"

namespace sluice {
inline namespace api1 {

struct Failure {
  sluice_code code = SLUICE_OK;
  std::string message;  ///< for people
  std::string json;     ///< for programs
};

/// A value, or why there is none. Looking at a value that is not there is undefined, as with std::optional.
template <class T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Expected(Failure failure) : state_(std::in_place_index<1>, std::move(failure)) {}
  [[nodiscard]] bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }
  T& operator*() & noexcept { return *std::get_if<0>(&state_); }
  const T& operator*() const& noexcept { return *std::get_if<0>(&state_); }
  T&& operator*() && noexcept { return std::move(*std::get_if<0>(&state_)); }
  T* operator->() noexcept { return std::get_if<0>(&state_); }
  const T* operator->() const noexcept { return std::get_if<0>(&state_); }
  /// SLUICE_OK and empty texts where there is a value.
  [[nodiscard]] const Failure& error() const noexcept {
    static const Failure kNone;
    const Failure* const failure = std::get_if<1>(&state_);
    return failure != nullptr ? *failure : kNone;
  }

 private:
  std::variant<T, Failure> state_;
};
using Done = Expected<std::monostate>;

namespace detail {

template <class T, void (*Free)(T*) noexcept>
struct Freer {
  void operator()(T* handle) const noexcept { Free(handle); }
};
template <class T, void (*Free)(T*) noexcept>
using Handle = std::unique_ptr<T, Freer<T, Free>>;

inline Failure TakeFailure(sluice_code code, sluice_error* error) {
  Failure failure;
  failure.code = code;
  failure.message = sluice_error_message(error);
  failure.json = sluice_error_json(error);
  sluice_error_free(error);
  return failure;
}

inline Done AsDone(sluice_code code, sluice_error* error) {
  if (code == SLUICE_OK) return std::monostate{};
  return TakeFailure(code, error);
}

inline std::string TakeText(sluice_text* text) {
  std::string out(sluice_text_data(text), sluice_text_size(text));
  sluice_text_free(text);
  return out;
}

}  // namespace detail

/// Who asks what, and when; an empty text is unknown (of `at`: now).
struct Question {
  std::string question;
  std::string by{};
  std::string ip{};
  std::string at{};
};

struct Decision {
  bool allowed = false;
  std::string rule;  ///< the id of the rule that decided; empty where none did
  std::string json;  ///< as `sluice explain --format json`
};

struct Proof {
  int32_t verdict = SLUICE_UNKNOWN;
  std::string json;
};

/// Any thread may read it. No privilege, no process.
class Policy {
 public:
  static Expected<Policy> FromFile(const std::string& path) {
    sluice_policy* policy = nullptr;
    sluice_error* error = nullptr;
    const sluice_code code = sluice_policy_from_file(path.c_str(), &policy, &error);
    if (code != SLUICE_OK) return detail::TakeFailure(code, error);
    return Policy(policy);
  }
  static Expected<Policy> FromText(std::string_view text, const std::string& name = "policy") {
    sluice_policy* policy = nullptr;
    sluice_error* error = nullptr;
    const sluice_code code = sluice_policy_from_text(text.data(), text.size(), name.c_str(), &policy, &error);
    if (code != SLUICE_OK) return detail::TakeFailure(code, error);
    return Policy(policy);
  }

  [[nodiscard]] std::string digest() const { return sluice_policy_digest(policy_.get()); }
  [[nodiscard]] size_t rules() const noexcept { return sluice_policy_rules(policy_.get()); }
  [[nodiscard]] const sluice_policy* get() const noexcept { return policy_.get(); }

  [[nodiscard]] Expected<Decision> Decide(const Question& asked) const {
    const auto given = [](const std::string& text) { return text.empty() ? nullptr : text.c_str(); };
    const sluice_question question{sizeof(sluice_question), asked.question.c_str(), given(asked.by), given(asked.ip),
                                   given(asked.at)};
    sluice_decision* decision = nullptr;
    sluice_error* error = nullptr;
    const sluice_code code = sluice_decide(policy_.get(), &question, &decision, &error);
    if (code != SLUICE_OK) return detail::TakeFailure(code, error);
    const detail::Handle<sluice_decision, sluice_decision_free> held(decision);
    return Decision{sluice_decision_allowed(decision) == 1, sluice_decision_rule(decision), sluice_decision_json(decision)};
  }

  /// What `next` lets out that this one does not.
  [[nodiscard]] Expected<Proof> Prove(const Policy& next, uint64_t steps = 0) const {
    Proof proof;
    sluice_text* text = nullptr;
    sluice_error* error = nullptr;
    const sluice_code code = sluice_prove(policy_.get(), next.policy_.get(), steps, &proof.verdict, &text, &error);
    if (code != SLUICE_OK) return detail::TakeFailure(code, error);
    proof.json = detail::TakeText(text);
    return proof;
  }

 private:
  explicit Policy(sluice_policy* policy) : policy_(policy) {}
  detail::Handle<sluice_policy, sluice_policy_free> policy_;
};

/// On the thread that dispatches; none may dispatch, wait or destroy the run, or throw.
struct Callbacks {
  std::function<void(std::string_view json)> record;
  std::function<void(std::string_view line)> log;
  std::function<void()> ended;
  bool exchanges = false;
};

/// What to run. Setters can be strung together; the first failure is kept, and is what Run::Start gives.
class Options {
 public:
  Options() : options_(sluice_options_new()), callbacks_(std::make_unique<Callbacks>()) {}

  Options& Command(const std::vector<std::string>& command) {
    std::vector<const char*> argv;
    argv.reserve(command.size() + 1);
    for (const std::string& word : command) argv.push_back(word.c_str());
    argv.push_back(nullptr);
    return Keep([&](sluice_error** error) { return sluice_options_set_command(options_.get(), argv.data(), error); });
  }
  Options& UsePolicy(const Policy& policy) {
    return Keep([&](sluice_error** error) { return sluice_options_set_policy(options_.get(), policy.get(), error); });
  }
  Options& Set(sluice_option option, const std::string& value) {
    return Keep([&](sluice_error** error) { return sluice_options_set(options_.get(), option, value.c_str(), error); });
  }
  /// -1: this process's own.
  Options& Streams(int input, int output, int error_output) {
    return Keep(
        [&](sluice_error** error) { return sluice_options_set_streams(options_.get(), input, output, error_output, error); });
  }
  /// SLUICE_LOOP_CALLER or SLUICE_LOOP_OWN.
  Options& Loop(int32_t loop) {
    return Keep([&](sluice_error** error) { return sluice_options_set_loop(options_.get(), loop, error); });
  }
  Options& OnRecord(std::function<void(std::string_view)> record) {
    callbacks_->record = std::move(record);
    return *this;
  }
  Options& OnLog(std::function<void(std::string_view)> log) {
    callbacks_->log = std::move(log);
    return *this;
  }
  Options& OnEnded(std::function<void()> ended) {
    callbacks_->ended = std::move(ended);
    return *this;
  }
  Options& WithExchanges() {
    callbacks_->exchanges = true;
    return *this;
  }

 private:
  friend class Run;
  template <class Call>
  Options& Keep(Call call) {
    sluice_error* error = nullptr;
    const sluice_code code = call(&error);
    if (code == SLUICE_OK) return *this;
    Failure failure = detail::TakeFailure(code, error);
    if (!failure_) failure_ = std::move(failure);
    return *this;
  }

  detail::Handle<sluice_options, sluice_options_free> options_;
  std::unique_ptr<Callbacks> callbacks_;
  std::optional<Failure> failure_;
};

/// A command that is supervised. Killed with this object, where it has not ended.
class Run {
 public:
  /// Takes the callbacks out of `options`. Blocks until the command runs.
  static Expected<Run> Start(Options& options) {
    if (options.failure_) return *options.failure_;
    auto callbacks = std::exchange(options.callbacks_, std::make_unique<Callbacks>());
    sluice_callbacks given{};
    given.size = sizeof given;
    given.context = callbacks.get();
    if (callbacks->record)
      given.record = [](void* context, const char* json, size_t size) noexcept {
        static_cast<Callbacks*>(context)->record({json, size});
      };
    if (callbacks->log)
      given.log = [](void* context, const char* line, size_t size) noexcept {
        static_cast<Callbacks*>(context)->log({line, size});
      };
    if (callbacks->ended) given.ended = [](void* context) noexcept { static_cast<Callbacks*>(context)->ended(); };
    given.exchanges = callbacks->exchanges ? 1 : 0;
    sluice_error* error = nullptr;
    sluice_code code = sluice_options_set_callbacks(options.options_.get(), &given, &error);
    sluice_run* run = nullptr;
    if (code == SLUICE_OK) code = sluice_start(options.options_.get(), &run, &error);
    if (code != SLUICE_OK) return detail::TakeFailure(code, error);
    return Run(std::move(callbacks), run);
  }

  /// For poll and the like; -1 with a loop of the library's own.
  [[nodiscard]] int fd() const noexcept { return sluice_run_fd(run_.get()); }
  [[nodiscard]] bool running() const noexcept { return sluice_run_state(run_.get()) == SLUICE_RUNNING; }

  Done Dispatch() {
    sluice_error* error = nullptr;
    const sluice_code code = sluice_run_dispatch(run_.get(), &error);
    return detail::AsDone(code, error);
  }
  /// Nothing: for ever. SLUICE_TIMEOUT: not ended yet.
  Expected<sluice_result> Wait(std::optional<std::chrono::milliseconds> longest = std::nullopt) {
    sluice_result result{};
    result.size = sizeof result;
    sluice_error* error = nullptr;
    const sluice_code code = sluice_run_wait(run_.get(), longest ? longest->count() : -1, &result, &error);
    if (code != SLUICE_OK) return detail::TakeFailure(code, error);
    return result;
  }
  Done Stop(std::chrono::milliseconds grace) {
    sluice_error* error = nullptr;
    const sluice_code code = sluice_run_stop(run_.get(), static_cast<uint32_t>(grace.count()), &error);
    return detail::AsDone(code, error);
  }
  Done Reload() {
    sluice_error* error = nullptr;
    const sluice_code code = sluice_run_reload(run_.get(), &error);
    return detail::AsDone(code, error);
  }
  Expected<std::string> Status() {
    sluice_text* text = nullptr;
    sluice_error* error = nullptr;
    const sluice_code code = sluice_run_status(run_.get(), &text, &error);
    if (code != SLUICE_OK) return detail::TakeFailure(code, error);
    return detail::TakeText(text);
  }

  struct Change {
    uint64_t revision = 0;  ///< in force now
    std::string json;       ///< the answer, with the proof where one was asked for
  };
  /// flags: SLUICE_PROVE, SLUICE_APPLY_NARROW, SLUICE_APPLY_ANYWAY.
  Expected<Change> SetPolicy(std::string_view text, uint32_t flags = 0, uint64_t if_revision = 0) {
    Change change;
    sluice_text* answer = nullptr;
    sluice_error* error = nullptr;
    const sluice_code code =
        sluice_run_set_policy(run_.get(), text.data(), text.size(), flags, if_revision, &change.revision, &answer, &error);
    change.json = detail::TakeText(answer);
    if (code != SLUICE_OK) return detail::TakeFailure(code, error);
    return change;
  }

  struct Answer {
    int32_t status = 0;
    std::string body;
  };
  Expected<Answer> Request(const std::string& method, const std::string& target, std::string_view body = {},
                           uint64_t if_revision = 0) {
    Answer answer;
    sluice_text* text = nullptr;
    sluice_error* error = nullptr;
    const sluice_code code = sluice_run_request(run_.get(), method.c_str(), target.c_str(), body.data(), body.size(), if_revision,
                                                &answer.status, &text, &error);
    if (code != SLUICE_OK) return detail::TakeFailure(code, error);
    answer.body = detail::TakeText(text);
    return answer;
  }

 private:
  Run(std::unique_ptr<Callbacks> callbacks, sluice_run* run) : callbacks_(std::move(callbacks)), run_(run) {}
  std::unique_ptr<Callbacks> callbacks_;  // outlives the run
  detail::Handle<sluice_run, sluice_run_free> run_;
};

}  // namespace api1
}  // namespace sluice
#endif
