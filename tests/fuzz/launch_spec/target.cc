// A launch file: what is taken is JSON by another reader's word too and within the bounds, and what is not has a place in the
// text. Its published ports and environment, which are parsed later, come along.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "app/launch_file.h"
#include "supervisor/environment.h"
#include "supervisor/published_port.h"

using namespace sluice;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  const auto file = app::ParseLaunchFile(in, "launch.json");
  if (!file) {
    const auto lines = static_cast<uint32_t>(std::ranges::count(in, '\n') + 1);
    if (size <= app::kMaxLaunchFile && (!file.error().span || file.error().span->line < 1 || file.error().span->line > lines))
      std::abort();
    return 0;
  }
  if (!nlohmann::json::accept(in)) std::abort();
  if (file->command.size() > 4096 ||
      (!file->on_disconnect.empty() && file->on_disconnect != "kill" && file->on_disconnect != "freeze"))
    std::abort();
  for (const std::string& text : file->publish)
    if (const auto port = supervisor::ParsePublishedPort(text); port && port->inside == 0) std::abort();
  supervisor::EnvironmentWishes wishes{.additions = file->environment_pass, .unsafe = file->environment_unsafe};
  for (const auto& [name, value] : file->environment_set) wishes.additions.push_back(name + "=" + value);
  if (const auto chosen = supervisor::ChooseEnvironment({{"GITHUB_TOKEN", "x"}}, wishes); chosen && wishes.unsafe.empty())
    for (const auto& [name, value] : chosen->variables)
      if (supervisor::LooksLikeCredential(name, value)) std::abort();
  return 0;
}
