// A region on one line, as its author would write the rule: what has its default is left out.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "prover/prove.h"

namespace sluice::prover {
namespace {

using Texts = std::vector<std::string>;

const RegionField& FieldOf(const Region& region, std::string_view name) {
  static const RegionField kAbsent{};
  const auto it = std::find_if(region.fields.begin(), region.fields.end(), [&](const auto& field) { return field.name == name; });
  return it == region.fields.end() ? kAbsent : *it;
}

std::string FirstOf(const RegionField& field) { return field.values.empty() ? "" : field.values.front(); }

bool Has(const Texts& list, std::string_view word) { return std::find(list.begin(), list.end(), word) != list.end(); }

void Except(const Texts& except, std::string* out) {
  if (!except.empty()) *out += fmt::format(" except {}", fmt::join(except, ", "));
}

// "GET,POST"; GET means HEAD too, and `http` every method.
std::string Methods(const Texts& all, Texts* except) {
  constexpr std::array<std::string_view, 6> kCommon = {"DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT"};
  if (Has(all, "*")) {
    for (const std::string_view method : kCommon)
      if (!Has(all, method)) except->emplace_back(method);
    return "http";
  }
  Texts shown;
  for (const std::string& method : all)
    if ((method != "HEAD" || !Has(all, "GET")) && (method != "websocket" || all.size() == 1)) shown.push_back(method);
  return fmt::format("{}", fmt::join(shown, ","));
}

std::string Host(const Region& region) {
  const std::string host = FirstOf(FieldOf(region, "host"));
  if (host.find(':') == std::string::npos) return host;
  // A port could not be told from the rest of a bare IPv6 address.
  const size_t slash = host.find('/');
  return fmt::format("[{}]{}", host.substr(0, slash), slash == std::string::npos ? "" : host.substr(slash));
}

std::string HttpText(const Region& region) {
  const bool https = FirstOf(FieldOf(region, "scheme")) != "http";
  const RegionField& git = FieldOf(region, "operation");
  const RegionField& repos = FieldOf(region, "repo");
  RegionField paths = repos.values.empty() ? FieldOf(region, "path") : repos;
  // A call of gRPC stands apart from its host.
  if (FirstOf(git) == "grpc")
    for (std::string& path : paths.values) path.front() = ' ';
  const Texts& ports = FieldOf(region, "port").values;
  Texts except;
  const std::string verb = git.values.empty() ? Methods(FieldOf(region, "method").values, &except) : FirstOf(git);
  std::string text = fmt::format("{} {}{}", verb, https ? "" : "http://", Host(region));
  if (ports != Texts{https ? "443" : "80"}) text += fmt::format(":{}", fmt::join(ports, ","));
  if (paths.values != Texts{"/**"} || !paths.except.empty()) text += fmt::format("{}", fmt::join(paths.values, " or "));
  for (const Texts& more : {FieldOf(region, "host").except, paths.except}) except.insert(except.end(), more.begin(), more.end());
  Except(except, &text);
  return text;
}

std::string Target(const Region& region) {
  const std::string layer = FirstOf(FieldOf(region, "layer"));
  if (!FieldOf(region, "everything").values.empty()) return fmt::format("everything ({})", layer);
  if (layer == "http") return HttpText(region);
  const RegionField& path = FieldOf(region, "path");
  std::string text;
  if (layer == "unix") {
    text = fmt::format("unix {}", fmt::join(path.values, " or "));
    Except(path.except, &text);
    return text;
  }
  if (layer == "dns") {
    text = fmt::format("lookup of {}", FirstOf(FieldOf(region, "host")));
    if (const Texts& types = FieldOf(region, "type").values; !types.empty()) text += fmt::format(" ({})", fmt::join(types, ","));
  } else {
    text =
        fmt::format("{} {}:{}", layer == "tls" ? "TLS to" : layer, Host(region), fmt::join(FieldOf(region, "port").values, ","));
  }
  Except(FieldOf(region, "host").except, &text);
  return text;
}

}  // namespace

std::string Region::Text() const {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kKeys = {{{"operation_name", "operation"},
                                                                                    {"field", "fields"},
                                                                                    {"tool", "tool"},
                                                                                    {"json", "json"},
                                                                                    {"ref", "refs"},
                                                                                    {"ref_change", "ref-changes"},
                                                                                    {"ip", "ip"},
                                                                                    {"query", "query"},
                                                                                    {"header", "header"},
                                                                                    {"process", "by"},
                                                                                    {"under", "under"},
                                                                                    {"credential", "with"},
                                                                                    {"own", "with the workload's own"},
                                                                                    {"via", "via"}}};
  std::string text = Target(*this);
  for (const auto& [name, word] : kKeys) {
    const RegionField& field = FieldOf(*this, name);
    if (field.values.empty()) continue;
    const bool matchers = name == "query" || name == "header" || name == "json";
    text += fmt::format(", {} {}", word, fmt::join(field.values, matchers ? " " : " or "));
    Except(field.except, &text);
  }
  if (const RegionField& time = FieldOf(*this, "time"); !time.values.empty()) text += ", " + FirstOf(time);
  return text;
}

}  // namespace sluice::prover
