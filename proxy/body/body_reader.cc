#include "proxy/body/body_reader.h"

#include <utility>

#include "proxy/body/graphql.h"
#include "proxy/body/json_body.h"
#include "proxy/body/json_rpc.h"
#include "proxy/body/lfs.h"

namespace sluice::proxy {
namespace {

constexpr policy::BodyKinds kWholeKinds = policy::kBodyJson | policy::kBodyGraphql | policy::kBodyRpc | policy::kBodyLfs;
constexpr std::string_view kTooLarge = "the body is too large to be judged (8 MiB at most)";
constexpr std::string_view kUnknownCoding = "the Content-Encoding of the body is not one that is judged (gzip and deflate are)";

}  // namespace

BodyReader::BodyReader(policy::BodyKinds kinds, const BodyContext& context)
    : content_(KindOfContent(context.headers)), coding_(CodingOf(context.headers)) {
  if (HasUnderscoredField(context.headers, "content-encoding")) coding_.reset();
  Plan(kinds, context);
  if (whole_ != 0 && context.length && *context.length > kMaxJudgedBody) {
    too_large_ = true;
    FailWhole(kTooLarge);
  }
  if (context.length && *context.length == 0) {
    Finish();
  } else {
    Settle();
  }
}

void BodyReader::FailKind(policy::BodyKind kind, std::string_view why) {
  whole_ &= static_cast<policy::BodyKinds>(~kind);
  const std::string fault(why);
  if (kind == policy::kBodyJson) body_.json = {{}, fault};
  if (kind == policy::kBodyGraphql) body_.graphql = {{}, fault};
  if (kind == policy::kBodyRpc) body_.rpc = {{}, fault};
  if (kind == policy::kBodyLfs) body_.lfs = {{}, fault};
  if (kind == policy::kBodyPush) {
    body_.push = {{}, fault};
    push_pending_ = false;
  }
}

void BodyReader::FailWhole(std::string_view why) {
  for (const auto kind : {policy::kBodyJson, policy::kBodyGraphql, policy::kBodyRpc, policy::kBodyLfs})
    if ((whole_ & kind) != 0) FailKind(kind, why);
}

// What is read at all, by the head.
void BodyReader::Plan(policy::BodyKinds kinds, const BodyContext& context) {
  whole_ = kinds & kWholeKinds;
  if ((kinds & policy::kBodyGraphql) != 0) PlanGraphql(context);
  for (const auto kind : {policy::kBodyJson, policy::kBodyRpc, policy::kBodyLfs})
    if ((whole_ & kind) != 0 && content_ != ContentKind::kJson) FailKind(kind, WhyNotJson(content_));
  for (const auto kind : {policy::kBodyRpc, policy::kBodyLfs})
    if ((whole_ & kind) != 0 && context.method != "POST") FailKind(kind, "the method is not POST");
  if (!coding_) FailWhole(kUnknownCoding);
  if ((kinds & policy::kBodyPush) != 0) PlanPush(context);
}

void BodyReader::PlanGraphql(const BodyContext& context) {
  if (context.method == "GET" || context.method == "HEAD") {
    if (context.length && *context.length == 0) {
      body_.graphql = ReadGraphqlQuery(context.query);
      whole_ &= static_cast<policy::BodyKinds>(~policy::kBodyGraphql);
    } else {
      FailKind(policy::kBodyGraphql, "a GET that has a body");
    }
  } else if (context.method != "POST") {
    FailKind(policy::kBodyGraphql, "the method is neither POST nor GET");
  } else if (content_ != ContentKind::kJson && content_ != ContentKind::kGraphql) {
    FailKind(policy::kBodyGraphql, WhyNotJson(content_));
  } else if (QueryHoldsGraphql(context.query)) {
    FailKind(policy::kBodyGraphql, "parts of a GraphQL request stand in the URL beside the body");
  }
}

void BodyReader::PlanPush(const BodyContext& context) {
  push_pending_ = true;
  if (context.method != "POST" || content_ != ContentKind::kPush)
    return FailKind(policy::kBodyPush, "the request is no push: its Content-Type or method is another");
  if (!coding_ || *coding_ == Coding::kDeflate) return FailKind(policy::kBodyPush, "the Content-Encoding of a push is not gzip");
  push_.emplace();
  if (*coding_ == Coding::kGzip) push_inflater_ = std::make_unique<Inflater>(Coding::kGzip, SIZE_MAX);
}

BodyReader::State BodyReader::Feed(std::string_view bytes) {
  held_ += bytes;
  if (push_pending_) FeedPush(bytes);
  if (held_.size() > kMaxJudgedBody) {
    too_large_ |= whole_ != 0 || push_pending_;
    FailWhole(kTooLarge);
    if (push_pending_) FailKind(policy::kBodyPush, kTooLarge);
  }
  return Settle();
}

BodyReader::State BodyReader::Resume(BodyReader&& other) {
  std::string held = std::move(other.held_);
  if (state_ == State::kMore) return Feed(held);
  held_ = std::move(held);
  return state_;
}

void BodyReader::FeedPush(std::string_view bytes) {
  if (push_inflater_ == nullptr) {
    push_->Feed(bytes);
    return SettlePush();
  }
  while (push_->state() == PushReader::State::kMore) {
    const std::string_view piece = push_inflater_->Next(&bytes);
    push_->Feed(piece);
    if (push_inflater_->state() == Inflater::State::kFaulty) return FailKind(policy::kBodyPush, push_inflater_->fault());
    if (piece.empty()) break;
  }
  if (push_inflater_->state() == Inflater::State::kDone) push_->Finish();
  SettlePush();
}

void BodyReader::SettlePush() {
  if (push_->state() == PushReader::State::kMore) return;
  push_pending_ = false;
  body_.push = push_->Take();
}

BodyReader::State BodyReader::Finish() {
  if (push_pending_) {
    push_->Finish();
    SettlePush();
  }
  if (whole_ != 0) ReadWhole();
  return Settle();
}

void BodyReader::ReadWhole() {
  if (held_.empty()) return FailWhole("there is no body to be judged");
  if (*coding_ == Coding::kIdentity) return ReadKinds(held_);
  std::string text;
  if (const auto why = Inflate(*coding_, held_, kMaxJudgedBody, &text)) return FailWhole(*why);
  ReadKinds(text);
}

void BodyReader::ReadKinds(std::string_view text) {
  if ((whole_ & policy::kBodyJson) != 0) body_.json = ReadJson(text);
  if ((whole_ & policy::kBodyRpc) != 0) body_.rpc = ReadJsonRpc(text);
  if ((whole_ & policy::kBodyLfs) != 0) body_.lfs = ReadLfsBatch(text);
  if ((whole_ & policy::kBodyGraphql) != 0)
    body_.graphql = content_ == ContentKind::kGraphql ? ReadGraphqlDocument(text, {}) : ReadGraphqlJson(text);
  whole_ = 0;
}

BodyReader::State BodyReader::Settle() {
  if (whole_ == 0 && !push_pending_) state_ = State::kEnough;
  return state_;
}

size_t MemoryOf(const policy::RequestBody& body) {
  size_t bytes = 0;
  const auto add = [&](const auto& item, std::initializer_list<std::string_view> texts) {
    bytes += sizeof item;
    for (const std::string_view text : texts) bytes += text.size();
  };
  const auto add_leaves = [&](const policy::JsonLeaves& leaves) {
    for (const policy::JsonLeaf& leaf : leaves) add(leaf, {leaf.pointer, leaf.text});
  };
  if (body.json) add_leaves(body.json->items);
  if (body.graphql)
    for (const policy::GraphqlItem& item : body.graphql->items) add(item, {item.operation, item.field});
  if (body.rpc) {
    for (const policy::RpcItem& item : body.rpc->items) {
      add(item, {item.method, item.tool ? std::string_view(*item.tool) : std::string_view()});
      add_leaves(item.message);
    }
  }
  if (body.push)
    for (const policy::RefUpdate& item : body.push->items) add(item, {item.ref});
  return bytes;
}

policy::RequestBody ReadBody(policy::BodyKinds kinds, const BodyContext& context, std::string_view body) {
  BodyReader reader(kinds, context);
  if (reader.state() == BodyReader::State::kMore) reader.Feed(body);
  if (reader.state() == BodyReader::State::kMore) reader.Finish();
  return reader.Take();
}

}  // namespace sluice::proxy
