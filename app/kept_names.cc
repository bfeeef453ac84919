#include "app/kept_names.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "app/file.h"
#include "base/log.h"
#include "base/path_error.h"

namespace sluice::app {
namespace {

constexpr const char* kNamesFile = "names";
constexpr const char* kSharedFile = "synthetic";
constexpr size_t kSharedBytes = 4096;
constexpr std::array<char, 8> kMagic = {'s', 'l', 'u', 'i', 'c', 'e', ' ', '1'};
constexpr size_t kCheckDigits = 16;
constexpr std::chrono::milliseconds kGather{10};  // of what is written at once

// FNV-1a: tells a line that was cut short. Whoever may write the file may write what he likes.
uint64_t CheckOf(std::string_view bytes) {
  uint64_t check = 0xcbf29ce484222325;
  for (const char byte : bytes) check = (check ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return check;
}

std::string Checked(const std::string& line) { return fmt::format("{:016x} {}\n", CheckOf(line), line); }

bool Fits(std::string_view name) { return !name.empty() && name.find('\n') == std::string_view::npos; }

// Up to the next space, which goes with it.
std::string_view Field(std::string_view* rest) {
  const size_t end = std::min(rest->find(' '), rest->size());
  const std::string_view field = rest->substr(0, end);
  rest->remove_prefix(std::min(end + 1, rest->size()));
  return field;
}

template <class Number>
std::optional<Number> NumberOf(std::string_view text, int base = 10) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// A line's content, where it is whole.
std::optional<std::string_view> ContentOf(std::string_view line) {
  if (line.size() <= kCheckDigits || line[kCheckDigits] != ' ') return std::nullopt;
  const auto check = NumberOf<uint64_t>(line.substr(0, kCheckDigits), 16);
  line.remove_prefix(kCheckDigits + 1);
  if (!check || *check != CheckOf(line)) return std::nullopt;
  return line;
}

Result<UniqueFd> OpenOwn(const std::string& path, int flags) {
  UniqueFd file(::open(path.c_str(), flags | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, 0600));
  if (!file) return FailPath(fmt::format("cannot open {}", path), errno);
  struct stat about{};
  if (::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode))
    return Fail(Code::kInvalid, fmt::format("{} is not a regular file", path));
  if ((about.st_uid != ::geteuid() && about.st_uid != 0) || (about.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Fail(Code::kInvalid, fmt::format("{}: it is another user's, or others may write it (chmod 0600)", path));
  return file;
}

}  // namespace

std::string GivenLine(uint32_t nth, std::string_view name) { return Checked(fmt::format("S {} {}", nth, name)); }

std::string ToldLine(const KeptNames::Told& told) {
  const auto until = std::chrono::floor<std::chrono::seconds>(told.until.time_since_epoch()).count();
  return Checked(fmt::format("R {} {} {}", until, told.address.ToString(), told.name));
}

KeptNames ParseKeptNames(std::string_view text, uint32_t given, WallTime now) {
  KeptNames names;
  names.given.resize(std::min<size_t>(given, dns::kMaxSyntheticNames));
  std::map<std::pair<IpAddress, std::string>, std::pair<size_t, WallTime>> told;  // with the place of its last line
  size_t place = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const auto content = ContentOf(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!content) continue;
    std::string_view rest = *content;
    const std::string_view kind = Field(&rest);
    const std::string_view number = Field(&rest);
    if (kind == "S") {
      const auto nth = NumberOf<uint32_t>(number);
      if (nth && *nth < names.given.size() && Fits(rest)) names.given[*nth] = rest;
    } else if (kind == "R") {
      const auto until = NumberOf<int64_t>(number);
      const auto address = IpAddress::Parse(Field(&rest));
      if (!until || *until <= 0 || !address || !Fits(rest)) continue;
      // The clock may have been set since.
      const WallTime most = now + dns::kHistoryLifetime;
      const WallTime end_of_it =
          *until > most.time_since_epoch() / std::chrono::seconds(1) ? most : WallTime(std::chrono::seconds(*until));
      if (end_of_it > now) told[{*address, std::string(rest)}] = {++place, end_of_it};
    }
  }
  std::vector<std::pair<size_t, KeptNames::Told>> ordered;
  ordered.reserve(told.size());
  for (auto& [key, value] : told) ordered.emplace_back(value.first, KeptNames::Told{key.first, key.second, value.second});
  std::ranges::sort(ordered, {}, [](const auto& one) { return one.first; });
  for (auto& one : ordered) names.told.push_back(std::move(one.second));
  return names;
}

std::string KeptNamesText(const KeptNames& names, size_t most) {
  std::vector<std::string> lines;  // the newest first
  size_t size = 0;
  const auto take = [&](std::string line) {
    size += line.size();
    if (size <= most) lines.push_back(std::move(line));
    return size <= most;
  };
  // Half for each, so that neither crowds out the other.
  for (size_t i = names.told.size(); i-- > 0 && size <= most / 2;) take(ToldLine(names.told[i]));
  for (size_t i = names.given.size(); i-- > 0;)
    if (!names.given[i].empty() && !take(GivenLine(static_cast<uint32_t>(i), names.given[i]))) break;
  std::string text;
  for (size_t i = lines.size(); i-- > 0;) text += lines[i];
  return text;
}

// The file of how far the pool has come, mapped: what stands here outlives the process however it ends.
struct NameStore::Shared {
  std::array<char, 8> magic;
  std::array<uint8_t, 8> prefix;
  uint32_t first;
  uint32_t given;
  uint64_t check;  ///< of what does not change

