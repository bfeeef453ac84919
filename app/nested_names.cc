#include "app/nested_names.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <string_view>
#include <utility>

#include "base/random.h"
#include "policy/compiled.h"

namespace sluice::app {
namespace {

constexpr size_t kMostText = size_t{1} << 20;  // of a policy file
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Result<std::shared_ptr<dns::SharedRations>> Map(const UniqueFd& file) {
  void* memory = ::mmap(nullptr, sizeof(dns::SharedRations), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return FailErrno("cannot map the rations of names", errno);
  return std::shared_ptr<dns::SharedRations>(static_cast<dns::SharedRations*>(memory),
                                             [](dns::SharedRations* mapped) { ::munmap(mapped, sizeof *mapped); });
}

}  // namespace

Result<NameRations> MakeNameRations() {
  NameRations made{UniqueFd(::memfd_create("sluice-rations", MFD_CLOEXEC | MFD_ALLOW_SEALING)), nullptr};
  if (!made.file) return FailErrno("memfd_create", errno);
  if (::ftruncate(made.file.get(), sizeof(dns::SharedRations)) != 0 || ::fcntl(made.file.get(), F_ADD_SEALS, kSeals) != 0)
    return FailErrno("cannot make room for the rations of names", errno);
  auto rations = Map(made.file);
  if (!rations) return std::unexpected(rations.error());
  made.rations = *std::move(rations);
  made.rations->SetKey({RandomU64(), RandomU64()});
  return made;
}

Result<std::shared_ptr<dns::SharedRations>> MapNameRations(int number) {
  UniqueFd file(number);
  struct stat about{};
  if (::fstat(file.get(), &about) != 0 || about.st_size != sizeof(dns::SharedRations) ||
      ::fcntl(file.get(), F_GET_SEALS) != kSeals)
    return Fail(Code::kInvalid, fmt::format("--rations-fd {}: these are none of an outer run", number));
  return Map(file);
}

// Whatever a rule asks besides: what counts is which words of a name are the author's. Of an author with too many of them none
// count.
std::string NamesOf(const policy::Snapshot& outer) {
  std::set<std::string_view> seen;
  std::string text = "version: 1\nrules:\n";
  for (const policy::Rule& rule : outer.compiled().rules) {
    if (!rule.allow || rule.host.text.empty() || rule.host.kind == policy::HostPattern::Kind::kAddress) continue;
    if (!seen.insert(rule.host.text).second) continue;
    text += fmt::format("  - allow: \"tcp {}:443\"\n", rule.host.text);
  }
  if (seen.empty()) return "version: 1\nrules: []\n";
  return text.size() <= kMostText ? text : "version: 1\nrules:\n  - allow: \"tcp **:443\"\n";
}

}  // namespace sluice::app
