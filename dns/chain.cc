#include "dns/chain.h"

#include <algorithm>

namespace sluice::dns {

std::optional<Chain> EndOfChain(const Message& upstream, const Name& question) {
  Chain chain;
  chain.name = question;
  for (;;) {
    const auto link = std::ranges::find_if(upstream.answers, [&](const Record& r) {
      return r.type == Type::kCname && r.klass == kClassIn && r.owner.EqualsIgnoringCase(chain.name);
    });
    if (link == upstream.answers.end()) return chain;
    if (chain.targets.size() == kMaxChain) return std::nullopt;  // a loop ends here too
    auto target = TargetOf(*link);
    if (!target) return std::nullopt;
    chain.ttl = std::min(chain.ttl, link->ttl);
    chain.name = std::move(*target);
    chain.targets.push_back(chain.name.Canonical());
  }
}

uint32_t NegativeTtl(const Message& upstream) {
  for (const Record& record : upstream.authority)
    if (const auto ttl = NegativeTtlOf(record)) return std::min(*ttl, kMaxNegativeTtl);
  return 0;
}

std::optional<AddressAnswer> ReadAddresses(const Message& upstream, const Question& question) {
  const Rcode rcode = upstream.header.rcode;
  if (rcode != Rcode::kNoError && rcode != Rcode::kNxDomain) return std::nullopt;
  AddressAnswer answer;
  uint32_t ttl = Chain{}.ttl;
  const Name* end = &question.name;
  std::optional<Chain> chain;
  if (std::ranges::find(upstream.answers, Type::kCname, &Record::type) != upstream.answers.end()) {
    chain = EndOfChain(upstream, question.name);
    if (!chain) return std::nullopt;
    answer.targets = std::move(chain->targets);
    ttl = chain->ttl;
    end = &chain->name;
  }
  if (rcode == Rcode::kNoError) {
    for (const Record& record : upstream.answers) {
      if (record.type != question.type || record.klass != kClassIn || !record.owner.EqualsIgnoringCase(*end)) continue;
      const auto address = AddressOf(record);
      if (!address || answer.addresses.size() >= kMaxAddresses) continue;
      if (std::ranges::find(answer.addresses, *address) == answer.addresses.end()) answer.addresses.push_back(*address);
      ttl = std::min(ttl, record.ttl);
    }
  }
  answer.no_such_name = rcode == Rcode::kNxDomain;
  answer.ttl = answer.addresses.empty() ? std::min(ttl, NegativeTtl(upstream)) : ttl;
  return answer;
}

Match MatchResponse(const Message& response, uint16_t id, const Question& sent) {
  const Header& h = response.header;
  if (!h.response || h.opcode != 0 || h.id != id || response.questions.size() != 1) return Match::kNo;
  const Question& question = response.questions.front();
  if (question.type != sent.type || question.klass != sent.klass) return Match::kNo;
  if (question.name == sent.name) return Match::kYes;
  return question.name.EqualsIgnoringCase(sent.name) ? Match::kOtherCase : Match::kNo;
}

}  // namespace sluice::dns
