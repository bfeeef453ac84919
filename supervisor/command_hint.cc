#include "supervisor/command_hint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace sluice::supervisor {
namespace {

constexpr std::array<std::string_view, 5> kProgramFolders = {"bin", "sbin", "shims", "libexec", "scripts"};

std::string_view Folder(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string_view::npos ? "/" : path.substr(0, slash);
}

}  // namespace

std::string TreeToGrant(std::string_view executable, std::string_view home) {
  const std::string_view folder = Folder(executable);
  const std::string_view name = folder.substr(folder.rfind('/') + 1);
  const std::string_view above = Folder(folder);
  const bool programs = std::ranges::find(kProgramFolders, name) != kProgramFolders.end();
  return std::string(programs && above != "/" && above != home ? above : folder);
}

std::string HiddenCommandHint(std::string_view executable, std::string_view home) {
  return fmt::format("exists at {}, which the sandbox cannot see; add --ro {}", executable, TreeToGrant(executable, home));
}

}  // namespace sluice::supervisor
