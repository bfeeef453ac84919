#include "proxy/credential/redact.h"

#include <fmt/format.h>

#include <algorithm>

#include "proxy/credential/encoding.h"
#include "proxy/credential/secret.h"

namespace sluice::proxy {
namespace {

// One alphabet for both, and no padding, so that one search finds either.
std::string PlainAlphabet(std::string_view text) {
  std::string out(text);
  std::ranges::replace(out, '-', '+');
  std::ranges::replace(out, '_', '/');
  return out;
}

// Base64 of `secret` behind `lead` other octets: only the characters that no neighbour has a part in.
std::string Core(std::string_view secret, size_t lead) {
  std::string padded(lead, '\0');
  padded += secret;
  std::string encoded = Base64Encode(padded);
  Wipe(&padded);
  const size_t first = (lead * 8 + 5) / 6;
  const size_t last = (lead + secret.size()) * 8 / 6;
  std::string core = encoded.substr(first, last - first);
  Wipe(&encoded);
  return core;
}

}  // namespace

Redactor::~Redactor() {
  for (std::string& text : secrets_) Wipe(&text);
  for (std::string& text : cores_) Wipe(&text);
}

void Redactor::Add(std::string_view secret) {
  if (secret.size() < kMinRedacted || std::ranges::find(secrets_, secret) != secrets_.end()) return;
  secrets_.emplace_back(secret);
  for (size_t lead = 0; lead < 3; ++lead) {
    // Two characters say nothing: they would be found anywhere.
    if (std::string core = Core(secret, lead); core.size() >= kMinRedacted) cores_.push_back(std::move(core));
  }
}

std::optional<std::string> Redactor::Redact(std::string_view text) const {
  if (secrets_.empty() || text.size() < kMinRedacted) return std::nullopt;
  std::optional<std::string> out;
  for (const std::string& secret : secrets_) {
    for (size_t at = (out ? std::string_view(*out) : text).find(secret); at != std::string_view::npos;
         at = out->find(secret, at + kRedacted.size())) {
      if (!out) out.emplace(text);
      out->replace(at, secret.size(), kRedacted);
    }
  }
  const auto shows = [this](std::string_view decoded) {
    return std::ranges::any_of(secrets_, [&](const std::string& secret) { return decoded.contains(secret); });
  };
  const std::string_view rest = out ? std::string_view(*out) : text;
  if (rest.contains('%')) {
    // Twice, for a URL in a URL's parameter.
    const std::string once = PercentDecode(rest, Plus::kLiteral);
    if (shows(once) || shows(PercentDecode(rest, Plus::kSpace)) || shows(PercentDecode(once, Plus::kLiteral)))
      return std::string(kRedacted);
  }
  const std::string plain = PlainAlphabet(rest.contains('%') ? PercentDecode(rest, Plus::kLiteral) : std::string(rest));
  if (std::ranges::any_of(cores_, [&](const std::string& core) { return plain.contains(core); })) return std::string(kRedacted);
  return out;
}

void RedactHead(const Redactor& redactor, ResponseHead* head, std::deque<std::string>* kept) {
  if (redactor.empty()) return;
  if (auto clean = redactor.Redact(head->reason)) head->reason = kept->emplace_back(std::move(*clean));
  for (Field& field : head->fields) {
    if (auto clean = redactor.Redact(field.value)) field.value = kept->emplace_back(std::move(*clean));
    // A name of the secret's own characters: the field goes.
    if (redactor.Redact(field.name)) field.forward = false;
  }
}

void RedactLines(const Redactor& redactor, std::string* lines) {
  if (redactor.empty() || lines->empty()) return;
  std::string out;
  std::string_view rest = *lines;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end);
    const size_t colon = std::min(line.find(':'), line.size());
    if (!redactor.Redact(line)) {
      out += line;
    } else if (!redactor.Redact(line.substr(0, colon))) {
      out += fmt::format("{}: {}\r\n", line.substr(0, colon), kRedacted);
    }
  }
  *lines = std::move(out);
}

}  // namespace sluice::proxy
