// Options and runs of the C interface.

#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "library/handles.h"

namespace {

using sluice::Code;
using sluice::Error;
using sluice::Fail;
using sluice::Result;
using sluice::UniqueFd;
using sluice::library::Guard;
using sluice::library::Leave;
using sluice::library::TakeStruct;

constexpr uint32_t kMaxGraceMs = 60'000;
constexpr size_t kMaxWords = 65'536;

// Which flag of `sluice run` an option is.
constexpr std::array kFlags{"",
                            "--cwd",
                            "--rw",
                            "--ro",
                            "--env",
                            "--timeout",
                            "--name",
                            "--label",
                            "--audit",
                            "--resolver",
                            "--stub-domain",
                            "--upstream-ca",
                            "--ca-cert",
                            "--ca-key",
                            "--via",
                            "--control",
                            "",
                            "--workspace",
                            "--env-inherit",
                            "--unsafe-env",
                            "--max-memory",
                            "--max-processes",
                            "--max-open-files",
                            "--max-output",
                            "--transcript",
                            "--result",
                            "--publish",
                            "--on-disconnect",
                            "--via-auth",
                            "--via-ca",
                            "--via-except",
                            "--fail-on-deny",
                            "--kill-on-deny",
                            "--allow-nested",
                            "--allow-user-namespaces",
                            "--quiet",
                            "--allow-containers"};
static_assert(kFlags.size() == SLUICE_ALLOW_CONTAINERS + 1);

Result<void> NotNull(const void* handle, const char* function) {
  if (handle != nullptr) return {};
  return Fail(Code::kInvalid, fmt::format("{}: an argument is NULL", function));
}

// Callers from another process, or NULL; else the body.
template <class Body>
sluice_code WithRun(sluice_run* run, sluice_error** error, const Body& body) noexcept {
  bool forked = false;
  std::optional<sluice_code> said;
  const sluice_code done = Guard(error, [&]() -> Result<void> {
    if (run == nullptr) return Fail(Code::kInvalid, "the run is NULL");
    forked = !run->session->is_ours();
    if (forked) {
      said = Leave(error, Error{Code::kInvalid, "the run was started by another process, of which this one is a copy", 0, {}},
                   SLUICE_FORKED);
      return {};
    }
    return body();
  });
  return said.value_or(done);
}

// The same where callbacks are called, and may have freed the run.
template <class Body>
sluice_code Dispatching(sluice_run* run, sluice_error** error, const Body& body) noexcept {
  const sluice_code done = WithRun(run, error, [&]() -> Result<void> {
    if (run->session->InCallback())
      return Fail(Code::kInvalid, "a callback must not dispatch, or wait for, the run that called it");
    return body();
  });
  if (run == nullptr || run->session->InCallback() || !run->session->dropped()) return done;
  delete run;
  return SLUICE_ENDED;
}

sluice::library::RunCallbacks CallbacksOf(const sluice_callbacks& given) {
  sluice::library::RunCallbacks out;
  out.exchanges = given.exchanges != 0;
  if (given.record != nullptr)
    out.record = [given](const std::string& json) { given.record(given.context, json.c_str(), json.size()); };
  if (given.log != nullptr) out.log = [given](const std::string& line) { given.log(given.context, line.c_str(), line.size()); };
  if (given.ended != nullptr) out.ended = [given] { given.ended(given.context); };
  return out;
}

Result<sluice::library::SupervisorPlan> PlanOf(const sluice_options& options) {
  sluice::library::SupervisorPlan plan;
  if (options.command.empty()) return Fail(Code::kInvalid, "there is no command (sluice_options_set_command)");
  if (options.policy_file.empty() && !options.policy_text)
    return Fail(Code::kInvalid, "there is no policy (sluice_options_set_policy)");
  plan.program = options.program;
  if (plan.program.empty()) {
    auto installed = sluice::library::InstalledProgram();
    if (!installed) return std::unexpected(installed.error());
    plan.program = *std::move(installed);
  }
  plan.arguments = options.arguments;
  if (options.policy_text) {
    plan.policy_text = options.policy_text;
  } else {
    plan.arguments.push_back("--policy=" + options.policy_file);
  }
  plan.command = options.command;
  for (size_t i = 0; i < plan.streams.size(); ++i) plan.streams[i] = options.streams[i].get();
  return plan;
}

// A run that has ended answers nothing more.
Result<sluice::library::Answer> Request(sluice_run& run, const sluice::library::Question& question,
                                        std::optional<sluice_code>* code) {
  auto answer = run.session->Request(question);
  if (answer || answer.error().code == Code::kInvalid || answer.error().code == Code::kTimeout) return answer;
  if (answer.error().code == Code::kNotFound || answer.error().sys_errno == EPIPE || answer.error().sys_errno == ECONNRESET) {
    *code = SLUICE_ENDED;
    return Fail(Code::kNotFound, "the run has ended");
  }
  return answer;
}

template <class Take>
sluice_code Answered(sluice_run* run, sluice_error** error, const sluice::library::Question& question,
                     const Take& take) noexcept {
  std::optional<sluice_code> out;
  const sluice_code asked = WithRun(run, error, [&]() -> Result<void> {
    std::optional<sluice_code> special;
    const auto answer = Request(*run, question, &special);
    out = answer ? take(*answer) : Leave(error, answer.error(), special);
    return {};
  });
  return out.value_or(asked);
}

std::string TextOf(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// The administration's refusal as an error of the library's.
sluice_code Refused(sluice_error** error, const sluice::library::Answer& answer) {
  const nlohmann::json body = nlohmann::json::parse(answer.body, nullptr, false);
  std::string message = TextOf(body, "error");
  if (message.empty()) message = fmt::format("the supervisor answered {}", answer.status);
  if (const std::string detail = TextOf(body, "detail"); !detail.empty()) message = fmt::format("{}: {}", detail, message);
  const std::string code = TextOf(body, "code");
  if (code == "widens") return Leave(error, Error{Code::kPermission, message, 0, std::nullopt}, SLUICE_WIDENS);
  if (code == "another_revision") return Leave(error, Error{Code::kInvalid, message, 0, std::nullopt}, SLUICE_CONFLICT);
  const bool refused = answer.status == 401 || answer.status == 403;
  const Code kind = refused                ? Code::kPermission
                    : answer.status == 404 ? Code::kNotFound
                    : answer.status < 500  ? Code::kInvalid
                                           : Code::kInternal;
  return Leave(error, Error{kind, message, 0, std::nullopt});
}

void GiveText(sluice_text** out, std::string text) {
  if (out == nullptr) return;
  auto made = std::make_unique<sluice_text>();
  made->text = std::move(text);
  *out = made.release();
}

std::string ChangeTarget(uint32_t flags) {
  if ((flags & SLUICE_APPLY_ANYWAY) != 0) return "/v1/policy?prove=1&apply=1&widen=1";
  if ((flags & SLUICE_APPLY_NARROW) != 0) return "/v1/policy?prove=1&apply=1";
  return (flags & SLUICE_PROVE) != 0 ? "/v1/policy?prove=1" : "/v1/policy";
}

}  // namespace

sluice_options* sluice_options_new() noexcept { return new (std::nothrow) sluice_options; }
void sluice_options_free(sluice_options* options) noexcept { delete options; }

sluice_code sluice_options_set_command(sluice_options* options, const char* const* argv, sluice_error** error) noexcept {
  return Guard(error, [&]() -> Result<void> {
    if (options == nullptr || argv == nullptr) return NotNull(nullptr, "sluice_options_set_command");
    std::vector<std::string> command;
    for (; *argv != nullptr; ++argv) {
      if (command.size() == kMaxWords) return Fail(Code::kExhausted, "the command has too many arguments");
      command.emplace_back(*argv);
    }
    if (command.empty()) return Fail(Code::kInvalid, "the command is empty");
    options->command = std::move(command);
    return {};
  });
}

sluice_code sluice_options_set_policy(sluice_options* options, const sluice_policy* policy, sluice_error** error) noexcept {
  return Guard(error, [&]() -> Result<void> {
    if (options == nullptr || policy == nullptr) return NotNull(nullptr, "sluice_options_set_policy");
    options->policy_file = policy->file;
    options->policy_text = policy->text;
    return {};
  });
}

sluice_code sluice_options_set(sluice_options* options, sluice_option option, const char* value, sluice_error** error) noexcept {
  return Guard(error, [&]() -> Result<void> {
    if (options == nullptr || value == nullptr) return NotNull(nullptr, "sluice_options_set");
    if (*value == '\0') return Fail(Code::kInvalid, fmt::format("option {} has an empty value", option));
    if (option == SLUICE_PROGRAM) {
      options->program = value;
      return {};
    }
    if (option < SLUICE_WORK_DIRECTORY || option > SLUICE_ALLOW_CONTAINERS)
      return Fail(Code::kInvalid, fmt::format("there is no option {} in this version of the library", option));
    options->arguments.push_back(fmt::format("{}={}", kFlags[static_cast<size_t>(option)], value));
    return {};
  });
}

sluice_code sluice_options_set_streams(sluice_options* options, int input, int output, int error_output,
                                       sluice_error** error) noexcept {
  return Guard(error, [&]() -> Result<void> {
    if (options == nullptr) return NotNull(nullptr, "sluice_options_set_streams");
    const std::array given{input, output, error_output};
    std::array<UniqueFd, 3> streams;
    for (size_t i = 0; i < given.size(); ++i) {
      if (given[i] < 0) continue;
      auto copy = sluice::library::Duplicate(given[i]);
      if (!copy) return std::unexpected(copy.error());
      streams[i] = *std::move(copy);
    }
    options->streams = std::move(streams);
    return {};
  });
}

sluice_code sluice_options_set_callbacks(sluice_options* options, const sluice_callbacks* callbacks,
                                         sluice_error** error) noexcept {
  return Guard(error, [&]() -> Result<void> {
    if (options == nullptr) return NotNull(nullptr, "sluice_options_set_callbacks");
    const auto given = TakeStruct(callbacks, offsetof(sluice_callbacks, exchanges) + sizeof(int32_t));
    if (!given) return std::unexpected(given.error());
    options->callbacks = *given;
    return {};
  });
}

sluice_code sluice_options_set_loop(sluice_options* options, int32_t loop, sluice_error** error) noexcept {
  return Guard(error, [&]() -> Result<void> {
    if (options == nullptr) return NotNull(nullptr, "sluice_options_set_loop");
    if (loop != SLUICE_LOOP_CALLER && loop != SLUICE_LOOP_OWN)
      return Fail(Code::kInvalid, fmt::format("there is no loop {}", loop));
    options->loop = loop == SLUICE_LOOP_OWN ? sluice::library::Loop::kOwn : sluice::library::Loop::kCaller;
    return {};
  });
}

sluice_code sluice_start(const sluice_options* options, sluice_run** run, sluice_error** error) noexcept {
  return Guard(error, [&]() -> Result<void> {
    if (options == nullptr || run == nullptr) return NotNull(nullptr, "sluice_start");
    const auto plan = PlanOf(*options);
    if (!plan) return std::unexpected(plan.error());
    auto made = std::make_unique<sluice_run>();
    auto session = sluice::library::RunSession::Start(*plan, CallbacksOf(options->callbacks), options->loop);
    if (!session) return std::unexpected(session.error());
    made->session = *std::move(session);
    *run = made.release();
    return {};
  });
}

int sluice_run_fd(const sluice_run* run) noexcept { return run == nullptr ? -1 : run->session->fd(); }

sluice_code sluice_run_dispatch(sluice_run* run, sluice_error** error) noexcept {
  return Dispatching(run, error, [&]() -> Result<void> {
    if (run->session->fd() < 0) return Fail(Code::kInvalid, "the library dispatches this run itself (SLUICE_LOOP_OWN)");
    run->session->Dispatch();
    return {};
  });
}

sluice_code sluice_run_wait(sluice_run* run, int64_t timeout_ms, sluice_result* result, sluice_error** error) noexcept {
  return Dispatching(run, error, [&]() -> Result<void> {
    constexpr int64_t kLongest = int64_t{365} * 24 * 3'600'000;
    std::optional<std::chrono::milliseconds> longest;
    if (timeout_ms >= 0) longest = std::chrono::milliseconds(std::min(timeout_ms, kLongest));
    if (!run->session->Wait(longest)) return Fail(Code::kTimeout, "the run has not ended yet");
    if (result == nullptr) return {};
    const auto given = TakeStruct(result, sizeof(size_t));
    if (!given) return std::unexpected(given.error());
    const auto end = run->session->end();
    sluice_result out{};
    out.size = result->size;
    out.exit_code = end.exit_code;
    out.signal = end.signal;
    out.timed_out = end.timed_out ? 1 : 0;
    out.complete = end.complete ? 1 : 0;
    out.allowed = end.allowed;
    out.denied = end.denied;
    out.lost_records = end.lost_records;
    out.ended_by = end.ended_by;
    std::copy_n(reinterpret_cast<const char*>(&out), std::min(result->size, sizeof out), reinterpret_cast<char*>(result));
    return {};
  });
}

int32_t sluice_run_state(const sluice_run* run) noexcept {
  return run != nullptr && run->session->is_ours() && !run->session->ended() ? SLUICE_RUNNING : SLUICE_RUN_ENDED;
}

sluice_code sluice_run_stop(sluice_run* run, uint32_t grace_ms, sluice_error** error) noexcept {
  try {
    const sluice::library::Question question{.method = "POST",
                                             .target = fmt::format("/v1/stop?grace_ms={}", std::min(grace_ms, kMaxGraceMs))};
    return Answered(run, error, question,
                    [&](const auto& answer) { return answer.status == 202 ? SLUICE_OK : Refused(error, answer); });
  } catch (...) {
    return SLUICE_EXHAUSTED;
  }
}

sluice_code sluice_run_set_policy(sluice_run* run, const char* text, size_t size, uint32_t flags, uint64_t if_revision,
                                  uint64_t* revision, sluice_text** answer, sluice_error** error) noexcept {
  try {
    if (text == nullptr && size != 0)
      return Leave(error, Error{Code::kInvalid, "sluice_run_set_policy: the text is NULL", 0, {}});
    sluice::library::Question question{.method = "PUT", .target = ChangeTarget(flags)};
    question.body.assign(text == nullptr ? "" : text, size);
    if (if_revision != 0) question.if_revision = if_revision;
    return Answered(run, error, question, [&](const sluice::library::Answer& got) {
      const bool widens = got.status == 409 && got.body.find(R"("widens")") != std::string::npos;
      if (got.status == 200 || widens) GiveText(answer, got.body);
      if (got.status != 200) return Refused(error, got);
      const nlohmann::json body = nlohmann::json::parse(got.body, nullptr, false);
      if (revision != nullptr && body.is_object() && body.contains("revision") && body["revision"].is_number_unsigned())
        *revision = body["revision"].get<uint64_t>();
      return sluice_code{SLUICE_OK};
    });
  } catch (...) {
    return SLUICE_EXHAUSTED;
  }
}

sluice_code sluice_run_reload(sluice_run* run, sluice_error** error) noexcept {
  return WithRun(run, error, [&] { return run->session->Reload(); });
}

sluice_code sluice_run_status(sluice_run* run, sluice_text** status, sluice_error** error) noexcept {
  try {
    const sluice::library::Question question{.method = "GET", .target = "/v1/status"};
    return Answered(run, error, question, [&](const sluice::library::Answer& got) {
      if (got.status != 200) return Refused(error, got);
      GiveText(status, got.body);
      return sluice_code{SLUICE_OK};
    });
  } catch (...) {
    return SLUICE_EXHAUSTED;
  }
}

sluice_code sluice_run_request(sluice_run* run, const char* method, const char* target, const char* body, size_t size,
                               uint64_t if_revision, int32_t* http_status, sluice_text** answer, sluice_error** error) noexcept {
  try {
    if (method == nullptr || target == nullptr || (body == nullptr && size != 0))
      return Leave(error, Error{Code::kInvalid, "sluice_run_request: an argument is NULL", 0, {}});
    const std::string_view path(target, std::min(std::char_traits<char>::length(target), std::string_view(target).find('?')));
    if (path == "/v1/decisions" || path == "/v1/hold")
      return Leave(error, Error{Code::kInvalid, "what streams has no one answer: the record callback is for decisions", 0, {}});
    sluice::library::Question question{.method = method, .target = target};
    question.body.assign(body == nullptr ? "" : body, size);
    if (if_revision != 0) question.if_revision = if_revision;
    return Answered(run, error, question, [&](const sluice::library::Answer& got) {
      if (http_status != nullptr) *http_status = got.status;
      GiveText(answer, got.body);
      return sluice_code{SLUICE_OK};
    });
  } catch (...) {
    return SLUICE_EXHAUSTED;
  }
}

void sluice_run_free(sluice_run* run) noexcept {
  // Whoever dispatches still stands in it: that frees it when the callback has returned.
  if (run != nullptr && run->session->InCallback()) return run->session->Drop([run] { delete run; });
  delete run;
}
