#include "dns/ready_answer.h"

#include <algorithm>

#include "dns/message.h"

namespace sluice::dns {

bool ReadyKey::Read(std::span<const uint8_t> query) {
  if (query.size() < kHeaderOctets + 5 || query.size() > kRoom) return false;
  // A standard query, not cut; one question, no answer, no authority.
  if ((query[2] & 0xfe) != 0 || query[4] != 0 || query[5] != 1 || query[6] != 0 || query[7] != 0 || query[8] != 0 ||
      query[9] != 0)
    return false;
  size_t at = kHeaderOctets;
  while (query[at] != 0) {
    if (query[at] > kMaxLabelOctets) return false;
    at += query[at] + size_t{1};
    if (at >= query.size()) return false;
  }
  const size_t name_end = at + 1;
  size_ = 0;
  for (size_t i = 2; i < kHeaderOctets; ++i) octets_[size_++] = query[i];
  // Length octets are at most 63, below every letter.
  for (size_t i = kHeaderOctets; i < name_end; ++i)
    octets_[size_++] = static_cast<uint8_t>(LowerAscii(static_cast<char>(query[i])));
  for (size_t i = name_end; i < query.size(); ++i) octets_[size_++] = query[i];
  name_octets_ = name_end - kHeaderOctets;
  return true;
}

std::vector<uint8_t> Retell(std::span<const uint8_t> kept, std::span<const uint8_t> query, size_t name_octets) {
  std::vector<uint8_t> answer(kept.begin(), kept.end());
  std::copy_n(query.begin(), 2, answer.begin());
  std::copy_n(query.begin() + kHeaderOctets, name_octets, answer.begin() + kHeaderOctets);
  return answer;
}

}  // namespace sluice::dns
