#include "proxy/body/asked.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proxy/body/push_report.h"

namespace sluice::proxy {
namespace {

using testing::ElementsAre;

TEST(Asked, SaysWhatABodyAskedForWithoutValues) {
  policy::RequestBody body;
  body.graphql = {{{policy::GraphqlKind::kMutation, "M", "createIssue"}, {policy::GraphqlKind::kQuery, "", "viewer"}}, {}};
  body.rpc = {{{"tools/list"}, {"tools/call", "read"}, {""}, {"tools/list"}}, {}};
  body.push = {{{"refs/heads/x", policy::kRefCreate}, {"refs/heads/y", policy::kRefDelete}}, {}};
  body.lfs = {{}, "the body is no git LFS batch request"};
  body.json = {{{"/secret", policy::JsonLeaf::Type::kString, "hunter2"}}, {}};
  EXPECT_THAT(AskedOf(body), ElementsAre("graphql mutation M createIssue", "graphql query viewer", "jsonrpc tools/list",
                                         "mcp tools/call read", "jsonrpc response", "create refs/heads/x", "delete refs/heads/y",
                                         "not readable: the body is no git LFS batch request"));
}

TEST(Asked, IsBounded) {
  policy::RequestBody body;
  body.rpc.emplace();
  for (size_t i = 0; i < 40; ++i) body.rpc->items.push_back({fmt::format("{}{}", i, std::string(1000, 'm'))});
  const auto asked = AskedOf(body);
  ASSERT_EQ(asked.size(), kMaxAsked + 1);
  EXPECT_EQ(asked.front().size(), kMaxAskedText);
  EXPECT_EQ(asked.back(), "and 8 more");
}

TEST(PushReport, SpeaksAsTheClientAsked) {
  const RefusedRef refs[] = {{"refs/heads/main", "denied"}};
  const std::string report = "000eunpack ok\n001eng refs/heads/main denied\n0000";
  EXPECT_EQ(PushReport(" report-status agent=git", refs, "why\n"), report);
  EXPECT_EQ(PushReport("report-status-v2 side-band-64k", refs, "why\n"),
            std::string("0009\2why\n") + fmt::format("{:04x}\1", report.size() + 5) + report + "0000");
  EXPECT_TRUE(WantsPushReport("quiet report-status"));
  EXPECT_TRUE(WantsPushReport("report-status-v2"));
  EXPECT_FALSE(WantsPushReport("report-status-v3 side-band"));
  const std::string small = PushReport("side-band report-status", refs, std::string(2000, 'x'));
  EXPECT_EQ(small.substr(0, 4), "03e8");
}

}  // namespace
}  // namespace sluice::proxy
