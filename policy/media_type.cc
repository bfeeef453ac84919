#include "policy/media_type.h"

#include <algorithm>

namespace sluice::policy {
namespace {

constexpr std::string_view kApplication = "application/";
constexpr std::string_view kBlank = " \t";

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return Lower(x) == Lower(y); });
}
bool EndsIgnoringCase(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && EqualIgnoringCase(text.substr(text.size() - end.size()), end);
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// The type without its parameters; empty where one of them may have the bytes read in another character set.
std::string_view TypeOfUtf8(std::string_view content_type) {
  const size_t end = std::min(content_type.find(';'), content_type.size());
  std::string_view parameters = content_type.substr(end);
  while (!parameters.empty()) {
    parameters.remove_prefix(1);
    const size_t next = std::min(parameters.find(';'), parameters.size());
    const std::string_view parameter = Trimmed(parameters.substr(0, next));
    if (!parameter.empty() && !EqualIgnoringCase(parameter, "charset=utf-8") &&
        !EqualIgnoringCase(parameter, "charset=\"utf-8\""))
      return {};
    parameters.remove_prefix(next);
  }
  return Trimmed(content_type.substr(0, end));
}

bool IsName(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (Lower(c) >= 'a' && Lower(c) <= 'z') || (c >= '0' && c <= '9') ||
           std::string_view("+-._").find(c) != std::string_view::npos;
  });
}

}  // namespace

std::string_view ContentTypeOf(std::span<const HeaderView> headers) {
  std::string_view found;
  bool seen = false;
  for (const auto& [name, value] : headers) {
    if (name != "content-type") continue;
    if (seen) return {};
    seen = true;
    found = value;
  }
  return found;
}

bool IsJson(std::string_view content_type) {
  std::string_view type = TypeOfUtf8(content_type);
  if (type.size() <= kApplication.size() || !EqualIgnoringCase(type.substr(0, kApplication.size()), kApplication)) return false;
  type.remove_prefix(kApplication.size());
  if (!IsName(type)) return false;
  return EqualIgnoringCase(type, "json") || EqualIgnoringCase(type, "json-rpc") || EqualIgnoringCase(type, "jsonrequest") ||
         EndsIgnoringCase(type, "+json");
}

bool IsLfsJson(std::string_view content_type) {
  return EqualIgnoringCase(TypeOfUtf8(content_type), "application/vnd.git-lfs+json");
}

bool IsGrpc(std::string_view content_type) {
  constexpr std::string_view kGrpc = "application/grpc";
  const std::string_view type = Trimmed(content_type.substr(0, content_type.find(';')));
  if (type.size() < kGrpc.size() || !EqualIgnoringCase(type.substr(0, kGrpc.size()), kGrpc)) return false;
  const std::string_view rest = type.substr(kGrpc.size());
  return rest.empty() || (rest.starts_with('+') && IsName(rest.substr(1)));
}

}  // namespace sluice::policy
