#include "app/proxy.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "app/exit_code.h"
#include "app/file.h"
#include "app/host.h"
#include "app/own_authority.h"
#include "app/proxy_listener.h"
#include "app/reload.h"
#include "app/sd_notify.h"
#include "app/service.h"
#include "app/standard_output.h"
#include "app/trust.h"
#include "base/log.h"
#include "policy/compiled.h"
#include "proxy/io/listener_tls.h"
#include "proxy/io/secret_store.h"
#include "proxy/io/tls.h"
#include "supervisor/io/privileges.h"

namespace sluice::app {
namespace {

constexpr std::string_view kCommand = "sluice proxy";

bool IsLoopbackOnly(const ListenAddress& address) {
  static const Cidr kV4 = Cidr::Of(IpAddress::FromV4(0x7f000000), 8);
  static const IpAddress kV6 = *IpAddress::Parse("::1");
  return !address.unix_path.empty() || address.endpoint.address == kV6 ||
         (address.endpoint.address.is_v4() && kV4.Contains(address.endpoint.address));
}

// What is decided before anything is bound.
struct Plan {
  std::map<std::string, std::string> labels;
  policy::SnapshotPtr snapshot;
  proxy::EngineOptions engine;
  std::vector<ListenAddress> listen;
  std::shared_ptr<proxy::ExplicitOptions> clients = std::make_shared<proxy::ExplicitOptions>();
  std::shared_ptr<proxy::CurrentTokens> tokens;
  /// Of no workload whose trees could be known: what clients may read is for whoever sets them up.
  std::shared_ptr<proxy::SecretStore> secrets = std::make_shared<proxy::SecretStore>(proxy::SecretStoreOptions{});
  std::chrono::milliseconds drain{};
  bool attributes = true;  ///< some client's process may be seen
};

Result<proxy::TokenTable> ReadTokens(const std::string& file) {
  auto text = ReadFile(file);
  if (!text) return Fail(Code::kInvalid, fmt::format("--tokens: {}", text.error().message));
  struct stat about{};
  if (stat(file.c_str(), &about) == 0 && (about.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Fail(Code::kInvalid, fmt::format("--tokens {}: others may write it (chmod go-w)", file));
  return proxy::TokenTable::Parse(*text, file);
}

Result<void> PlanClients(const ProxyOptions& options, Plan* plan) {
  proxy::ExplicitOptions& clients = *plan->clients;
  for (const std::string& text : options.proxy_protocol_from) {
    const auto from = Cidr::Parse(text);
    if (!from) return Fail(Code::kInvalid, fmt::format("--proxy-protocol-from {}: write an address or a CIDR", text));
    clients.proxy_protocol_from.push_back(*from);
  }
  if (!options.proxy_protocol.empty()) clients.proxy_protocol = proxy::ProxyProtocol::kRequired;
  if (clients.proxy_protocol == proxy::ProxyProtocol::kRequired && clients.proxy_protocol_from.empty())
    return Fail(Code::kInvalid, "--proxy-protocol required: say whose word is taken, by --proxy-protocol-from CIDR");
  if (clients.proxy_protocol == proxy::ProxyProtocol::kNone && !clients.proxy_protocol_from.empty())
    return Fail(Code::kInvalid, "--proxy-protocol-from without --proxy-protocol required has no effect");
  if (!options.tokens.empty()) {
    auto table = ReadTokens(options.tokens);
    if (!table) return std::unexpected(table.error());
    plan->tokens = std::make_shared<proxy::CurrentTokens>(*std::move(table));
    clients.tokens = plan->tokens;
  }
  if (options.tls_certificate.empty() != options.tls_key.empty())
    return Fail(Code::kInvalid, "--listen-tls-cert and --listen-tls-key go together");
  if (options.tls_certificate.empty() && !options.client_ca.empty())
    return Fail(Code::kInvalid, "--client-ca without --listen-tls-cert has no effect");
  if (options.tls_certificate.empty()) return {};
  auto tls = proxy::ListenerTls::Create({options.tls_certificate, options.tls_key, options.client_ca});
  if (!tls) return std::unexpected(tls.error());
  clients.tls = *std::move(tls);
  return {};
}

// Whoever reaches an open proxy acts with its reach.
Result<void> CheckOpen(const ProxyOptions& options, const Plan& plan) {
  const bool asked = !options.tokens.empty() || !options.client_ca.empty();
  if (asked || options.allow_open) return {};
  const auto open = std::ranges::find_if_not(plan.listen, IsLoopbackOnly);
  if (open == plan.listen.end()) return {};
  return Fail(Code::kInvalid,
              fmt::format("--listen {}: others than this machine may reach it, and no client is asked who it is; give --tokens "
                          "FILE or --client-ca FILE, listen on 127.0.0.1, or say --allow-open",
                          open->endpoint.ToString()));
}

// Whoever reaches the proxy acts with its credentials.
void TellCredentials(const ProxyOptions& options, const Plan& plan) {
  if (plan.snapshot->credentials().empty()) return;
  const bool asked = !options.tokens.empty() || !options.client_ca.empty();
  const auto open = std::ranges::find_if(plan.listen, [](const ListenAddress& address) { return address.unix_path.empty(); });
  if (!asked && open != plan.listen.end())
    LogWarn(
        "--listen {}: every user who reaches it acts with the policy's credentials; --tokens FILE, --client-ca FILE or a UNIX "
        "socket says who may",
        open->endpoint.ToString());
  if (!plan.secrets->stand_ins().empty() && !options.print_env)
    LogWarn("no client has the stand-ins of `send: placeholder`: --print-env prints them");
}

Result<Plan> MakePlan(const ProxyOptions& options) {
  Plan plan;
  if (options.listen.empty()) return Fail(Code::kInvalid, "no address; give --listen 127.0.0.1:3128, or another");
  for (const std::string& text : options.listen) {
    auto address = ParseListen(text);
    if (!address) return std::unexpected(address.error());
    plan.listen.push_back(*std::move(address));
  }
  auto drain = ParseDrain(options.drain);
  if (!drain) return std::unexpected(drain.error());
  plan.drain = *drain;
  auto labels = ParseLabels(options.labels);
  if (!labels) return std::unexpected(labels.error());
  plan.labels = *std::move(labels);
  auto snapshot = LoadPolicy(options, kCommand);
  if (!snapshot) return std::unexpected(snapshot.error());
  plan.snapshot = *std::move(snapshot);
  TellPolicy(*plan.snapshot, options);
  auto engine = MakeEngineOptions(options);
  if (!engine) return std::unexpected(engine.error());
  plan.engine = *std::move(engine);
  if (auto loaded = plan.secrets->Load(plan.snapshot->credentials(), plan.snapshot->proxies()); !loaded)
    return std::unexpected(loaded.error());
  plan.engine.secrets = plan.secrets;
  auto authority = MakeAuthority(options.ca_cert, options.ca_key, {});
  if (!authority) return std::unexpected(authority.error());
  plan.engine.authority = *std::move(authority);
  if (auto clients = PlanClients(options, &plan); !clients) return std::unexpected(clients.error());
  if (auto open = CheckOpen(options, plan); !open) return std::unexpected(open.error());
  if (!options.tokens.empty() && options.tls_certificate.empty() && !std::ranges::all_of(plan.listen, IsLoopbackOnly))
    LogWarn("tokens cross the network in the clear; --listen-tls-cert and --listen-tls-key keep them from whoever listens");
  plan.attributes = plan.clients->proxy_protocol == proxy::ProxyProtocol::kNone;
  return plan;
}

// A rule about processes where no process can be seen does something else than its author thinks.
void TellUnjudgeable(const policy::Snapshot& snapshot, const Plan& plan) {
  const bool local = plan.attributes && std::ranges::any_of(plan.listen, IsLoopbackOnly);
  const bool everyone = geteuid() == 0;
  size_t dimmed = 0;
  for (size_t i = 0; i < snapshot.compiled().rules.size(); ++i) {
    const policy::RuleInfo& rule = snapshot.rules()[i];
    const bool of_process = !snapshot.compiled().rules[i].by.empty() || !snapshot.compiled().rules[i].under.empty();
    if (!of_process) continue;
    if (!local) {
      LogWarn("{}: `{}`: no client's process can be seen here, so this rule {}", policy::PlaceText(rule.span, rule.origin),
              rule.text, rule.allow ? "never allows anything" : "denies this to every client");
    } else if (!everyone) {
      ++dimmed;
    }
  }
  if (dimmed != 0)
    LogWarn(
        "{} rules name processes, and of other users' clients none can be seen (only root could): no allow of theirs holds for "
        "those, and every deny does",
        dimmed);
  for (const std::string& path : snapshot.UnixPaths()) LogWarn("`unix {}`: no client can reach it through a proxy", path);
}

std::string UrlOf(const ListenAddress& address, bool tls) {
  if (!address.unix_path.empty()) return "unix:" + address.unix_path;
  Endpoint shown = address.endpoint;
  if (shown.address == IpAddress::FromV4(0)) shown.address = IpAddress::FromV4(0x7f000001);
  if (shown.address == IpAddress{}) shown.address = *IpAddress::Parse("::1");
  return fmt::format("{}://{}", tls ? "https" : "http", shown.ToString());
}

std::string Quote(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// For `eval "$(…)"`. A token is the client's own to add; stand-ins are worth nothing but here.
std::string EnvironmentText(const ProxyOptions& options, const ProxyListener& listener, const proxy::SecretStore& secrets) {
  std::string text;
  const auto set = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("export {}={}\n", name, Quote(value));
  };
  const auto first =
      std::ranges::find_if(listener.addresses(), [](const ListenAddress& address) { return address.unix_path.empty(); });
  if (first != listener.addresses().end()) {
    const std::string url = UrlOf(*first, !options.tls_certificate.empty());
    for (const char* name : {"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"}) set(name, url);
    set("NODE_USE_ENV_PROXY", "1");
  }
  for (const auto& given : secrets.stand_ins()) set(given.variable, given.text);
  if (!options.ca_out.empty()) set("NODE_EXTRA_CA_CERTS", Absolute(options.ca_out));
  if (options.bundle_out.empty()) return text;
  for (const char* name : BundleVariables()) set(name, Absolute(options.bundle_out));
  set("npm_config_cafile", Absolute(options.bundle_out));
  return text;
}

void Announce(const ProxyOptions& options, const ProxyListener& listener, const policy::Snapshot& snapshot) {
  if (options.quiet) return;
  std::string where;
  for (const ListenAddress& address : listener.addresses())
    where += (where.empty() ? "" : " ") + UrlOf(address, !options.tls_certificate.empty());
  LogInfo("ready  policy {}  {} rule{}  {}{}", snapshot.digest().substr(0, 12), snapshot.rules().size(),
          snapshot.rules().size() == 1 ? "" : "s", where, AuditModeRemark(snapshot));
}

Result<policy::SnapshotPtr> LoadAgain(const ProxyOptions& options, const Plan& plan) {
  auto snapshot = LoadPolicy(options, kCommand);
  if (!snapshot) return snapshot;
  if (auto read = plan.secrets->Load((*snapshot)->credentials(), (*snapshot)->proxies()); !read)
    return std::unexpected(read.error());
  if (plan.tokens != nullptr) {
    auto tokens = ReadTokens(options.tokens);
    if (!tokens) return std::unexpected(tokens.error());
    plan.tokens->Set(*std::move(tokens));
  }
  return snapshot;
}

Result<void> Serve(const ProxyOptions& options, Plan& plan, ProxyListener& listener, audit::Writer& writer) {
  policy::CurrentPolicy policy(plan.snapshot);
  if (auto written = WriteAuthority(options.ca_out, options.bundle_out, plan.engine.authority->pem()); !written) return written;
  plan.secrets->Watch();
  for (const ListenAddress& address : listener.addresses())
    if (address.unix_path.empty()) plan.clients->own.push_back(address.endpoint);
  plan.engine.explicit_proxy = plan.clients;
  plan.secrets->Watch();
  const std::vector<IpAddress> host_addresses = plan.engine.host_addresses;
  auto engine = proxy::Engine::Start(std::move(plan.engine), policy, writer);
  if (!engine) return std::unexpected(engine.error());
  auto watcher = PolicyWatcher::Start(
      plan.snapshot, [&] { return LoadAgain(options, plan); },
      [&](policy::SnapshotPtr next) -> Result<uint64_t> {
        TellPolicy(*next, options);
        TellUnjudgeable(*next, plan);
        policy.Set(std::move(next));
        (*engine)->PolicyChanged();
        return policy.generation();
      },
      ReloadNotice::kService);
  if (!watcher) return std::unexpected(watcher.error());
  const auto attribute = plan.attributes ? ProxyListener::Attribute::kProcesses : ProxyListener::Attribute::kNothing;
  if (auto started = listener.Start(**engine, policy, attribute, host_addresses); !started) return started;
  if (options.print_env) {
    std::fputs(EnvironmentText(options, listener, *plan.secrets).c_str(), stdout);
    if (auto printed = FlushStandardOutput(); !printed) return printed;
  }
  Announce(options, listener, *plan.snapshot);
  NotifyService("READY=1");
  (void)WaitForEnd(std::nullopt);
  NotifyService("STOPPING=1");
  listener.Stop();
  DrainEngine(**engine, plan.drain, options.quiet);
  return {};
}

}  // namespace

int RunProxy(const ProxyOptions& options) {
  ChooseLogLevel(options);
  if (auto named = CheckPolicyNamed(options); !named) return Report(named.error());
  BlockServiceSignals();
  const auto room = RaiseDescriptorLimit();
  if (!room) return Report(room.error());
  auto plan = MakePlan(options);
  if (!plan) return Report(plan.error());
  plan->engine.descriptors = {room->limit, room->ceiling};
  TellUnjudgeable(*plan->snapshot, *plan);
  TellCredentials(options, *plan);
  auto listener = ProxyListener::Open(plan->listen);
  if (!listener) return Report(listener.error());
  // Before the first thread; it holds the authority's key and, run by an ordinary user, is that user's as its clients are.
  if (auto kept = supervisor::KeepReadingOnly(); !kept) return Report(kept.error());
  if (auto forbidden = supervisor::ForbidDumps(); !forbidden) return Report(forbidden.error());
  auto writer = audit::Writer::Start(MakeAuditOptions(options, std::move(plan->labels), "proxy"));
  if (!writer) return Report(writer.error());
  if (auto served = Serve(options, *plan, **listener, **writer); !served) return Report(served.error());
  listener->reset();
  const audit::Totals totals = (*writer)->totals();
  const bool recorded = (*writer)->healthy();
  writer->reset();
  if (!options.quiet) LogInfo("ended · {} allowed · {} denied", totals.allowed, totals.denied);
  return recorded ? kExitOk : kExitFault;
}

}  // namespace sluice::app
