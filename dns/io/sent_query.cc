#include "dns/io/sent_query.h"

#include <algorithm>

#include "base/random.h"

namespace sluice::dns {

void RandomOctets::Take(std::span<uint8_t> out) {
  if (octets_.size() - used_ < out.size()) {
    FillRandom(octets_);
    used_ = 0;
  }
  const auto from = octets_.begin() + static_cast<std::ptrdiff_t>(used_);
  std::copy_n(from, out.size(), out.begin());
  std::fill_n(from, out.size(), uint8_t{0});
  used_ += out.size();
}

SentQuery MakeQuery(const Question& question, Extension extension, RandomOctets* random) {
  std::array<uint8_t, 34> octets{};
  random->Take(octets);
  SentQuery sent;
  sent.id = static_cast<uint16_t>(octets[32] << 8 | octets[33]);
  sent.question = question;
  sent.question.name.RandomizeCase(std::span(octets).first(32));
  sent.extension = extension;
  Message message;
  message.header.id = sent.id;
  message.header.recursion_desired = true;
  message.questions.push_back(sent.question);
  if (extension == Extension::kEdns) message.edns.emplace();
  sent.wire = Encode(message);
  return sent;
}

Reception ReadAnswer(const SentQuery& sent, std::span<const uint8_t> datagram, Message* message) {
  const auto header = DecodeHeader(datagram);
  if (!header || !header->response || header->id != sent.id) return Reception::kStranger;
  auto decoded = Decode(datagram);
  // Cut in the middle of a record, but it says so: the header is all that such an answer is good for.
  if (!decoded) return header->truncated ? Reception::kAskByTcp : Reception::kStranger;
  const bool bare = decoded->questions.empty() && !decoded->edns;
  if (bare && sent.extension == Extension::kEdns && (header->rcode == Rcode::kFormErr || header->rcode == Rcode::kNotImp))
    return Reception::kAskPlainly;
  const Match match = MatchResponse(*decoded, sent.id, sent.question);
  if (match == Match::kNo) return Reception::kStranger;
  if (match == Match::kOtherCase || header->truncated) return Reception::kAskByTcp;
  *message = std::move(*decoded);
  return Reception::kAnswer;
}

}  // namespace sluice::dns
