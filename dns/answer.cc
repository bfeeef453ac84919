#include "dns/answer.h"

#include <algorithm>

#include "dns/chain.h"
#include "dns/rdata.h"
#include "dns/svcb.h"

namespace sluice::dns {
namespace {

Message Base(const Query& query) {
  Message response;
  response.header.id = query.header.id;
  response.header.response = true;
  response.header.recursion_desired = query.header.recursion_desired;
  response.header.recursion_available = true;
  response.header.checking_disabled = query.header.checking_disabled;
  response.questions.push_back(query.question);
  if (query.edns) response.edns = Edns{.dnssec_ok = query.edns->dnssec_ok};
  return response;
}

void Explain(Message* response, Ede code, std::string_view why) {
  if (!response->edns || why.empty()) return;
  std::string text;
  for (const char c : why.substr(0, kMaxEdeText)) text += c >= 0x20 && c < 0x7f ? c : '?';
  response->edns->error = ExtendedError{code, std::move(text)};
}

// A SOA must stand at or above the name; the last label is the least that says so.
void AddSoa(Message* response, const Query& query) {
  static const Name kMname = *Name::FromText("sluice.invalid");
  static const Name kRname = *Name::FromText("policy.sluice.invalid");
  const std::string& text = query.name;
  const size_t dot = text.rfind('.');
  auto zone = query.host_name ? Name::FromText(dot == std::string::npos ? text : text.substr(dot + 1)) : std::nullopt;
  response->authority.push_back(SoaRecord(zone.value_or(Name()), kMname, kRname, kDenialTtl));
}

}  // namespace

Message Denied(const Query& query, std::string_view why) {
  Message response = Base(query);
  response.header.rcode = Rcode::kNxDomain;
  AddSoa(&response, query);
  Explain(&response, Ede::kBlocked, why);
  return response;
}

Message Refused(const Query& query, std::string_view why) { return Failed(query, Rcode::kRefused, Ede::kBlocked, why); }

Message NoData(const Query& query, std::string_view why) {
  Message response = Base(query);
  AddSoa(&response, query);
  Explain(&response, Ede::kBlocked, why);
  return response;
}

Message Filtered(const Query& query, std::string_view why) {
  Message response = NoData(query, {});
  Explain(&response, Ede::kFiltered, why);
  return response;
}

Message NoSuchName(const Query& query) {
  Message response = Base(query);
  response.header.rcode = Rcode::kNxDomain;
  AddSoa(&response, query);
  return response;
}

Message Failed(const Query& query, Rcode rcode, Ede code, std::string_view why) {
  Message response = Base(query);
  response.header.rcode = rcode;
  Explain(&response, code, why);
  return response;
}

Message WithAddresses(const Query& query, std::span<const IpAddress> addresses, uint32_t ttl) {
  Message response = Base(query);
  const bool v4 = query.question.type == Type::kA;
  for (const IpAddress& address : addresses)
    if (address.is_v4() == v4)
      response.answers.push_back(AddressRecord(query.question.name, address, std::clamp(ttl, kMinTtl, kMaxTtl)));
  if (response.answers.empty()) AddSoa(&response, query);
  return response;
}

Message WithName(const Query& query, const Name& target, uint32_t ttl) {
  Message response = Base(query);
  response.answers.push_back(NameRecord(query.question.name, query.question.type, target, ttl));
  return response;
}

Message MinimalAny(const Query& query) {
  Message response = Base(query);
  std::string rdata = "\x07RFC8482";
  rdata += '\0';
  response.answers.push_back({query.question.name, Type::kHinfo, kClassIn, kMaxTtl, std::move(rdata)});
  return response;
}

namespace internal {

std::optional<ServiceTarget> SvcbTarget(const Record& record) {
  const auto svcb = ParseSvcb(Octets(record.rdata));
  if (!svcb) return std::nullopt;
  return ServiceTarget{svcb->target.is_root() ? record.owner : svcb->target, PortOf(*svcb)};
}

Message RelayedRecords(const Query& query, const Message& upstream) {
  Message response = Base(query);
  const auto end = EndOfChain(upstream, query.question.name);
  if (!end) return response;
  for (const Record& record : upstream.answers) {
    if (record.type != query.question.type || record.klass != kClassIn || !record.understood) continue;
    // A CNAME asked for by its own type is the first link, not the end.
    const Name& owner = record.type == Type::kCname ? query.question.name : end->name;
    if (!record.owner.EqualsIgnoringCase(owner) || response.answers.size() >= kMaxRelayed) continue;
    Record kept = record;
    if (record.type == Type::kSvcb || record.type == Type::kHttps) {
      auto svcb = ParseSvcb(Octets(record.rdata));
      if (svcb) svcb = StripSvcb(std::move(*svcb));
      if (!svcb) continue;
      // The record moves to the question's name, so a target that meant "here" must say where.
      if (svcb->target.is_root() && !record.owner.EqualsIgnoringCase(query.question.name)) svcb->target = record.owner;
      kept.rdata = EncodeSvcb(*svcb);
    }
    kept.owner = query.question.name;
    kept.ttl = std::clamp(kept.ttl, kMinTtl, kMaxTtl);
    response.answers.push_back(std::move(kept));
  }
  return response;
}

}  // namespace internal
}  // namespace sluice::dns
