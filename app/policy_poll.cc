#include "app/policy_poll.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/printable.h"

namespace sluice::app {
namespace {

constexpr int kOk = 200;
constexpr int kNotModified = 304;

std::unexpected<Error> BadStatus(const std::string& url, int status) {
  return Fail(Code::kProtocol, fmt::format("{} answered {}", url, status));
}

}  // namespace

Result<void> CheckPolicyUrl(std::string_view url) {
  constexpr std::string_view kScheme = "https://";
  const auto refused = [&](std::string_view why) {
    return Fail(Code::kInvalid, fmt::format("--policy-url {}: {}", Printable(url), why));
  };
  if (!url.starts_with(kScheme)) return refused("write https://HOST[:PORT]/PATH");
  const std::string_view rest = url.substr(kScheme.size());
  const std::string_view authority = rest.substr(0, rest.find('/'));
  if (authority.empty() || authority.size() == rest.size()) return refused("it has no path");
  if (authority.find('@') != std::string_view::npos) return refused("it has a user; the signature is what is trusted");
  if (rest.find_first_of("?#") != std::string_view::npos) return refused("it has a query or a fragment");
  return {};
}

Result<PollOutcome> PollOnce(const PolicyPollOptions& options, StoredPolicy* last) {
  auto bundle = options.fetch(options.url, last->entity_tag, kMaxBundleBytes);
  if (!bundle) return std::unexpected(bundle.error());
  // Only where a tag was sent, so that nothing is taken for a good policy that never was one.
  if (bundle->status == kNotModified && !last->entity_tag.empty()) return PollOutcome::kSame;
  if (bundle->status != kOk) return BadStatus(options.url, bundle->status);
  const auto signature = options.fetch(options.url + ".sig", "", kMaxSignatureBytes);
  if (!signature) return std::unexpected(signature.error());
  if (signature->status != kOk) return BadStatus(options.url + ".sig", signature->status);
  const auto serial = VerifyBundle(options.keys, bundle->body, signature->body);
  if (!serial) return Fail(serial.error().code, fmt::format("{}: {}", options.url, serial.error().message));
  if (bundle->body == last->text) {
    last->entity_tag = std::move(bundle->entity_tag);
    return PollOutcome::kSame;
  }
  if (*serial < last->serial || (*serial == last->serial && *serial != 0))
    return Fail(Code::kPermission,
                fmt::format("{}: its serial {} is not newer than {}, which is in force; an older policy was served again",
                            options.url, *serial, last->serial));
  StoredPolicy next;
  next.text = std::move(bundle->body);
  next.name = options.url;
  next.source = options.url;
  next.entity_tag = std::move(bundle->entity_tag);
  next.serial = *serial;
  next.signature = SignatureText(*ReadSignature(signature->body));
  if (auto applied = options.apply(next); !applied) return std::unexpected(applied.error());
  *last = std::move(next);
  return PollOutcome::kNew;
}

std::chrono::milliseconds PollPause(std::chrono::milliseconds every, unsigned failures) {
  const std::chrono::milliseconds most = std::max<std::chrono::milliseconds>(every, kMaxPollBackoff);
  std::chrono::milliseconds pause = every;
  for (unsigned i = 0; i < failures && pause < most; ++i) pause *= 2;
  return std::min(pause, most);
}

PolicyPoll::PolicyPoll(PolicyPollOptions options, StoredPolicy last) : options_(std::move(options)), last_(std::move(last)) {
  thread_ = std::thread([this] { Run(); });
}

PolicyPoll::~PolicyPoll() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void PolicyPoll::Run() {
  unsigned failures = 0;
  std::string told;
  for (;;) {
    const auto outcome = PollOnce(options_, &last_);
    if (outcome) {
      if (failures != 0) LogInfo("{}: reached again", options_.url);
      failures = 0;
      told.clear();
    } else {
      ++failures;
      if (outcome.error().message != told) {
        told = outcome.error().message;
        LogError("policy bundle: {}; the policy in force stays", told);
      }
    }
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, PollPause(options_.every, failures), [this] { return ending_; })) return;
  }
}

}  // namespace sluice::app
