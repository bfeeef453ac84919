// What a launch file says, as the flags of `sluice run` say it.

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <utility>

#include "app/file.h"
#include "app/launch_file.h"
#include "app/run.h"
#include "base/stderr_lines.h"

namespace sluice::app {
namespace {

Result<std::string> ReadStandardInput() {
  std::string text;
  std::array<char, 65536> piece{};
  while (text.size() <= kMaxLaunchFile) {
    const ssize_t got = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FailErrno("--spec -: cannot read standard input", errno);
    if (got == 0) return text;
    text.append(piece.data(), static_cast<size_t>(got));
  }
  return Fail(Code::kExhausted, fmt::format("--spec -: more than {} octets", kMaxLaunchFile));
}

class Merge {
 public:
  explicit Merge(std::string folder) : folder_(std::move(folder)) {}

  std::string Path(const std::string& path) const {
    if (path.empty() || path.starts_with('/') || folder_.empty()) return path;
    return (std::filesystem::path(folder_) / path).lexically_normal().string();
  }
  static void One(const std::string& from_file, std::string* value) {
    if (value->empty()) *value = from_file;
  }
  void OnePath(const std::string& from_file, std::string* value) const { One(Path(from_file), value); }
  /// A file, or a descriptor that was inherited: "fd:N".
  std::string Place(const std::string& place) const { return place.starts_with("fd:") ? place : Path(place); }
  static void Number(std::optional<uint64_t> from_file, std::optional<uint64_t>* value) {
    if (!*value) *value = from_file;
  }
  // What flags add comes last, so that it wins where the last of several counts.
  static void Many(const std::vector<std::string>& from_file, std::vector<std::string>* values) {
    values->insert(values->begin(), from_file.begin(), from_file.end());
  }
  void ManyPlaces(const std::vector<std::string>& from_file, std::vector<std::string>* values) const {
    std::vector<std::string> places;
    for (const std::string& place : from_file) places.push_back(Place(place));
    Many(places, values);
  }
  void ManyPaths(const std::vector<std::string>& from_file, std::vector<std::string>* values) const {
    std::vector<std::string> paths;
    for (const std::string& path : from_file) paths.push_back(Path(path));
    Many(paths, values);
  }
  static void Pairs(const std::map<std::string, std::string>& from_file, std::vector<std::string>* values) {
    std::vector<std::string> pairs;
    for (const auto& [name, value] : from_file) pairs.push_back(name + "=" + value);
    Many(pairs, values);
  }

 private:
  std::string folder_;
};

// -1: the file does not name one.
Result<int> Descriptor(const RunOptions& options, std::string_view member, std::optional<uint64_t> number) {
  if (!number) return -1;
  if (!std::in_range<int>(*number))
    return Fail(Code::kInvalid, fmt::format("{}: `{}` {} is no descriptor", options.spec, member, *number));
  return static_cast<int>(*number);
}

// A policy that a flag names, as a file or as a descriptor, wins over the file's.
Result<void> MergePolicy(const Merge& merge, const LaunchFile& file, RunOptions* options) {
  auto fd = Descriptor(*options, "policy.fd", file.policy_fd);
  if (!fd) return std::unexpected(fd.error());
  if (options->policy.empty() && options->policy_fd < 0) {
    options->policy = merge.Path(file.policy);
    options->policy_fd = *fd;
  }
  Merge::Many(file.allow, &options->allows);
  Merge::Many(file.presets, &options->presets);
  if (options->policy_fd >= 0 && (!options->policy.empty() || !options->allows.empty() || !options->presets.empty()))
    return Fail(Code::kInvalid,
                fmt::format("{}: a policy that is read from a descriptor is the whole of it, without `file`, `allow` and "
                            "`presets`",
                            options->spec));
  return {};
}

Result<void> MergeLog(const LaunchFile& file, RunOptions* options) {
  auto fd = Descriptor(*options, "log-fd", file.log_fd);
  if (!fd) return std::unexpected(fd.error());
  options->quiet |= file.quiet;
  options->verbose |= file.verbose;
  if (*fd < 0 || options->log_fd >= 0) return {};
  options->log_fd = *fd;
  if (auto sent = SendLinesTo(*fd); !sent)
    return Fail(Code::kInvalid, fmt::format("{}: `log-fd`: {}", options->spec, sent.error().message));
  return {};
}

Result<void> MergeUpstream(const Merge& merge, const LaunchFile& file, RunOptions* options) {
  Merge::Many(file.resolvers, &options->resolvers);
  Merge::Many(file.stub_domains, &options->stub_domains);
  merge.ManyPaths(file.upstream_ca, &options->upstream_ca);
  merge.OnePath(file.ca_cert, &options->ca_cert);
  merge.OnePath(file.ca_key, &options->ca_key);
  if (options->ca_cert.empty() != options->ca_key.empty())
    return Fail(Code::kInvalid, fmt::format("{}: `ca-cert` and `ca-key` come together", options->spec));
  options->mirror_certificates |= file.mirror_certificates;
  Merge::One(file.via, &options->via.url);
  Merge::One(file.via_auth, &options->via.auth);
  merge.OnePath(file.via_ca, &options->via.ca);
  Merge::Many(file.via_except, &options->via.except);
  if (options->via.url.empty() && (!options->via.auth.empty() || !options->via.ca.empty() || !options->via.except.empty()))
    return Fail(Code::kInvalid,
                fmt::format("{}: `via-auth`, `via-ca` and `via-except` are of `via`, which is missing", options->spec));
  return {};
}

}  // namespace

std::optional<std::chrono::milliseconds> ParseDuration(const std::string& text) {
  uint64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || stop == text.data()) return std::nullopt;
  const std::string unit(stop, text.data() + text.size());
  uint64_t scale = 0;
  if (unit == "ms") scale = 1;
  if (unit == "s" || unit.empty()) scale = 1000;
  if (unit == "m") scale = 60'000;
  if (unit == "h") scale = 3'600'000;
  constexpr uint64_t kLongest = 365ull * 24 * 3'600'000;
  if (scale == 0 || number == 0 || number > kLongest / scale) return std::nullopt;
  return std::chrono::milliseconds(number * scale);
}