  [[nodiscard]] uint64_t CheckNow() const { return CheckOf({magic.data(), offsetof(Shared, given)}); }
  [[nodiscard]] bool Sound() const {
    return magic == kMagic && check == CheckNow() && first < dns::kMaxSyntheticNames && given <= dns::kMaxSyntheticNames;
  }
};

Result<std::unique_ptr<NameStore>> NameStore::Open(const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, kSharedFile);
  auto file = OpenOwn(path, O_RDWR);
  if (!file) return std::unexpected(file.error());
  if (::flock(file->get(), LOCK_EX | LOCK_NB) != 0)
    return Fail(Code::kExhausted, fmt::format("--state {}: another sidecar keeps its names there", folder));
  struct stat about{};
  ::fstat(file->get(), &about);
  const bool fresh = about.st_size == 0;
  // All of it is there before it is mapped: what is missing would be a signal later.
  if (const int error = ::posix_fallocate(file->get(), 0, kSharedBytes); error != 0)
    return FailErrno(fmt::format("cannot write {}", path), error);
  void* mapped = ::mmap(nullptr, kSharedBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->get(), 0);
  if (mapped == MAP_FAILED) return FailErrno(fmt::format("cannot map {}", path), errno);
  auto* shared = static_cast<Shared*>(mapped);
  const bool sound = shared->Sound();
  if (!sound && !fresh) LogError("{} is damaged; synthetic addresses begin anew at another place", path);

  const std::string names_path = fmt::format("{}/{}", folder, kNamesFile);
  auto names = OpenOwn(names_path, O_RDONLY);
  auto text = names ? ReadFile(names_path, 2 * kMaxKeptNameBytes) : Result<std::string>(std::unexpected(names.error()));
  if (!text && text.error().code == Code::kExhausted) {
    LogError("{} is larger than it is ever written; begun anew", names_path);
    text = std::string();
  }
  if (!text) {
    ::munmap(mapped, kSharedBytes);
    return std::unexpected(text.error());
  }
  KeptNames kept = ParseKeptNames(*text, sound ? shared->given : 0, SystemClock().Wall());
  std::unique_ptr<NameStore> store(new NameStore(folder, *std::move(file), shared, std::move(kept)));
  // Names of another place are gone before the new one stands.
  if (auto shortened = store->Shorten(); !shortened) return std::unexpected(shortened.error());
  if (!sound) {
    const auto drawn = dns::SyntheticPlace::DrawAnywhere();
    *shared = {kMagic, drawn.prefix, drawn.first, 0, 0};
    shared->check = shared->CheckNow();
  }
  return store;
}

NameStore::NameStore(std::string folder, UniqueFd shared_file, Shared* shared, KeptNames kept)
    : folder_(std::move(folder)), shared_file_(std::move(shared_file)), shared_(shared), kept_(std::move(kept)) {}

NameStore::~NameStore() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (writer_.joinable()) writer_.join();
  ::munmap(shared_, kSharedBytes);
}

