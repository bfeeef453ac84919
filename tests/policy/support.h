#pragma once

// Short spellings of queries, for the tests of the policy room.

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "policy/io/load.h"
#include "policy/target.h"

namespace sluice::policy {

inline const WallTime kNow = std::chrono::sys_days{std::chrono::year{2026} / 11 / 29};

/// A policy of these `rules:` lines, already indented by two.
inline std::string WithRules(const std::string& rules) { return "version: 1\nrules:\n" + rules; }

inline SnapshotPtr Loaded(const std::string& text) {
  auto snapshot = LoadText(text, "p.yaml");
  if (!snapshot) throw std::runtime_error(RenderError(snapshot.error(), false) + "\n" + text);  // fails the test that asked
  return *snapshot;
}

inline std::string LoadMessage(const std::string& text) {
  auto snapshot = LoadText(text, "p.yaml");
  return snapshot ? "loaded" : RenderError(snapshot.error(), false);
}

inline ConnectQuery To(std::string_view host, uint16_t port, const char* address = nullptr) {
  ConnectQuery query;
  query.host = host;
  query.port = port;
  query.now = kNow;
  if (address != nullptr) query.address = IpAddress::Parse(address);
  return query;
}

/// A request with everything it borrows.
struct Request {
  CanonicalTarget target;
  std::vector<HeaderView> headers;
  RequestQuery query;

  Request(std::string_view method, ConnectQuery connection, std::string_view path, Scheme scheme = Scheme::kHttps) {
    auto canonical = CanonicalizeTarget(path);
    if (canonical) {
      target = std::move(*canonical);
    } else {
      ADD_FAILURE() << path << ": " << canonical.error().message;
    }
    query.connection = connection;
    query.scheme = scheme;
    query.method = method;
  }
  Request& With(std::string_view name, std::string_view value) {
    headers.emplace_back(name, value);
    return *this;
  }
  const RequestQuery& Get() {
    query.target = &target;
    query.headers = headers;
    return query;
  }
};

}  // namespace sluice::policy
