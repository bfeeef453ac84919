// Which programs believe the sandbox's authority: each really asks the proxy for a page that the policy refuses. The 403 comes
// inside of TLS, so whoever saw it has accepted the certificate.

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "app/doctor/io/inside.h"
#include "app/doctor/io/stand_in.h"
#include "base/unique_fd.h"

namespace sluice::app {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{30};
constexpr size_t kMaxRuntimeOutput = 16 * 1024;
constexpr size_t kMaxRuntimeLines = 64;
constexpr std::string_view kUrl = "@URL@";

// How each is told to ask. `file`: written to the work directory first. Where the output says `needs`, it could not be tried.
struct Recipe {
  const char* name;
  const char* program;  ///< looked for on PATH
  std::vector<std::string> arguments;
  const char* file = nullptr;
  const char* content = nullptr;
  const char* needs = nullptr;
  const char* lacking = nullptr;
};

constexpr const char* kPython = R"(
import sys, urllib.request, urllib.error
try: print("status", urllib.request.urlopen(sys.argv[1], timeout=20).status)
except urllib.error.HTTPError as e: print("status", e.code)
)";
constexpr const char* kRequests = R"(
import sys
try: import requests
except ImportError: sys.exit("no module requests")
print("status", requests.get(sys.argv[1], timeout=20).status_code)
)";
constexpr const char* kNode = R"(
require("https").get(process.argv[1], r => { console.log("status", r.statusCode); r.resume(); process.exit(0) })
  .on("error", e => { console.log(e.message); process.exit(1) })
)";
constexpr const char* kJava = R"(
import java.net.HttpURLConnection;
import java.net.URI;
public class SluiceDoctor {
  public static void main(String[] a) throws Exception {
    System.out.println("status " + ((HttpURLConnection) URI.create(a[0]).toURL().openConnection()).getResponseCode());
  }
}
)";
constexpr const char* kGo = R"(package main

import (
	"fmt"
	"net/http"
	"os"
)

func main() {
	answer, err := http.Get(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("status", answer.StatusCode)
}
)";
constexpr const char* kRuby = R"(
require "net/http"; require "uri"
u = URI(ARGV[0]); h = Net::HTTP.new(u.host, u.port); h.use_ssl = true
puts "status #{h.get(u.path).code}"
)";

const std::vector<Recipe>& Recipes() {
  static const std::vector<Recipe> recipes = {
      {"curl", "curl", {"-sS", "-o", "/dev/null", "-m", "20", "-w", "status %{http_code}\n", "@URL@"}},
      {"wget", "wget", {"-q", "-S", "-O", "/dev/null", "-T", "20", "-t", "1", "@URL@"}},
      {"git", "git", {"-c", "http.lowSpeedTime=20", "-c", "http.lowSpeedLimit=1", "ls-remote", "@URL@"}},
      {"python", "python3", {"-c", kPython, "@URL@"}},
      {"requests", "python3", {"-c", kRequests, "@URL@"}, nullptr, nullptr, "no module requests", "python3 has no requests"},
      {"node", "node", {"-e", kNode, "@URL@"}},
      {"java",
       "java",
       {"-Xshare:auto", "-XX:TieredStopAtLevel=1", "SluiceDoctor.java", "@URL@"},
       "SluiceDoctor.java",
       kJava,
       "compiler",
       "it has no compiler to try it with; its store has the authority"},
      {"go", "go", {"run", "sluice_doctor.go", "@URL@"}, "sluice_doctor.go", kGo},
      {"ruby", "ruby", {"-e", kRuby, "@URL@"}},
  };
  return recipes;
}

std::string FindOnPath(std::string_view path, std::string_view program) {
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find(':', at), path.size());
    const std::string candidate = fmt::format("{}/{}", path.substr(at, end - at), program);
    if (end > at && ::access(candidate.c_str(), X_OK) == 0) return candidate;
    at = end + 1;
  }
  return "";
}

// 403 as a word of its own: not a part of a port.
bool ShowsRefusal(std::string_view output) {
  constexpr std::string_view kStatus = "403";
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  for (size_t at = output.find(kStatus); at != std::string_view::npos; at = output.find(kStatus, at + 1)) {
    const char before = at == 0 ? ' ' : output[at - 1];
    const char after = at + kStatus.size() == output.size() ? ' ' : output[at + kStatus.size()];
    if (!digit(before) && before != ':' && !digit(after)) return true;
  }
  return false;
}

// The line that says most, in few words: of a long trace the one with "cert" or "SSL", else the last.
std::string Gist(std::string_view output) {
  std::string_view chosen;
  for (size_t at = 0; at < output.size();) {
    const size_t end = std::min(output.find('\n', at), output.size());
    const std::string_view line = output.substr(at, end - at);
    at = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const bool telling = line.find("cert") != std::string_view::npos || line.find("SSL") != std::string_view::npos;
    const bool told = chosen.find("cert") != std::string_view::npos || chosen.find("SSL") != std::string_view::npos;
    if (telling || !told) chosen = line;
  }
  constexpr size_t kShownChars = 160;
  return std::string(chosen.substr(0, kShownChars));
}

struct Running {
  const Recipe* recipe = nullptr;
  std::string path;
  pid_t pid = -1;
  UniqueFd output;
  std::string text;
  bool over = false;
  int status = -1;
};

