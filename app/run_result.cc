#include "app/run_result.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/file.h"
#include "app/served_control.h"
#include "supervisor/io/shared_sink.h"

namespace sluice::app {
namespace {

using Json = nlohmann::ordered_json;
using supervisor::EndedBy;
using supervisor::LimitBy;
using supervisor::LimitInForce;

std::string_view LimitText(LimitBy by) {
  switch (by) {
    case LimitBy::kCgroup2:
      return "cgroup 2";
    case LimitBy::kCgroup1:
      return "cgroup 1";
    case LimitBy::kEachProcess:
      return "each process";
    case LimitBy::kUser:
      return "user";
    case LimitBy::kSupervisor:
      return "supervisor";
  }
  return "";
}

// Filters kill a process that calls the kernel by another machine's numbers.
bool KilledByPolicy(const supervisor::ExitStatus& status) {
  return status.ended_by == EndedBy::kPolicy || status.signal == SIGSYS;
}

Json LimitsJson(const RunResult& result) {
  Json limits = Json::object();
  const auto add = [&limits](const char* name, const std::optional<LimitInForce>& limit) {
    if (limit) limits[name] = {{"value", limit->value}, {"by", LimitText(limit->by)}};
  };
  if (result.wall_time) limits["wall_time_ms"] = {{"value", result.wall_time->count()}, {"by", LimitText(LimitBy::kSupervisor)}};
  add("memory", result.limits.memory);
  add("processes", result.limits.processes);
  add("open_files", result.limits.open_files);
  add("output", result.limits.output);
  if (!result.limits.no_cgroup.empty()) limits["no_cgroup"] = result.limits.no_cgroup;
  return limits;
}

void AddStatus(const RunResult& result, Json* json) {
  if (!result.status) return;
  const supervisor::ExitStatus& status = *result.status;
  (*json)["ended_by"] = EndedText(status.ended_by);
  (*json)["command_exit"] = status.signal == 0 ? Json(status.code) : Json(nullptr);
  (*json)["command_signal"] = status.signal == 0 ? Json(nullptr) : Json(status.signal);
  (*json)["timed_out"] = status.timed_out;
  (*json)["killed_by_policy"] = KilledByPolicy(status);
}

void AddTraffic(const RunResult& result, const RunTally& tally, Json* json) {
  (*json)["allowed"] = result.totals.allowed;
  (*json)["denied"] = result.totals.denied;
  Json denials = Json::array();
  uint64_t told = 0;
  for (const std::string& line : tally.denials) {
    Json record = Json::parse(line, nullptr, false);
    if (record.is_discarded()) continue;
    told += record.value("count", uint64_t{1});
    denials.push_back(std::move(record));
  }
  (*json)["denials"] = std::move(denials);
  (*json)["denials_omitted"] = result.totals.denied > told ? result.totals.denied - told : 0;
  (*json)["bytes_up"] = tally.bytes_up;
  (*json)["bytes_down"] = tally.bytes_down;
  (*json)["audit_complete"] = result.audit_complete;
}

std::string Octets(uint64_t octets) {
  constexpr const char* kUnits[] = {"octets", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (octets >= 1024 && octets % 1024 == 0 && unit + 1 < std::size(kUnits)) {
    octets /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", octets, kUnits[unit]);
}

std::string ByText(LimitBy by) {
  if (by == LimitBy::kEachProcess) return "each process, by its resource limit";
  if (by == LimitBy::kUser) return "by the resource limit of its user in the sandbox";
  return fmt::format("by {}", by == LimitBy::kSupervisor ? "the supervisor" : LimitText(by));
}

}  // namespace

void RunTally::Saw(const policy::DecisionEvent& event, uint64_t times) noexcept {
  is_denial_ = !event.decision.allowed;
  if (is_denial_ && on_denial_) {
    on_denial_();
    on_denial_ = nullptr;
  }
  if (next_ != nullptr) next_->Saw(event, times);
}

void RunTally::Saw(const policy::ExchangeEvent& event) noexcept {
  is_denial_ = false;
  ++exchanges;
  bytes_up += event.bytes_up;
  bytes_down += event.bytes_down;
  if (next_ != nullptr) next_->Saw(event);
}

void RunTally::Line(std::string_view line) noexcept {
  if (keep_denials_ && is_denial_ && denials.size() < kMaxResultDenials && line.size() <= kMaxResultDenial &&
      quoted_ + line.size() <= kMaxResultDenialOctets) {
    denials.emplace_back(line);
    quoted_ += line.size();
  }
  if (next_ != nullptr && next_->wants_lines()) next_->Line(line);
}

std::string RunResultJson(const RunResult& result, const RunTally* tally) {
  Json json;
  json["version"] = 1;
  json["name"] = result.name;
  json["labels"] = result.labels;
  json["command"] = result.command;
  json["started"] = fmt::format("{:%FT%TZ}", std::chrono::floor<std::chrono::milliseconds>(result.started));
  json["duration_ms"] = result.duration.count();
  json["exit_code"] = result.exit_code;
  if (!result.error.empty()) json["error"] = result.error;
  AddStatus(result, &json);
  json["policy_digest"] = result.policy_digest;
  if (tally != nullptr) AddTraffic(result, *tally, &json);
  json["limits"] = LimitsJson(result);
  json["published"] = Json::array();
  for (const auto& port : result.published)
    json["published"].push_back({{"outside", port.outside.ToString()}, {"inside", port.inside}});
  if (result.status && (!result.transcript.empty() || result.limits.output)) json["output_octets"] = result.status->output;
  if (!result.transcript.empty()) {
    json["transcript"] = result.transcript;
    if (result.status) json["transcript_complete"] = result.status->transcript_complete;
  }
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

std::vector<std::string> DescribeLimits(const supervisor::LimitsInForce& limits,
                                        std::optional<std::chrono::milliseconds> wall_time) {
  std::vector<std::string> parts;
  if (wall_time)
    parts.push_back(fmt::format("wall time {}{} by the supervisor",
                                wall_time->count() % 1000 == 0 ? wall_time->count() / 1000 : wall_time->count(),
                                wall_time->count() % 1000 == 0 ? " s" : " ms"));
  if (limits.memory) parts.push_back(fmt::format("memory {} {}", Octets(limits.memory->value), ByText(limits.memory->by)));
  if (limits.processes) parts.push_back(fmt::format("{} processes {}", limits.processes->value, ByText(limits.processes->by)));
  if (limits.open_files)
    parts.push_back(fmt::format("{} open files {}", limits.open_files->value, ByText(limits.open_files->by)));
  if (limits.output) parts.push_back(fmt::format("output {} {}", Octets(limits.output->value), ByText(limits.output->by)));
  return parts;
}

Result<ResultFile> ResultFile::Open(const std::string& where) {
  if (where.starts_with("fd:")) {
    int number = -1;
    const char* const end = where.data() + where.size();
    const auto read = std::from_chars(where.data() + 3, end, number);
    if (read.ec != std::errc{} || read.ptr != end || number < 0)
      return Fail(Code::kInvalid, fmt::format("{}: write fd: and the number of a descriptor", where));
    const int flags = ::fcntl(number, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
      return Fail(Code::kInvalid, fmt::format("{}: no descriptor that can be written to was inherited with that number", where));
    UniqueFd own(::fcntl(number, F_DUPFD_CLOEXEC, 3));
    if (!own) return FailErrno(where, errno);
    // Whoever reads a pipe only once this process has ended must not keep it from ending.
    constexpr int kPipe = 1 << 20;
    (void)::fcntl(own.get(), F_SETPIPE_SZ, kPipe);
    return ResultFile("", std::move(own));
  }
  const std::string path = Absolute(where);
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600));
  if (!file) {
    Error error = SystemError(fmt::format("cannot write {}", path), errno);
    error.code = Code::kInvalid;
    return std::unexpected(std::move(error));
  }
  struct stat about{};
  if (::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) || about.st_nlink != 1)
    return Fail(Code::kInvalid, fmt::format("{} is no plain file of one name", path));
  if (::ftruncate(file.get(), 0) != 0) return FailErrno(fmt::format("cannot empty {}", path), errno);
  return ResultFile(path, std::move(file));
}

Result<void> ResultFile::Write(std::string_view text, std::function<void()> before_waiting) const {
  const supervisor::SharedSink sink(file_.get());
  for (size_t done = 0; done < text.size();) {
    const ssize_t put = sink.Write(text.data() + done, text.size() - done);
    if (put >= 0) {
      done += static_cast<size_t>(put);
      continue;
    }
    const int error = errno;
    constexpr auto kWaitMs = static_cast<int>(std::chrono::milliseconds(kResultWait).count());
    if (const auto say = error == EAGAIN ? std::exchange(before_waiting, nullptr) : nullptr) say();
    pollfd room{file_.get(), POLLOUT, 0};
    const int ready = error == EAGAIN ? ::poll(&room, 1, kWaitMs) : 1;
    if (ready < 0 && errno != EINTR) return FailErrno("the result was not written whole: cannot wait for its reader", errno);
    if (ready == 0) return Fail(Code::kTimeout, "the result was not written whole: nobody reads the descriptor that it goes to");
    if (error != EAGAIN && error != EINTR)
      return FailErrno(fmt::format("cannot write the result{}{}", path_.empty() ? "" : " to ", path_), error);
  }
  return {};
}

}  // namespace sluice::app
