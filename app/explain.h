#pragma once

// `sluice explain FILE QUESTION`: what the policy says of one request, connection, lookup or socket, and why.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/lint.h"
#include "app/operation_question.h"
#include "app/question.h"

namespace sluice::app {

struct ExplainOptions {
  std::string file;
  /// "POST https://api.github.com/x", "https://a.test/" (a GET), "git fetch-pack github.com/octo/hello", "ws a.test/s",
  /// "grpc a.test pkg.Svc/Get", "graphql query a.test/graphql", "mcp tools/call a.test/mcp", "connect a.test:443", "tcp
  /// a.test:443", "dns a.test [TYPE]", "unix /run/x.sock".
  std::string question;
  std::string by;                      ///< executable that asks, as the kernel names it; empty: unknown
  std::vector<std::string> under{};    ///< executables of its ancestors, parent first
  std::vector<std::string> headers{};  ///< "NAME: VALUE"
  std::string at;                      ///< timestamp or date as `until` takes them; empty: now
  std::string ip;                      ///< address that the name leads to; empty: not resolved
  AskedBody body{};
  std::vector<std::string> json{};  ///< "/pointer=value"
  std::string body_file{};          ///< a body as it is sent; empty: none
  std::string content_type{};       ///< its own; empty: application/json
  OutputFormat format = OutputFormat::kText;
};

/// As `--format json` and the admin API give it.
[[nodiscard]] nlohmann::json AnswerJson(const Asker& asker, const Answer& answer);

/// 0: allowed. 1: denied. 2: the file or the question is not understood, said on stderr.
[[nodiscard]] int RunExplain(const ExplainOptions& options);

}  // namespace sluice::app