bool Start(Running& running, const std::string& url) {
  const Recipe& recipe = *running.recipe;
  if (recipe.file != nullptr && !(std::ofstream(recipe.file) << recipe.content)) return false;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
  running.output.Reset(ends[0]);
  const UniqueFd writer(ends[1]);
  running.pid = ::fork();
  if (running.pid != 0) return running.pid > 0;
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, 0);
  ::dup2(writer.get(), 1);
  ::dup2(writer.get(), 2);
  ::setpgid(0, 0);
  ::setenv("GIT_TERMINAL_PROMPT", "0", 1);
  ::setenv("HOME", ".", 1);
  std::vector<std::string> words = {running.path};
  for (std::string argument : recipe.arguments) {
    if (const size_t at = argument.find(kUrl); at != std::string::npos) argument.replace(at, kUrl.size(), url);
    words.push_back(std::move(argument));
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(running.path.c_str(), argv.data());
  ::_exit(127);
}

void ReadSome(Running& running) {
  std::array<char, 4096> piece{};
  const ssize_t got = ::read(running.output.get(), piece.data(), piece.size());
  if (got < 0 && errno == EINTR) return;
  if (got <= 0) {
    running.over = true;
    return;
  }
  if (running.text.size() < kMaxRuntimeOutput) running.text.append(piece.data(), static_cast<size_t>(got));
}

// All at once, until each has closed its output or time is up.
void Follow(std::vector<Running>& all) {
  const auto deadline = steady_clock::now() + kPatience;
  for (;;) {
    std::vector<pollfd> waits;
    std::vector<Running*> whose;
    for (Running& running : all) {
      if (running.over) continue;
      waits.push_back({running.output.get(), POLLIN, 0});
      whose.push_back(&running);
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
    if (waits.empty() || left <= 0) break;
    if (::poll(waits.data(), waits.size(), static_cast<int>(left)) < 0 && errno != EINTR) break;
    for (size_t i = 0; i < waits.size(); ++i)
      if (waits[i].revents != 0) ReadSome(*whose[i]);
  }
  for (Running& running : all) {
    ::kill(-running.pid, SIGKILL);
    while (::waitpid(running.pid, &running.status, 0) < 0 && errno == EINTR) {
    }
  }
}

Runtime Judge(const Running& running) {
  Runtime runtime{running.recipe->name, running.path, Trusts::kNo, {}};
  if (ShowsRefusal(running.text)) {
    runtime.trusts = Trusts::kYes;
    return runtime;
  }
  if (!running.over) {
    runtime.trusts = Trusts::kUntried;
    runtime.detail = fmt::format("no answer within {} s", kPatience.count());
    return runtime;
  }
  if (running.recipe->needs != nullptr && running.text.find(running.recipe->needs) != std::string::npos) {
    runtime.trusts = Trusts::kUntried;
    runtime.detail = running.recipe->lacking;
    return runtime;
  }
  runtime.detail = Gist(running.text);
  return runtime;
}

Trusts TrustsFrom(std::string_view name) {
  for (const Trusts trusts : {Trusts::kYes, Trusts::kNo, Trusts::kHidden, Trusts::kUntried})
    if (name == TrustsName(trusts)) return trusts;
  return Trusts::kUntried;
}

}  // namespace

std::vector<std::string> RuntimeNames() {
  std::vector<std::string> names;
  for (const Recipe& recipe : Recipes()) names.emplace_back(recipe.name);
  return names;
}

std::vector<Runtime> FindRuntimes(const std::string& path) {
  std::vector<Runtime> found;
  for (const Recipe& recipe : Recipes())
    if (std::string where = FindOnPath(path, recipe.program); !where.empty())
      found.push_back({recipe.name, std::move(where), {}, {}});
  return found;
}

std::string TryRuntimes(uint16_t port) {
  const char* path = std::getenv("PATH");
  const std::string url = fmt::format("https://{}:{}/refused", kDoctorInspected, port);
  std::vector<Running> all;
  for (const Recipe& recipe : Recipes()) {
    Running running;
    running.recipe = &recipe;
    running.path = FindOnPath(path == nullptr ? "" : path, recipe.program);
    if (!running.path.empty() && Start(running, url)) all.push_back(std::move(running));
  }
  Follow(all);
  std::string lines;
  for (const Running& running : all) {
    const Runtime runtime = Judge(running);
    const nlohmann::json line{
        {"name", runtime.name}, {"path", runtime.path}, {"trusts", TrustsName(runtime.trusts)}, {"detail", runtime.detail}};
    lines += line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  return lines;
}

std::vector<Runtime> ParseRuntimes(std::string_view lines) {
  std::vector<Runtime> runtimes;
  for (size_t at = 0; at < lines.size() && runtimes.size() < kMaxRuntimeLines;) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    const nlohmann::json line = nlohmann::json::parse(lines.substr(at, end - at), nullptr, false);
    at = end + 1;
    const auto text = [&line](const char* key) {
      return line.is_object() && line.contains(key) && line[key].is_string() ? line[key].get<std::string>() : std::string();
    };
    if (!text("name").empty()) runtimes.push_back({text("name"), text("path"), TrustsFrom(text("trusts")), text("detail")});
  }
  return runtimes;
}

}  // namespace sluice::app
