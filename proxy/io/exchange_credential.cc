#include "proxy/io/exchange_credential.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>

#include "base/clock.h"
#include "base/hex.h"
#include "policy/credential.h"
#include "proxy/credential/encoding.h"
#include "proxy/credential/sigv4.h"
#include "proxy/io/own_exchange.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
namespace {

using UseKind = policy::CredentialUse::Kind;
using TokenStep = SecretStore::TokenStep;

constexpr std::chrono::milliseconds kTokenPoll{20};
constexpr std::string_view kAstrayMessage = "a message with the stand-in of another credential";

Sha256Digest Sha256(std::string_view bytes) {
  Sha256Digest out{};
  EVP_Digest(bytes.data(), bytes.size(), out.data(), nullptr, EVP_sha256(), nullptr);
  return out;
}

Sha256Digest HmacSha256(std::string_view key, std::string_view bytes) {
  Sha256Digest out{};
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
       out.data(), &size);
  return out;
}

bool HasBody(const Framing& framing) {
  return framing.kind == BodyKind::kChunked || (framing.kind == BodyKind::kLength && framing.length != 0);
}

std::string_view FieldValue(const Head& head, std::string_view lower) {
  for (const Field& field : head.fields)
    if (EqualsLower(field.name, lower)) return field.value;
  return {};
}

}  // namespace

/// What a signature waits for.
struct ExchangeCredential::Pending {
  WorkloadSignature signature;
  policy::CredentialUse use;
};

ExchangeCredential::ExchangeCredential() = default;
ExchangeCredential::~ExchangeCredential() { Clear(); }

void ExchangeCredential::Clear() {
  head_.Clear();
  own_field_.clear();
  for (Swap& swap : swaps_) Wipe(&swap.to);
  swaps_.clear();
  swapper_.reset();
  scanner_.reset();
  forbidden_.clear();
  forbidden_names_.clear();
  redactor_ = Redactor();
  kept_.clear();
  secret_.reset();
  pending_.reset();
  astray_.reset();
  edited_ = needs_body_ = body_work_ = changes_length_ = false;
}

CredentialFailure ExchangeCredential::Failed(std::string_view why, uint16_t status) const {
  return {status, status == 502 ? policy::Reason::kUpstream : policy::Reason::kProtocol,
          fmt::format("credential {}: {}", name_, why)};
}

CredentialFailure ExchangeCredential::Astray(size_t stand_in) const {
  return {403, policy::Reason::kProtocol,
          fmt::format("the request carries the stand-in of credential {}, which the rule for it does not name",
                      forbidden_names_[stand_in])};
}

bool ExchangeCredential::Concerns(Worker& worker) {
  const SecretStore* store = worker.shared().options().secrets.get();
  return !worker.snapshot()->credentials().empty() || (store != nullptr && !store->stand_ins().empty());
}

void ExchangeCredential::ReadStandIns(const SecretStore& store, const policy::Credential* named) {
  for (const EnvironmentStandIn& given : store.stand_ins()) {
    const bool used = named != nullptr && named->send.kind == UseKind::kPlaceholder && named->send.text == given.variable;
    if (used) {
      swaps_.push_back({given.text, {}});
    } else {
      forbidden_.push_back(given.text);
      forbidden_names_.push_back(given.credential);
    }
  }
}

