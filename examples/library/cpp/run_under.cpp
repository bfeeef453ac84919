// Runs a command under a policy with libsluice in a poll loop of its own, and takes rights away while it runs: when the command's first
// exchange is over, a second policy replaces the first, provided that it is proved to let out no more.
//
//   ./run_under policy.yaml [--then narrower.yaml] [--upstream-ca FILE] -- curl https://api.example.com/
#include <poll.h>

#include <cstddef>
#include <fstream>
#include <iostream>
#include <optional>
#include <sluice/sluice.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace {

int Fail(const sluice::Failure& failure) {
  std::cerr << "run_under: " << failure.message << '\n';
  return 2;
}

std::string ReadFile(const std::string& path) {
  const std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Until the run has ended: other descriptors of the program would be polled here as well.
int Supervise(sluice::Run& run, const size_t& exchanges, std::optional<std::string> then) {
  while (run.running()) {
    pollfd waits[] = {{run.fd(), POLLIN, 0}};
    if (poll(waits, 1, -1) < 0) continue;
    if (auto done = run.Dispatch(); !done) return Fail(done.error());
    if (exchanges == 0 || !then) continue;
    const auto change = run.SetPolicy(*then, SLUICE_APPLY_NARROW);
    then.reset();
    if (change) {
      std::cout << "narrowed, revision " << change->revision << std::endl;
    } else {
      std::cout << "not narrowed: " << change.error().message << std::endl;
    }
  }
  const auto result = run.Wait();
  if (!result) return Fail(result.error());
  std::cout << "exit " << result->exit_code << ", " << result->allowed << " allowed, " << result->denied << " denied" << std::endl;
  return result->exit_code;
}

int Usage() {
  std::cerr << "usage: run_under POLICY [--then POLICY] [--upstream-ca FILE] -- COMMAND...\n";
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  size_t command = 1;
  while (command + 1 < words.size() && words[command] != "--") command += 2;
  if (command + 1 >= words.size()) return Usage();
  const auto policy = sluice::Policy::FromFile(words[0]);
  if (!policy) return Fail(policy.error());
  sluice::Options options;
  std::optional<std::string> then;
  for (size_t i = 1; i < command; i += 2) {
    if (words[i] == "--then") {
      then = ReadFile(words[i + 1]);
    } else if (words[i] == "--upstream-ca") {
      options.Set(SLUICE_UPSTREAM_CA, words[i + 1]);
    } else {
      return Usage();
    }
  }
  size_t exchanges = 0;
  options.UsePolicy(*policy).Command({words.begin() + static_cast<std::ptrdiff_t>(command + 1), words.end()});
  options.WithExchanges().OnRecord([&](std::string_view json) {
    if (json.find(R"("type":"exchange")") != json.npos) ++exchanges;
    std::cerr << "record " << json << '\n';
  });
  options.OnLog([](std::string_view line) { std::cerr << line << '\n'; });
  auto run = sluice::Run::Start(options);
  if (!run) return Fail(run.error());
  return Supervise(*run, exchanges, then);
}
