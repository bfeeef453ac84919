#include "proxy/denial.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace sluice::proxy {
namespace {

std::string VisibleAscii(std::string_view text, size_t limit) {
  std::string out;
  for (const char c : text.substr(0, limit)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return out;
}

std::string_view StatusTitle(uint16_t status) {
  switch (status) {
    case 400:
      return "Bad Request";
    case 200:  // the denial is within
    case 403:
      return "Egress denied";
    case 405:
      return "Method Not Allowed";
    case 407:
      return "Proxy Authentication Required";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 417:
      return "Expectation Failed";
    case 421:
      return "Misdirected Request";
    case 426:
      return "Upgrade Required";
    case 431:
      return "Request Header Fields Too Large";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Refused";
  }
}

std::string Sentence(const Denial& denial) {
  if (!denial.detail.empty()) return denial.detail;
  if (!denial.advice.explanation.empty()) return denial.advice.explanation;
  return fmt::format("the policy does not allow it ({})", policy::ReasonText(denial.decision.reason));
}

std::string Where(const policy::EventTarget& target) {
  std::string where = target.host;
  if (where.empty() && target.address) where = target.address->ToString();
  const uint16_t usual = target.scheme == "http" ? 80 : 443;
  if (target.port != 0 && target.port != usual) where += fmt::format(":{}", target.port);
  return where + target.path;
}

std::string ExecutableText(const policy::Executable& exe) { return VisibleAscii(exe.path, kMaxDenialText); }

std::string JsonBody(const Denial& denial) {
  nlohmann::ordered_json body;
  body["error"] = VisibleAscii(fmt::format("egress denied: {}", Sentence(denial)), kMaxDenialText);
  body["code"] = policy::ReasonText(denial.decision.reason);
  body["id"] = denial.id;
  body["method"] = denial.target.method;
  body["scheme"] = denial.target.scheme;
  body["host"] = denial.target.host.empty() && denial.target.address ? denial.target.address->ToString() : denial.target.host;
  body["port"] = denial.target.port;
  body["path"] = denial.target.path.substr(0, kMaxDenialText);
  if (denial.process != nullptr) {
    nlohmann::ordered_json process;
    process["pid"] = denial.process->pid;
    process["exe"] = ExecutableText(denial.process->exe);
    process["ancestors"] = nlohmann::ordered_json::array();
    for (const auto& ancestor : denial.process->ancestors) process["ancestors"].push_back(ExecutableText(ancestor));
    body["process"] = std::move(process);
  }
  if (!denial.nearest_rule.empty()) body["nearest_rule"] = denial.nearest_rule.substr(0, kMaxDenialText);
  if (!denial.advice.suggest.empty()) body["suggest"] = denial.advice.suggest.substr(0, kMaxDenialText);
  body["fixable_by"] = denial.advice.suggest.empty() ? "admin" : "you";
  body["retry"] = false;
  body["policy_digest"] = denial.policy_digest;
  return body.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string TextBody(const Denial& denial) {
  std::string text = fmt::format("sluice: denied {} {} ({})\n{}\n", denial.target.method, VisibleAscii(Where(denial.target), 512),
                                 denial.id, VisibleAscii(Sentence(denial), kMaxDenialText));
  if (!denial.advice.suggest.empty()) text += fmt::format("allow it: {}\n", VisibleAscii(denial.advice.suggest, kMaxDenialText));
  return text;
}

}  // namespace

DenialForm FormFor(const RequestHead& request) {
  const std::string_view path = request.target.substr(0, request.target.find('?'));
  const bool git = request.Find(FieldId::kUserAgent).starts_with("git/") ||
                   request.Find(FieldId::kContentType).starts_with("application/x-git-") || path.ends_with("/git-upload-pack") ||
                   path.ends_with("/git-receive-pack") ||
                   request.target.find("/info/refs?service=git-") != std::string_view::npos;
  return git ? DenialForm::kText : DenialForm::kJson;
}

std::string ReasonPhrase(const Denial& denial) {
  std::string phrase(StatusTitle(denial.status));
  const std::string tail = fmt::format(" ({})", denial.id);
  if (denial.status == 403 && !denial.advice.suggest.empty()) {
    phrase += fmt::format(": needs \"{}\"", denial.advice.suggest);
  } else {
    phrase += fmt::format(": {}", Sentence(denial));
  }
  const size_t room = kMaxReasonPhrase - tail.size();
  if (phrase.size() > room) phrase = phrase.substr(0, room - 3) + "...";
  return VisibleAscii(phrase + tail, kMaxReasonPhrase);
}

std::string_view DenialType(const Denial& denial, DenialForm form) {
  if (!denial.answer.empty()) return denial.answer_type;
  return form == DenialForm::kText ? "text/plain; charset=utf-8" : "application/json";
}

std::string DenialBody(const Denial& denial, DenialForm form) {
  if (!denial.answer.empty()) return denial.answer;
  return form == DenialForm::kText ? TextBody(denial) : JsonBody(denial);
}

void AppendDenial(Buffer* out, const Denial& denial, DenialForm form, Keep keep, std::string_view request_method) {
  const std::string body = DenialBody(denial, form);
  out->Append(fmt::format("HTTP/1.1 {} {}\r\n", denial.status, ReasonPhrase(denial)));
  out->Append(fmt::format("content-type: {}\r\n", DenialType(denial, form)));
  out->Append(fmt::format("content-length: {}\r\ncache-control: no-store\r\nproxy-status: sluice; error={}; details=\"{}\"\r\n",
                          body.size(), denial.proxy_error, denial.id));
  out->Append(fmt::format("x-sluice-denied: {}\r\n", denial.id));
  if (denial.status == 426) out->Append("sec-websocket-version: 13\r\nupgrade: websocket\r\nconnection: Upgrade\r\n");
  if (denial.status == 407) out->Append("proxy-authenticate: Basic realm=\"sluice\"\r\nproxy-authenticate: Bearer\r\n");
  if (denial.status == 405) out->Append(fmt::format("allow: {}\r\n", kForwardedMethods));
  out->Append(keep == Keep::kClose ? "connection: close\r\n\r\n" : "\r\n");
  if (request_method != "HEAD") out->Append(body);
}

}  // namespace sluice::proxy