// A token that is there, or that a fetch brings: one at a time for all workers.
Task<std::optional<CredentialFailure>> ExchangeCredential::Apply(Worker& worker, Waiter& waiter, Request request) {
  Clear();
  request_ = std::move(request);
  SecretStore* store = store_ = worker.shared().options().secrets.get();
  const auto& credentials = request_.snapshot->credentials();
  const policy::Credential* credential = request_.credential < credentials.size() ? &credentials[request_.credential] : nullptr;
  if (credential != nullptr) name_ = credential->name;
  if (request_.credential != policy::kNoIndex16 && (credential == nullptr || store == nullptr))
    co_return Failed("its secret is not known here");
  if (store == nullptr) co_return std::nullopt;
  ReadStandIns(*store, credential);
  if (auto astray = FindStandIn(forbidden_, request_.head->fields, request_.target)) co_return Astray(*astray);
  const bool searchable = HasBody(request_.framing) && FieldValue(*request_.head, "content-encoding").empty();
  if (searchable && !forbidden_.empty()) {
    scanner_ = std::make_unique<StandInScanner>(forbidden_);
    body_work_ = true;
  }
  if (credential == nullptr) co_return std::nullopt;
  if (credential->send.kind == UseKind::kClientCertificate) {
    // It belongs to the TLS handshake: where that has not used it, nothing may go out in its name.
    if (request_.certificate == ClientCertificate::kUsed) co_return std::nullopt;
    co_return Failed("its client certificate is not used on this connection");
  }
  SecretLookup found;
  if (credential->from.kind != policy::SecretSource::Kind::kOauth) {
    found = store->Find(*credential);
  } else {
    const SteadyTime deadline = worker.reactor().now() + kOwnDeadline + std::chrono::seconds(5);
    for (;;) {
      const TokenStep step = store->TokenFor(credential->from, worker.reactor().now(), &found);
      if (step == TokenStep::kFetch || step == TokenStep::kUseAndFetch) worker.FetchTokenSoon(credential->from);
      if (step == TokenStep::kUse || step == TokenStep::kUseAndFetch || step == TokenStep::kFail) break;
      const Wake wake = co_await waiter.Wait({}, worker.reactor().now() + kTokenPoll);
      if (wake == Wake::kCancelled) co_return Failed("the exchange ended before a token came");
      if (worker.reactor().now() >= deadline) co_return Failed("no token came in time");
    }
  }
  if (found.secret == nullptr) co_return Failed(found.fault);
  secret_ = std::move(found.secret);
  co_return UseSecret(*credential);
}

std::optional<CredentialFailure> ExchangeCredential::UseSecret(const policy::Credential& credential) {
  const std::string_view secret = secret_->Reveal();
  std::vector<Field> fields;
  for (const Field& field : request_.head->fields)
    if (field.forward) fields.push_back(field);
  head_.fields = std::move(fields);
  head_.target = request_.target;
  head_.trailer = request_.head->trailer;
  edited_ = true;
  if (credential.send.kind == UseKind::kSigV4) return PrepareSignature(credential);
  redactor_.Add(secret);
  if (credential.send.kind == UseKind::kHeader) own_field_ = FoldFieldName(credential.send.text);
  if (credential.send.kind != UseKind::kPlaceholder) {
    if (auto added = AddCredential(credential.send, secret, &head_); !added) return Failed("its secret " + added.error().message);
    return std::nullopt;
  }
  if (auto fit = CheckSecretText(secret); !fit) return Failed("its secret " + fit.error().message);
  for (Swap& swap : swaps_) swap.to = secret;
  SwapHead(swaps_, &head_);
  if (!HasBody(request_.framing) || !FieldValue(*request_.head, "content-encoding").empty()) return std::nullopt;
  std::vector<Swap> body = SwapsFor(swaps_, BodyFormOf(FieldValue(*request_.head, "content-type")));
  if (body.empty()) return std::nullopt;
  changes_length_ = !KeepsLength(body);
  swapper_ = std::make_unique<StreamSwapper>(std::move(body));
  body_work_ = true;
  return std::nullopt;
}

std::optional<CredentialFailure> ExchangeCredential::PrepareSignature(const policy::Credential& credential) {
  auto keys = ParseAwsKeys(secret_->Reveal());
  if (!keys) return Failed("its secret " + keys.error().message);
  redactor_.Add(keys->key);
  redactor_.Add(keys->token);
  auto signature = ReadSignature(head_);
  if (!signature) return Failed(signature.error().message, 403);
  pending_ = std::make_unique<Pending>(Pending{std::move(*signature), credential.send});
  const std::string_view service = pending_->use.service.empty() ? pending_->signature.service : pending_->use.service;
  if (PayloadHashFor(pending_->signature, service) != PayloadHash::kOfBody) return Sign({});
  if (!HasBody(request_.framing)) return Sign({});
  needs_body_ = true;
  return std::nullopt;
}