std::optional<uint64_t> ParseOctets(const std::string& text) {
  constexpr uint64_t kMost = (uint64_t{1} << 60) - 1;
  uint64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || stop == text.data()) return std::nullopt;
  const std::string unit(stop, text.data() + text.size());
  int shift = unit.empty() ? 0 : -1;
  if (unit == "K" || unit == "KiB") shift = 10;
  if (unit == "M" || unit == "MiB") shift = 20;
  if (unit == "G" || unit == "GiB") shift = 30;
  if (unit == "T" || unit == "TiB") shift = 40;
  if (shift < 0 || number == 0 || number > kMost >> shift) return std::nullopt;
  return number << shift;
}

Result<void> ReadLaunchFile(RunOptions* options) {
  if (options->spec.empty()) return {};
  const bool standard_input = options->spec == "-";
  auto text = standard_input ? ReadStandardInput() : ReadFile(options->spec, kMaxLaunchFile);
  if (!text)
    return std::unexpected(Error{Code::kInvalid, "--spec: " + text.error().message, text.error().sys_errno, std::nullopt});
  auto file = ParseLaunchFile(*text, standard_input ? "standard input" : options->spec);
  if (!file) return std::unexpected(file.error());
  const Merge merge(standard_input ? "" : std::filesystem::path(Absolute(options->spec)).parent_path().string());
  if (options->command.empty()) options->command = std::move(file->command);
  merge.OnePath(file->workspace, &options->workspace);
  merge.OnePath(file->cwd, &options->cwd);
  merge.ManyPaths(file->read_write, &options->read_write);
  merge.ManyPaths(file->read_only, &options->read_only);
  Merge::One(file->environment_inherit, &options->environment_inherit);
  Merge::Pairs(file->environment_set, &options->environment);
  Merge::Many(file->environment_pass, &options->environment);
  Merge::Many(file->environment_unsafe, &options->unsafe_environment);
  merge.OnePath(file->audit, &options->audit);
  Merge::One(file->name, &options->name);
  Merge::Pairs(file->labels, &options->labels);
  Merge::One(file->wall_time, &options->timeout);
  Merge::One(file->memory, &options->memory);
  Merge::One(file->output, &options->output_limit);
  Merge::Number(file->processes, &options->processes);
  Merge::Number(file->open_files, &options->open_files);
  Merge::Many(file->publish, &options->publish);
  Merge::One(merge.Place(file->transcript), &options->transcript);
  Merge::One(merge.Place(file->result), &options->result);
  Merge::Number(file->lifeline, &options->lifeline);
  Merge::One(file->on_disconnect, &options->on_disconnect);
  options->fail_on_deny |= file->fail_on_deny;
  options->kill_on_deny |= file->kill_on_deny;
  options->allow_user_namespaces |= file->allow_user_namespaces;
  options->allow_containers |= file->allow_containers;
  options->allow_nested |= file->allow_nested;
  merge.ManyPlaces(file->control, &options->control);
  options->await_hold |= file->await_hold;
  if (auto merged = MergePolicy(merge, *file, options); !merged) return merged;
  if (auto merged = MergeUpstream(merge, *file, options); !merged) return merged;
  return MergeLog(*file, options);
}

}  // namespace sluice::app
