#include "proxy/body/url_query.h"

#include <algorithm>
#include <optional>

#include "base/hex.h"
#include "base/printable.h"
#include "proxy/body/json_body.h"

namespace sluice::proxy {
namespace {

std::optional<std::string> Decode(std::string_view raw) {
  std::string out;
  out.reserve(raw.size());
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '%') {
      out += raw[i] == '+' ? ' ' : raw[i];
      continue;
    }
    const int high = i + 2 < raw.size() ? HexValue(raw[i + 1]) : -1;
    const int low = high >= 0 ? HexValue(raw[i + 2]) : -1;
    if (low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  for (std::string_view rest = out; !rest.empty();) {
    const CodePoint point = DecodeUtf8(rest);
    if (point.size == 0 || point.value == 0) return std::nullopt;
    rest.remove_prefix(point.size);
  }
  return out;
}

}  // namespace

bool ForEachParameter(std::string_view query, const std::function<bool(QueryParameter)>& visit) {
  while (!query.empty()) {
    const size_t end = std::min(query.find_first_of("&;"), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (pair.empty()) continue;
    const size_t equals = std::min(pair.find('='), pair.size());
    auto key = Decode(pair.substr(0, equals));
    auto value = Decode(pair.substr(std::min(equals + 1, pair.size())));
    if (!key || !value) return false;
    if (!visit({*std::move(key), *std::move(value)})) return true;
  }
  return true;
}

std::string BareKey(std::string_view key) {
  key = key.substr(0, key.find('['));
  const size_t first = key.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return FoldCase(key.substr(first, key.find_last_not_of(" \t") - first + 1));
}

}  // namespace sluice::proxy
