// The flags of the administration.
#include <CLI/CLI.hpp>
#include <memory>

#include "app/administration.h"
#include "app/health_probe.h"

namespace sluice::app {
namespace {

constexpr const char* kHealthExamples = R"(
Examples:
  sluice health 127.0.0.1:9090
  sluice health unix:/run/sluice/admin.sock --path /healthz --timeout 500ms

Exit code: 0 ready; 1 not ready, or nobody answers, and what does not hold on standard output; 2 bad input.)";

}  // namespace

void AddAdmin(CLI::App* sidecar, AdminOptions* options) {
  sidecar->add_option("--admin", options->admin, "Serve the admin API here: to this user alone, or with a token; repeatable")
      ->type_name("unix:/PATH|ADDRESS:PORT")
      ->allow_extra_args(false);
  sidecar
      ->add_option("--admin-token", options->admin_token,
                   "The bearer token for --admin ADDRESS:PORT, one line that others cannot read")
      ->type_name("FILE");
  sidecar->add_flag("--admin-open", options->admin_open,
                    "Let --admin listen beyond loopback, where the token crosses in the clear");
  sidecar->add_option("--health", options->health, "Serve /healthz, /readyz and /metrics here")
      ->type_name("ADDRESS:PORT|unix:/PATH");
  sidecar
      ->add_option(
          "--state", options->state,
          "Keep the last policy of the API or of a bundle, and the names that addresses were told for, here over restarts")
      ->type_name("DIR");
  CLI::Option* url =
      sidecar->add_option("--policy-url", options->policy_url, "Fetch the policy here, and its Ed25519 signature at URL.sig")
          ->type_name("URL");
  CLI::Option* key =
      sidecar->add_option("--policy-key", options->policy_key, "Public keys (PEM), one of which must have signed it")
          ->type_name("FILE");
  url->needs(key);
  key->needs(url);
  sidecar->add_option("--policy-poll", options->policy_poll, "How often it is asked for (default: 30s)")
      ->type_name("DURATION")
      ->needs(url);
  sidecar
      ->add_option("--compat", options->compat,
                   "Take the policy as another sidecar does: opensandbox (its variables, port and calls)")
      ->check(CLI::IsMember({"opensandbox"}))
      ->type_name("opensandbox")
      ->excludes(url);
}

std::pair<CLI::App*, std::function<int()>> AddHealth(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("health", "Ask a running sidecar whether it is ready");
  sub->footer(kHealthExamples);
  auto options = std::make_shared<HealthOptions>();
  sub->add_option("address", options->address, "ADDRESS:PORT of --health, or unix:/PATH of --admin")
      ->required()
      ->type_name("ADDRESS:PORT|unix:/PATH");
  sub->add_option("--path", options->path, "/readyz (default) or /healthz")
      ->check(CLI::IsMember({"/readyz", "/healthz"}))
      ->type_name("PATH");
  sub->add_option("--timeout", options->timeout, "For the whole question (default: 2s)")->type_name("DURATION");
  return {sub, [options] { return RunHealth(*options); }};
}

}  // namespace sluice::app
