#include "app/administration.h"

#include <fmt/format.h>

#include <cstdlib>

#include "app/file.h"
#include "app/host.h"
#include "app/run.h"
#include "base/log.h"

namespace sluice::app {
namespace {

constexpr std::chrono::milliseconds kPoll{30'000};
constexpr std::chrono::seconds kLeastPoll{1};
constexpr std::chrono::seconds kOverlayLook{60};  // as OpenSandbox looks
constexpr const char* kFrontAddress = ":18080";   // its default
constexpr const char* kFrontSource = "the OpenSandbox front";
constexpr const char* kFrontName = "opensandbox";
constexpr size_t kMaxKeyFile = 64 * 1024;

Result<ListenAddress> ParseFor(std::string_view flag, const std::string& text) {
  auto address = ParseListen(text);
  if (!address) {
    std::string message = address.error().message;
    // It speaks of the flag that reads most of them.
    if (constexpr std::string_view kOther = "--listen "; message.starts_with(kOther))
      message = fmt::format("{} {}", flag, message.substr(kOther.size()));
    return Fail(address.error().code, message);
  }
  return address;
}

Result<void> PlanAddresses(const AdminOptions& options, AdminPlan* plan) {
  AdminAddresses& addresses = plan->addresses;
  for (const std::string& text : options.admin) {
    auto address = ParseFor("--admin", text);
    if (!address) return std::unexpected(address.error());
    addresses.admin.push_back(*std::move(address));
  }
  addresses.token_file = options.admin_token;
  addresses.beyond_loopback = options.admin_open;
  if (!options.health.empty()) {
    auto address = ParseFor("--health", options.health);
    if (!address) return std::unexpected(address.error());
    addresses.health = *std::move(address);
  }
  return CheckAdminAddresses(addresses);
}

Result<void> PlanBundle(const AdminOptions& options, AdminPlan* plan) {
  if (auto good = CheckPolicyUrl(options.policy_url); !good) return good;
  auto pem = ReadFile(options.policy_key, kMaxKeyFile);
  if (!pem) return Fail(Code::kInvalid, fmt::format("--policy-key: {}", pem.error().message));
  auto keys = ReadBundleKeys(*pem, options.policy_key);
  if (!keys) return std::unexpected(keys.error());
  plan->policy_url = options.policy_url;
  plan->keys = *std::move(keys);
  plan->poll = kPoll;
  if (options.policy_poll.empty()) return {};
  const auto poll = ParseDuration(options.policy_poll);
  if (!poll || *poll < kLeastPoll)
    return Fail(Code::kInvalid,
                fmt::format("--policy-poll {}: write a duration of 1s at least, such as 30s or 5m", options.policy_poll));
  plan->poll = *poll;
  return {};
}

Result<void> PlanFront(AdminPlan* plan) {
  auto options = OpenSandboxFromEnvironment([](const char* name) -> const char* { return std::getenv(name); });
  if (!options) return std::unexpected(options.error());
  const char* named = std::getenv("OPENSANDBOX_EGRESS_HTTP_ADDR");
  std::string listen = named == nullptr || *named == '\0' ? kFrontAddress : named;
  if (listen.starts_with(':')) listen = "0.0.0.0" + listen;
  auto address = ParseFor("OPENSANDBOX_EGRESS_HTTP_ADDR", listen);
  if (!address) return std::unexpected(address.error());
  plan->addresses.front = *std::move(address);
  auto first = InitialEgressPolicy(*options, std::getenv("OPENSANDBOX_EGRESS_RULES"));
  if (!first) return std::unexpected(first.error());
  plan->front_first = *std::move(first);
  auto overlay = ReadOverlay(options->rules_folder);
  if (!overlay) return std::unexpected(overlay.error());
  plan->front_overlay = *std::move(overlay);
  if (options->token.empty())
    LogWarn(
        "OPENSANDBOX_EGRESS_TOKEN is not set: whoever reaches port {} from another host may change the policy, and nobody on "
        "this one",
        plan->addresses.front->endpoint.port);
  plan->front = *std::move(options);
  return {};
}

// A key that is no longer among those of --policy-key no longer vouches for what it signed once, nor for its serial.
void KeepSigned(AdminPlan* plan) {
  if (!plan->stored || plan->policy_url.empty()) return;
  const bool of_this_url = plan->stored->source == plan->policy_url;
  const auto serial = VerifyBundle(plan->keys, plan->stored->text, plan->stored->signature);
  if (of_this_url && serial) return;
  if (of_this_url) LogError("the policy that was kept of {} is not used: {}", plan->policy_url, serial.error().message);
  plan->stored.reset();
}

}  // namespace

Result<AdminPlan> PlanAdministration(const AdminOptions& options) {
  AdminPlan plan;
  if (auto planned = PlanAddresses(options, &plan); !planned) return std::unexpected(planned.error());
  if (!options.policy_url.empty())
    if (auto planned = PlanBundle(options, &plan); !planned) return std::unexpected(planned.error());
  if (!options.compat.empty())
    if (auto planned = PlanFront(&plan); !planned) return std::unexpected(planned.error());
  if (options.state.empty()) return plan;
  auto state = PolicyState::Open(options.state);
  if (!state) return std::unexpected(state.error());
  auto stored = state->Load();
  // What is damaged must neither widen nor stop the sidecar: the operator's own policy counts.
  if (!stored) {
    LogError("{}; it is not used", stored.error().message);
  } else {
    plan.stored = *std::move(stored);
    KeepSigned(&plan);
  }
  plan.state = *std::move(state);
  return plan;
}

PolicyOwner OwnerOf(const AdminPlan& plan) {
  if (plan.front) return PolicyOwner::kOpenSandbox;
  return plan.policy_url.empty() ? PolicyOwner::kFileOrApi : PolicyOwner::kBundle;
}

Result<std::optional<PolicyText>> FirstPolicy(const AdminPlan& plan, const std::string& own_digest) {
  switch (OwnerOf(plan)) {
    case PolicyOwner::kOpenSandbox: {
      auto text = NativeText(plan.front_first, plan.front_overlay);
      if (!text) return std::unexpected(text.error());
      return PolicyText{*std::move(text), kFrontName};
    }
    case PolicyOwner::kBundle:
      if (plan.stored && plan.stored->source == plan.policy_url) return PolicyText{plan.stored->text, plan.stored->name};
      return PolicyText{"version: 1\n", plan.policy_url};
    case PolicyOwner::kFileOrApi:
      break;
  }
  if (!plan.stored || plan.stored->source.starts_with("https://") || plan.stored->over != own_digest) return std::nullopt;
  return PolicyText{plan.stored->text, plan.stored->name};
}

std::string FirstSource(const AdminPlan& plan) {
  if (plan.front) return kFrontSource;
  return plan.stored ? plan.stored->source : plan.policy_url;
}

Result<std::unique_ptr<Administration>> Administration::Start(AdminPlan plan, AdminParts parts, ServedControl& control,
                                                              DecisionStream& stream) {
  std::unique_ptr<Administration> admin(new Administration);
  AdminApiOptions options;
  options.owner = OwnerOf(plan);
  options.compile = std::move(parts.compile);
  options.own_text = std::move(parts.own_text);
  options.state = plan.state;
  options.version = SLUICE_VERSION;
  if (!plan.policy_url.empty() && !(plan.stored && plan.stored->source == plan.policy_url)) options.awaits = plan.policy_url;
  options.own = std::move(parts.own);
  options.in_force = std::move(parts.in_force);
  admin->api_ = std::make_unique<AdminApi>(std::move(options), control, stream);
  AdminApi& api = *admin->api_;
  if (plan.front) {
    const auto apply = [&api](const std::string& text) {
      StoredPolicy next;
      next.text = text;
      next.name = kFrontName;
      next.source = kFrontSource;
      return api.Apply(std::move(next));
    };
    admin->front_ = std::make_unique<OpenSandboxFront>(*std::move(plan.front), std::move(plan.front_first),
                                                       std::move(plan.front_overlay), apply);
    admin->overlay_ = std::thread([self = admin.get()] { self->WatchOverlay(); });
  }
  const AdminAddresses& wanted = plan.addresses;
  if (!wanted.admin.empty() || wanted.health || wanted.front) {
    auto server = AdminServer::Start(std::move(plan.addresses), api, stream, admin->front_.get());
    if (!server) return std::unexpected(server.error());
    admin->server_ = *std::move(server);
  }
  if (plan.policy_url.empty()) return admin;
  StoredPolicy last;
  if (plan.stored && plan.stored->source == plan.policy_url) last = *std::move(plan.stored);
  admin->poll_ =
      std::make_unique<PolicyPoll>(PolicyPollOptions{plan.policy_url, std::move(plan.keys), plan.poll, std::move(parts.fetch),
                                                     [&api](StoredPolicy next) { return api.Apply(std::move(next)); }},
                                   std::move(last));
  return admin;
}

Administration::~Administration() {
  server_.reset();
  poll_.reset();
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (overlay_.joinable()) overlay_.join();
}

void Administration::WatchOverlay() {
  std::string told;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (wake_.wait_for(lock, kOverlayLook, [this] { return ending_; })) return;
    }
    const auto changed = front_->ReloadOverlay();
    if (!changed && changed.error().message != told) {
      told = changed.error().message;
      LogError("always rules: {}; those in force stay", told);
    }
    if (changed) told.clear();
    if (changed && *changed) LogInfo("always rules changed and are in force");
  }
}

}  // namespace sluice::app
