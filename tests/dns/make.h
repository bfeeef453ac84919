#pragma once

// Messages for the tests of dns/.

#include <string_view>
#include <variant>
#include <vector>

#include "dns/answer.h"
#include "dns/message.h"
#include "dns/query.h"

namespace sluice::dns {

inline Message AskMessage(std::string_view name, Type type) {
  Message message;
  message.header.id = 0x1234;
  message.header.recursion_desired = true;
  message.questions.push_back({*Name::FromText(name), type, kClassIn});
  return message;
}

enum class WithEdns : uint8_t { kNo, kYes };
inline Query AskQuery(std::string_view name, Type type, WithEdns edns = WithEdns::kYes) {
  Message message = AskMessage(name, type);
  if (edns == WithEdns::kYes) message.edns.emplace();
  return std::get<Query>(ReadQuery(Encode(message)));
}

inline Record A(std::string_view owner, std::string_view address, uint32_t ttl = 60) {
  return AddressRecord(*Name::FromText(owner), *IpAddress::Parse(address), ttl);
}
inline Record Cname(std::string_view owner, std::string_view target, uint32_t ttl = 60) {
  return NameRecord(*Name::FromText(owner), Type::kCname, *Name::FromText(target), ttl);
}

inline Message AnswerTo(const Message& question, std::vector<Record> answers) {
  Message message = question;
  message.header.response = true;
  message.answers = std::move(answers);
  return message;
}

}  // namespace sluice::dns