std::optional<CredentialFailure> ExchangeCredential::Sign(std::string_view body) {
  needs_body_ = false;
  const policy::CredentialUse& use = pending_->use;
  const WorkloadSignature& signature = pending_->signature;
  std::string hash;
  switch (PayloadHashFor(signature, use.service.empty() ? signature.service : use.service)) {
    case PayloadHash::kDeclared:
      hash = signature.payload_hash;
      break;
    case PayloadHash::kOfBody:
      hash = HexText(Sha256(body));
      break;
    case PayloadHash::kUnsigned:
      hash = "UNSIGNED-PAYLOAD";
      break;
  }
  SignRequest sign;
  sign.method = request_.head->method;
  sign.host = request_.host;
  sign.region = use.region;
  sign.service = use.service;
  sign.now = std::chrono::duration_cast<std::chrono::seconds>(SystemClock().Wall().time_since_epoch()).count();
  sign.payload_hash = hash;
  const auto keys = ParseAwsKeys(secret_->Reveal());
  if (auto done = SignAnew(sign, signature, *keys, {Sha256, HmacSha256}, &head_); !done) return Failed(done.error().message, 403);
  return std::nullopt;
}

std::optional<CredentialFailure> ExchangeCredential::Body(std::string_view piece, std::string* out) {
  if (scanner_ != nullptr)
    if (const auto astray = scanner_->Push(piece)) return Astray(*astray);
  if (swapper_ != nullptr) {
    swapper_->Push(piece, out);
  } else {
    out->append(piece);
  }
  return std::nullopt;
}

void ExchangeCredential::FinishBody(std::string* out) {
  if (swapper_ != nullptr) swapper_->Finish(out);
}

std::optional<CredentialFailure> ExchangeCredential::Trailers(std::string* lines) {
  if (lines->empty()) return std::nullopt;
  OutgoingHead trailers;
  for (size_t at = 0, end = 0; (end = lines->find("\r\n", at)) != std::string::npos; at = end + 2)
    if (const auto field = ParseFieldLine({lines->data() + at, end - at})) trailers.fields.push_back(*field);
  if (auto astray = FindStandIn(forbidden_, trailers.fields, {})) return Astray(*astray);
  if (!own_field_.empty()) trailers.Remove(own_field_);
  (void)SwapHead(swaps_, &trailers);
  std::string left;
  for (const Field& field : trailers.fields) left += fmt::format("{}: {}\r\n", field.name, field.value);
  *lines = std::move(left);
  return std::nullopt;
}

WebSocketTextEdit ExchangeCredential::TextEdit() {
  // Only where one of ours is to be replaced: to be edited, a message must be held.
  if (!edited_ || std::ranges::all_of(swaps_, [](const Swap& swap) { return swap.to.empty(); })) return {};
  return [this](std::string_view text) -> std::expected<std::string, std::string_view> {
    for (size_t i = 0; i < forbidden_.size(); ++i) {
      if (!text.contains(forbidden_[i])) continue;
      astray_ = Astray(i);
      return std::unexpected(kAstrayMessage);
    }
    const size_t first = text.find_first_not_of(" \t\r\n");
    const bool json = first != text.npos && std::string_view("{[\"").find(text[first]) != text.npos;
    return SwapAll(text, SwapsFor(swaps_, json ? BodyForm::kJson : BodyForm::kVerbatim));
  };
}

WebSocketSearch ExchangeCredential::Search() {
  if (forbidden_.empty()) return {};
  scanner_ = std::make_unique<StandInScanner>(forbidden_);
  return [this](std::string_view piece) -> std::optional<std::string_view> {
    const auto astray = scanner_->Push(piece);
    if (!astray) return std::nullopt;
    astray_ = Astray(*astray);
    return kAstrayMessage;
  };
}

void ExchangeCredential::Answered(int status, SteadyTime now) {
  if (status != 401 || secret_ == nullptr || request_.credential >= request_.snapshot->credentials().size()) return;
  const policy::SecretSource& source = request_.snapshot->credentials()[request_.credential].from;
  if (source.kind == policy::SecretSource::Kind::kOauth) store_->TokenRefused(source, secret_, now);
}

void ExchangeCredential::Redact(ResponseHead* head) { RedactHead(redactor_, head, &kept_); }

void ExchangeCredential::RedactTrailers(std::string* lines) { RedactLines(redactor_, lines); }

}  // namespace sluice::proxy
