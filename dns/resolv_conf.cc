#include "dns/resolv_conf.h"

#include <algorithm>

namespace sluice::dns {
namespace {

constexpr std::string_view kBlank = " \t\r";

std::string_view TakeWord(std::string_view* line) {
  line->remove_prefix(std::min(line->find_first_not_of(kBlank), line->size()));
  const std::string_view word = line->substr(0, line->find_first_of(kBlank));
  line->remove_prefix(word.size());
  return word;
}

}  // namespace

std::vector<Endpoint> ParseResolvConf(std::string_view text) {
  std::vector<Endpoint> servers;
  while (!text.empty() && servers.size() < kMaxServers) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (TakeWord(&line) != "nameserver") continue;
    if (const auto address = IpAddress::Parse(TakeWord(&line))) servers.push_back({*address, 53});
  }
  return servers;
}

}  // namespace sluice::dns
