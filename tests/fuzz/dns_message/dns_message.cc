// Any bytes as a query and as an upstream answer. What is accepted must mean the same after one encoding, fit its limit, and no
// answer may carry an address that was not at the end of the question's own chain.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "dns/answer.h"
#include "dns/chain.h"
#include "dns/message.h"
#include "dns/query.h"
#include "dns/svcb.h"
#include "tests/fuzz/sidecar_shape.h"

using namespace sluice::dns;  // NOLINT: a fuzz target is one function

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  const auto read = ReadQuery(bytes);
  if (const auto* refusal = std::get_if<Refusal>(&read))
    if (!Decode(Encode(refusal->response))) std::abort();
  if (const auto* query = std::get_if<Query>(&read)) {
    const auto wire = EncodeWithin(Denied(*query, "no"), UdpLimit(query->edns));
    if (wire.size() > UdpLimit(query->edns) || !Decode(wire)) std::abort();
  }
  (void)ParseSvcb(bytes);
  const auto message = Decode(bytes);
  if (!message) return 0;
  const auto again = Decode(Encode(*message));
  bool opaque = false;
  for (const auto* section : {&message->answers, &message->authority, &message->additional})
    for (const Record& record : *section) opaque |= !record.understood;
  // Expanded names may outgrow a message; one that grew past the limit is never sent (EncodeWithin).
  if (!opaque && Encode(*message).size() <= kMaxMessageOctets && (!again || *again != *message)) std::abort();
  if (message->questions.size() != 1) return 0;
  const Question& question = message->questions.front();
  if (const auto addresses = ReadAddresses(*message, question))
    if (addresses->addresses.size() > kMaxAddresses || addresses->targets.size() > kMaxChain) std::abort();
  Query query;
  query.question = question;
  query.name = question.name.Canonical();
  const Message relayed =
      Relayed(query, *message, [](const std::string&, std::optional<uint16_t>) { return TargetVerdict::kForbidden; });
  if (relayed.answers.size() > kMaxRelayed || !Decode(EncodeWithin(relayed, kMaxMessageOctets))) std::abort();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return sluice::fuzz::Mutate(sluice::fuzz::kDns, data, size, most, seed);
}
