#include "app/served_policy.h"

#include <fmt/format.h>

#include <utility>

#include "app/exit_code.h"
#include "app/file.h"
#include "app/host.h"
#include "base/log.h"
#include "base/stderr_lines.h"
#include "dns/lease.h"
#include "policy/compiled.h"
#include "policy/credential.h"
#include "policy/io/load.h"

namespace sluice::app {
namespace {

constexpr size_t kLargestPem = 16u << 20;
constexpr const char* kWhereToLook = "; `sluice doctor` finds out what this machine lacks";

// What came from another tool's file does not always mean what its author thinks: what is wider or gives nothing is told at each
// load, the rest by `sluice lint`.
void TellImport(const policy::Snapshot& snapshot, const ServedOptions& options) {
  const auto& compiled = snapshot.compiled();
  if (compiled.origin.empty()) return;
  size_t rest = 0;
  for (const policy::Finding& remark : compiled.remarks) {
    if (remark.severity == policy::Finding::Severity::kNote) {
      ++rest;
    } else {
      LogWarn("{}:{}: {}", remark.span.file, remark.span.line, remark.message);
    }
  }
  LogInfo("{} is {}: {} rules, {} more remarks (sluice lint {})", options.policy, compiled.origin, compiled.rules.size(), rest,
          options.policy);
}

}  // namespace

Result<void> CheckServable(const policy::Snapshot& snapshot, std::string_view command, ServedIn where) {
  for (const policy::RuleRef ref : snapshot.UdpRules()) {
    const policy::RuleInfo* rule = snapshot.rule(ref);
    std::string why = fmt::format("`{}` carries no UDP but DNS, so this rule could never take effect; remove it", command);
    if (where == ServedIn::kSidecar) why = dns::WhyUnleasable(snapshot, ref);
    if (!why.empty()) return std::unexpected(Error{Code::kInvalid, fmt::format("`{}`: {}", rule->text, why), 0, rule->span});
  }
  const policy::Settings& settings = snapshot.settings();
  if (settings.dns == policy::DnsMode::kReal && where != ServedIn::kSidecar)
    return std::unexpected(
        Error{Code::kInvalid,
              fmt::format("`dns: real` is for `sluice sidecar` alone: `{}` knows each connection by an address "
                          "that stands for its name; remove it",
                          command),
              0, settings.dns_at});
  return {};
}

namespace {

// Read by each handshake with the proxy; a name mistyped is better told at once.
Result<void> CheckProxyRoots(const policy::Snapshot& snapshot) {
  for (const policy::UpstreamProxy& proxy : snapshot.proxies()) {
    if (proxy.ca_file.empty()) continue;
    if (auto content = ReadFile(proxy.ca_file, kLargestPem); !content)
      return std::unexpected(
          Error{Code::kInvalid, fmt::format("the roots of `{}`: {}", proxy.name, content.error().message), 0, proxy.span});
  }
  return {};
}

}  // namespace

void ChooseLogLevel(const ServedOptions& options) {
  if (options.quiet && GetLogLevel() == LogLevel::kInfo) SetLogLevel(LogLevel::kWarn);
}

int Report(const Error& error) {
  if (error.span) {
    QueueStderr(LineKind::kLog, policy::RenderError(error, StderrHasColor()) + "\n");
  } else {
    LogError("{}{}", error.message, error.code == Code::kUnsupported ? kWhereToLook : "");
  }
  return ExitCodeFor(error);
}

int ReportMachine(const Error& error, std::string_view mode) {
  LogError("{}; `sluice doctor --mode {}` finds out what this machine lacks", error.message, mode);
  return error.code == Code::kPermission ? kExitUnsupported : ExitCodeFor(error);
}

Result<void> CheckPolicyNamed(const ServedOptions& options) {
  if (!options.policy.empty() || !options.allows.empty() || !options.presets.empty() || options.policy_text) return {};
  return Fail(Code::kInvalid, "no policy; give --policy FILE, or at least one --allow RULE or --preset NAME");
}

Result<policy::SnapshotPtr> LoadPolicy(const ServedOptions& options, std::string_view command, ServedIn where) {
  policy::LoadOptions load;
  load.extra_allows = options.allows;
  load.extra_presets = options.presets;
  load.check_executables = options.check_executables && where != ServedIn::kContainer;
  auto via = ReadVia(options.via);
  if (!via) return std::unexpected(via.error());
  load.default_proxy = *std::move(via);
  auto snapshot = options.policy_text      ? policy::LoadText(*options.policy_text, kPolicyTextName, load)
                  : options.policy.empty() ? policy::LoadRules(load)
                                           : policy::LoadFile(options.policy, load);
  if (!snapshot) return snapshot;
  if (auto servable = CheckServable(**snapshot, command, where); !servable) return std::unexpected(servable.error());
  if (auto rooted = CheckProxyRoots(**snapshot); !rooted) return std::unexpected(rooted.error());
  return snapshot;
}

void TellPolicy(const policy::Snapshot& snapshot, const ServedOptions& options) {
  for (const policy::Finding& finding : policy::UnknownMethods(snapshot))
    LogWarn("{}:{}: {}", finding.span.file, finding.span.line, finding.message);
  TellImport(snapshot, options);
}

Result<std::map<std::string, std::string>> ParseLabels(const std::vector<std::string>& labels) {
  std::map<std::string, std::string> parsed;
  for (const std::string& label : labels) {
    const size_t equals = label.find('=');
    if (equals == std::string::npos || equals == 0)
      return Fail(Code::kInvalid, fmt::format("--label {}: write KEY=VALUE", label));
    if (!parsed.emplace(label.substr(0, equals), label.substr(equals + 1)).second)
      return Fail(Code::kInvalid, fmt::format("--label {}: the key was given twice", label));
  }
  return parsed;
}

Result<proxy::EngineOptions> MakeEngineOptions(const ServedOptions& options) {
  proxy::EngineOptions engine;
  for (const std::string& text : options.resolvers) {
    auto server = dns::ParseUpstreamServer(text);
    if (!server) return Fail(server.error().code, "--resolver " + server.error().message);
    engine.lookups.servers.push_back(*std::move(server));
  }
  for (const std::string& text : options.stub_domains) {
    auto stub = dns::ParseStubDomain(text);
    if (!stub) return Fail(stub.error().code, "--stub-domain " + stub.error().message);
    engine.lookups.stubs.push_back(*std::move(stub));
  }
  for (const std::string& file : options.upstream_ca) {
    if (auto content = ReadFile(file); !content)
      return Fail(Code::kInvalid, fmt::format("--upstream-ca: {}", content.error().message));
    engine.upstream_ca_files.push_back(Absolute(file));
    engine.lookups.tls_roots.push_back(engine.upstream_ca_files.back());
  }
  engine.mirror_certificates = options.mirror_certificates;
  auto addresses = HostAddresses();
  if (!addresses) return std::unexpected(addresses.error());
  engine.host_addresses = *std::move(addresses);
  return engine;
}

audit::Options MakeAuditOptions(const ServedOptions& options, std::map<std::string, std::string> labels,
                                std::string default_name) {
  audit::Options audit_options;
  audit_options.file = options.audit;
  audit_options.sandbox = options.name.empty() ? std::move(default_name) : options.name;
  audit_options.labels = std::move(labels);
  return audit_options;
}

}  // namespace sluice::app
