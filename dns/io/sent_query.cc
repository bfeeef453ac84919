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

// What Encode would write of the same, without a Message: this is done for every lookup that no cache answers.
void MakeQuery(const Question& question, Extension extension, RandomOctets* random, SentQuery* sent) {
  std::array<uint8_t, 34> octets{};
  random->Take(octets);
  sent->id = static_cast<uint16_t>(octets[32] << 8 | octets[33]);
  sent->question = question;
  sent->question.name.RandomizeCase(std::span(octets).first(32));
  sent->extension = extension;
  std::vector<uint8_t>& wire = sent->wire;
  wire.clear();
  const auto u16 = [&](uint16_t value) {
    wire.push_back(static_cast<uint8_t>(value >> 8));
    wire.push_back(static_cast<uint8_t>(value & 0xff));
  };
  const bool edns = extension == Extension::kEdns;
  u16(sent->id);
  u16(0x0100);  // recursion desired
  u16(1);
  u16(0);
  u16(0);
  u16(edns ? 1 : 0);
  const std::string& name = sent->question.name.wire();
  wire.insert(wire.end(), name.begin(), name.end());
  u16(static_cast<uint16_t>(question.type));
  u16(question.klass);
  if (!edns) return;
  wire.push_back(0);
  u16(static_cast<uint16_t>(Type::kOpt));
  u16(static_cast<uint16_t>(kUdpOctets));
  for (int i = 0; i < 3; ++i) u16(0);
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
