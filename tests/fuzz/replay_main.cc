// Runs a fuzz target over every file of a corpus folder, so that what fuzzing once found is tested on each run. Where a target
// knows the shape of its inputs (shape.h), what a few hundred changes make of each file is run as well, the same ones each time.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed);
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

namespace {

constexpr size_t kMost = 4096;    // octets of a changed input
constexpr unsigned kChains = 32;  // of each file
constexpr unsigned kChangesInAChain = 8;

std::minstd_rand& Random() {
  static std::minstd_rand random(1);
  return random;
}

// Returns how many inputs were made of it.
size_t RunChanged(const std::vector<uint8_t>& seed, size_t number) {
  for (unsigned chain = 0; chain < kChains; ++chain) {
    std::vector<uint8_t> bytes(seed.begin(), seed.begin() + static_cast<std::ptrdiff_t>(std::min(seed.size(), kMost)));
    for (unsigned change = 0; change < kChangesInAChain; ++change) {
      const auto drawn = static_cast<unsigned>((number * kChains + chain) * kChangesInAChain + change);
      Random().seed(drawn + 1);
      size_t size = bytes.size();
      bytes.resize(kMost);
      size = LLVMFuzzerCustomMutator(bytes.data(), size, kMost, drawn);
      bytes.resize(size);
      // As libFuzzer gives it: where it ends, memory ends.
      const std::vector<uint8_t> exact(bytes);
      LLVMFuzzerTestOneInput(exact.data(), exact.size());
    }
  }
  return size_t{kChains} * kChangesInAChain;
}

}  // namespace

// What libFuzzer has of its own, in small: one change of some octets.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most) {
  std::minstd_rand& random = Random();
  const auto octet = [&] { return static_cast<uint8_t>(random() >> 8); };
  if (most == 0) return 0;
  if (size == 0 || (size < most && random() % 3 == 0)) {
    const size_t at = random() % (size + 1);
    std::memmove(data + at + 1, data + at, size - at);
    data[at] = octet();
    return size + 1;
  }
  const size_t at = random() % size;
  if (random() % 4 == 0) {
    std::memmove(data + at, data + at + 1, size - at - 1);
    return size - 1;
  }
  data[at] = random() % 2 == 0 ? octet() : static_cast<uint8_t>(data[at] ^ (1u << random() % 8));
  return size;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[1]))
    if (entry.is_regular_file()) files.push_back(entry.path());
  if (files.empty()) {
    std::fprintf(stderr, "%s: the corpus is empty, so nothing was tested\n", argv[1]);
    return 1;
  }
  std::ranges::sort(files);
  size_t changed = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    std::ifstream file(files[i], std::ios::binary);
    const std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    if (LLVMFuzzerCustomMutator != nullptr) changed += RunChanged(bytes, i);
  }
  std::printf("replayed %zu inputs, and %zu made of them\n", files.size(), changed);
  return 0;
}
