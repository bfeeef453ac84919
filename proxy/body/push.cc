#include "proxy/body/push.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/hex.h"
#include "base/printable.h"

namespace sluice::proxy {
namespace {

constexpr size_t kLengthDigits = 4;
constexpr size_t kLongestPacket = 65520;  // LARGE_PACKET_MAX of git, the length itself included

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = DecodeUtf8(text).size;
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

bool IsRefCharacter(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte > 0x20 && byte != 0x7f && std::string_view("~^:?*[\\").find(c) == std::string_view::npos;
}

bool IsRefComponent(std::string_view part) {
  return !part.empty() && part.front() != '.' && !part.ends_with(".lock") &&
         std::all_of(part.begin(), part.end(), IsRefCharacter);
}

// The digits of the ids of `object-format=`, or 0 where the capabilities do not say.
size_t DigitsOf(std::string_view capabilities) {
  constexpr std::string_view kKey = "object-format=";
  size_t digits = 0;
  while (!capabilities.empty()) {
    const size_t space = std::min(capabilities.find(' '), capabilities.size());
    const std::string_view word = capabilities.substr(0, space);
    if (word.starts_with(kKey)) {
      const std::string_view format = word.substr(kKey.size());
      if (digits != 0 || (format != "sha1" && format != "sha256")) return std::string_view::npos;
      digits = format == "sha1" ? 40 : 64;
    }
    capabilities.remove_prefix(std::min(space + 1, capabilities.size()));
  }
  return digits;
}

}  // namespace

bool IsRefName(std::string_view name) {
  if (!name.starts_with("refs/") || name.ends_with('.') || name.find("..") != std::string_view::npos ||
      name.find("@{") != std::string_view::npos || !IsUtf8(name))
    return false;
  for (size_t at = 0; at <= name.size();) {
    const size_t slash = std::min(name.find('/', at), name.size());
    if (!IsRefComponent(name.substr(at, slash - at))) return false;
    at = slash + 1;
  }
  return true;
}

void PushReader::Fail(std::string_view why) {
  state_ = State::kFaulty;
  reading_ = {{}, fmt::format("the commands of the push cannot be read: {}", why)};
}

size_t PushReader::Feed(std::string_view bytes) {
  size_t used = 0;
  while (state_ == State::kMore && used < bytes.size()) {
    const size_t take = std::min(wanted_ - held_.size(), bytes.size() - used);
    held_ += bytes.substr(used, take);
    used += take;
    total_ += take;
    if (total_ > kMaxPushBytes) {
      Fail(fmt::format("more than {} bytes of them", kMaxPushBytes));
    } else if (held_.size() == wanted_) {
      if (wanted_ == kLengthDigits) {
        Length();
      } else {
        Line(std::string_view(held_).substr(kLengthDigits));
        held_.clear();
        wanted_ = kLengthDigits;
      }
    }
  }
  return used;
}

// held_ is the four digits of a packet's length.
void PushReader::Length() {
  size_t length = 0;
  for (const char c : held_) {
    const int digit = HexValue(c);
    if (digit < 0) return Fail("a packet's length is not hexadecimal");
    length = length * 16 + static_cast<size_t>(digit);
  }
  if (length == 0) {
    state_ = State::kDone;
    return;
  }
  if (length <= kLengthDigits || length > kLongestPacket) return Fail("a packet of a length that means nothing here");
  wanted_ = length;
}

void PushReader::Line(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.starts_with("shallow ")) {
    line.remove_prefix(8);
    bool zero = false;
    if (!reading_.items.empty() || !TakeId(&line, &zero) || !line.empty()) Fail("a malformed shallow line");
    return;
  }
  const size_t nul = line.find('\0');
  if (nul != std::string_view::npos) {
    const std::string_view capabilities = line.substr(nul + 1);
    line = line.substr(0, nul);
    if (line == "push-cert") return Fail("signed pushes are not judged");
    if (!reading_.items.empty()) return Fail("capabilities behind a later command");
    const size_t digits = DigitsOf(capabilities);
    if (capabilities.find('\0') != std::string_view::npos || digits == std::string_view::npos ||
        (digits != 0 && line.size() > digits && line[digits] != ' '))
      return Fail("capabilities that disagree with the commands");
    capabilities_ = capabilities;
  }
  Command(line);
}

// The id that `*rest` begins with: lower-case hexadecimal, as long as the ids before it.
bool PushReader::TakeId(std::string_view* rest, bool* zero) {
  const size_t digits = std::min(rest->find_first_not_of("0123456789abcdef"), rest->size());
  if ((digits != 40 && digits != 64) || (id_digits_ != 0 && digits != id_digits_)) return false;
  id_digits_ = digits;
  *zero = rest->find_first_not_of('0') >= digits;
  rest->remove_prefix(digits);
  return true;
}

void PushReader::Command(std::string_view line) {
  bool creates = false;
  bool deletes = false;
  const auto space = [&line] {
    const bool there = line.starts_with(' ');
    if (there) line.remove_prefix(1);
    return there;
  };
  if (!TakeId(&line, &creates) || !space() || !TakeId(&line, &deletes) || !space())
    return Fail("a line that is no command to create, update or delete a ref");
  if (creates && deletes) return Fail("a command that neither creates nor deletes");
  if (!IsRefName(line)) return Fail("a command for something that is no name of a ref");
  if (reading_.items.size() >= kMaxPushCommands) return Fail(fmt::format("more than {} of them", kMaxPushCommands));
  const auto change = creates ? policy::kRefCreate : deletes ? policy::kRefDelete : policy::kRefUpdate;
  reading_.items.push_back({std::string(line), change});
}

void PushReader::Finish() {
  if (state_ == State::kMore) Fail("the body ends before they do");
}

policy::BodyReading<policy::RefUpdate> PushReader::Take() { return std::move(reading_); }

}  // namespace sluice::proxy