dns::SyntheticPlace NameStore::place() const { return {shared_->prefix, shared_->first}; }

void NameStore::Restore(dns::SyntheticPool& pool, dns::NameHistory& history) {
  const WallTime wall = SystemClock().Wall();
  const SteadyTime steady = SystemClock().Steady();
  pool.Adopt(kept_.given, [this](uint32_t nth, std::string_view name) {
    std::atomic_ref(shared_->given).store(nth + 1, std::memory_order_release);
    if (Fits(name)) Keep(GivenLine(nth, name));
  });
  for (const KeptNames::Told& told : kept_.told) history.Note(told.name, told.address, steady + (told.until - wall));
  kept_ = {};
  history.Tell([this](std::string_view name, const IpAddress& address, SteadyTime until) {
    const auto left = std::chrono::floor<WallTime::duration>(until - SystemClock().Steady());
    if (Fits(name)) Keep(ToldLine({address, std::string(name), SystemClock().Wall() + left}));
  });
  writer_ = std::thread([this] { Write(); });
}

void NameStore::Keep(const std::string& line) {
  const std::lock_guard lock(mutex_);
  if (unwritten_.size() + line.size() > kMaxUnwrittenNameBytes) {
    lost_ = true;
    return;
  }
  const bool first = unwritten_.empty();
  unwritten_ += line;
  if (first) wake_.notify_one();
}

void NameStore::Write() {
  bool told = false;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return ending_ || !unwritten_.empty(); });
    if (unwritten_.empty()) return;
    if (!ending_) wake_.wait_for(lock, kGather, [this] { return ending_; });
    const std::string lines = std::exchange(unwritten_, {});
    const bool lost = std::exchange(lost_, false);
    lock.unlock();
    auto written = Append(lines);
    if (written && size_ > kMaxKeptNameBytes) written = Shorten();
    if (written && lost) written = Fail(Code::kExhausted, "they come faster than they can be written");
    if (!written && !std::exchange(told, true))
      LogWarn("names are not all kept in {}: {}; after a restart the addresses of those are refused", folder_,
              written.error().message);
    if (written) told = false;
    lock.lock();
  }
}

Result<void> NameStore::Append(const std::string& lines) {
  const std::string path = fmt::format("{}/{}", folder_, kNamesFile);
  // Where it could not be written anew for a while: the next start must be able to read it.
  if (size_ + lines.size() > 2 * kMaxKeptNameBytes) return Fail(Code::kExhausted, fmt::format("{} is full", path));
  if (auto written = WriteAll(file_.get(), lines, path); !written) return written;
  size_ += lines.size();
  return {};
}

// Written anew: what is past and what was said twice goes, and where that is not enough the oldest. Whole or not at all.
Result<void> NameStore::Shorten() {
  const std::string path = fmt::format("{}/{}", folder_, kNamesFile);
  std::string lines;
  if (writer_.joinable()) {
    auto text = ReadFile(path, 2 * kMaxKeptNameBytes);
    if (!text) return std::unexpected(text.error());
    const uint32_t given = std::atomic_ref(shared_->given).load(std::memory_order_acquire);
    lines = KeptNamesText(ParseKeptNames(*text, given, SystemClock().Wall()), kMaxKeptNameBytes / 2);
  } else {
    lines = KeptNamesText(kept_, kMaxKeptNameBytes / 2);
  }
  // What is lost with the machine is looked up again.
  auto file = ReplaceFile(path, lines, {.aside = path + ".next", .durability = Durability::kEither});
  if (!file) return std::unexpected(file.error());
  file_ = *std::move(file);
  size_ = lines.size();
  return {};
}

}  // namespace sluice::app
