// SPDX-License-Identifier: MIT
// Stands in for libFuzzer in test builds: each file of a corpus folder as it is, every prefix of
// it, and a number of mutations that are the same on every run.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz/check.h"

namespace {

using Input = std::vector<std::uint8_t>;
constexpr int kMutations = 2000;
constexpr std::size_t kMaxPrefixes = 512;

Input read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// Exactly the input's bytes on the heap, so that a sanitizer sees a read beyond them.
void run(const Input& input) {
  const Input exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

Input mutated(Input input, std::mt19937& random) {
  const unsigned changes = 1 + random() % 4;
  for (unsigned i = 0; i < changes && !input.empty(); ++i) {
    const std::size_t at = random() % input.size();
    switch (random() % 4) {
      case 0:
        input[at] = static_cast<std::uint8_t>(random());
        break;
      case 1:
        input[at] ^= static_cast<std::uint8_t>(1u << random() % 8);
        break;
      case 2:
        input.resize(at);
        break;
      default:
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), random() % 9,
                     static_cast<std::uint8_t>(random()));
    }
  }
  return input;
}

void replay(const Input& seed) {
  run(seed);
  for (std::size_t n = 0; n < std::min(seed.size(), kMaxPrefixes); ++n) {
    run(Input(seed.begin(), seed.begin() + static_cast<std::ptrdiff_t>(n)));
  }
  std::mt19937 random(1);
  for (int i = 0; i < kMutations; ++i) run(mutated(seed, random));
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    if (std::filesystem::is_directory(argv[i])) {
      for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
        if (entry.is_regular_file()) files.push_back(entry.path());
      }
    } else {
      files.emplace_back(argv[i]);
    }
  }
  std::ranges::sort(files);
  for (const auto& file : files) {
    std::printf("%s\n", file.c_str());
    std::fflush(stdout);
    replay(read_file(file));
  }
  std::printf("%zu inputs\n", files.size());
  return files.empty() ? 1 : 0;  // a corpus that went missing is a failure
}
