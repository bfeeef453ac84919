#include "dns/query.h"

#include <algorithm>

#include "policy/target.h"

namespace sluice::dns {
namespace {

constexpr uint8_t kOpcodeQuery = 0;

Refusal Refuse(const Header& query, Rcode rcode) {
  Message response;
  response.header.id = query.id;
  response.header.response = true;
  response.header.opcode = query.opcode;
  response.header.recursion_desired = query.recursion_desired;
  response.header.recursion_available = true;
  response.header.rcode = rcode;
  return {std::move(response), std::nullopt};
}

}  // namespace

std::variant<Query, Silence, Refusal> ReadQuery(std::span<const uint8_t> bytes) {
  const auto header = DecodeHeader(bytes);
  if (!header || header->response) return Silence{};
  if (header->opcode != kOpcodeQuery) return Refuse(*header, Rcode::kNotImp);
  auto message = Decode(bytes);
  if (!message || message->questions.size() != 1 || header->truncated) return Refuse(*header, Rcode::kFormErr);
  Question& question = message->questions.front();
  if (message->edns && message->edns->version > 0) {
    Refusal refusal = Refuse(*header, Rcode::kBadVers);
    refusal.response.questions.push_back(question);
    refusal.response.edns.emplace();
    return refusal;
  }
  Query query;
  query.header = message->header;
  query.edns = message->edns;
  query.name = question.name.Canonical();
  if (!question.name.is_root()) query.host_name = policy::CanonicalName(query.name).has_value();
  query.question = std::move(question);
  const bool transfer = query.question.type == Type::kAxfr || query.question.type == Type::kIxfr;
  if (transfer || query.question.klass != kClassIn) {
    Refusal refusal = Refuse(*header, Rcode::kRefused);
    refusal.response.questions.push_back(query.question);
    if (query.edns) refusal.response.edns.emplace();
    refusal.asked = std::move(query);
    return refusal;
  }
  if (!message->answers.empty() || !message->authority.empty()) return Refuse(*header, Rcode::kFormErr);
  return query;
}

size_t UdpLimit(const std::optional<Edns>& edns) {
  return edns ? std::clamp<size_t>(edns->udp_octets, kUdpOctetsPlain, kUdpOctets) : kUdpOctetsPlain;
}

}  // namespace sluice::dns
