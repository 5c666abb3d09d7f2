// Drives the fuzz targets without libFuzzer: every file of their corpora,
// then mutations of them for SF_FUZZ_SECONDS each.
// Each input lies in memory of exactly its size, so that AddressSanitizer sees the first byte too many.
#include "scaffolding/core/fuzz_target.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "scaffolding/core/env.h"
#include "scaffolding/core/source_dir.h"

namespace sf::fuzz {
namespace {

namespace fs = std::filesystem;
using Input = std::vector<uint8_t>;

std::vector<Input> corpus_of(const char* target) {
  std::vector<fs::path> files;
  fs::path folder = fs::path(SF_SOURCE_DIR) / "tests/fuzz_corpus" / target;
  if (fs::exists(folder))
    for (auto& e : fs::directory_iterator(folder)) files.push_back(e.path());
  std::sort(files.begin(), files.end());  // the same inputs from the same seed, wherever the folder lies
  std::vector<Input> out;
  for (auto& f : files) {
    std::ifstream in(f, std::ios::binary);
    out.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return out;
}

// Whether the target took the input; anything but sf::Error leaves the test.
bool accepted(const Target& target, const Input& input) {
  std::unique_ptr<uint8_t[]> exact(new uint8_t[input.size()]);
  if (!input.empty()) std::memcpy(exact.get(), input.data(), input.size());
  try {
    target.run(exact.get(), input.size());
    return true;
  } catch (const Error& e) {
    EXPECT_STRNE(e.what(), "");
    return false;
  }
}

Input mutated(const std::vector<Input>& corpus, std::mt19937_64& random) {
  auto below = [&](size_t n) { return n ? size_t(random() % n) : 0; };
  Input input = corpus[below(corpus.size())];
  constexpr uint8_t kBytes[] = {0, 1, 2, 4, 8, 16, 32, 64, 127, 128, 254, 255, '"', '{', '}', '[', ']', '0', '9', '-'};
  for (size_t edits = 1 + below(6); edits-- > 0;) {
    size_t at = below(input.size());
    switch (below(8)) {
      case 0:
        if (!input.empty()) input[at] ^= uint8_t(1 << below(8));
        break;
      case 1:
        if (!input.empty()) input[at] = kBytes[below(std::size(kBytes))];
        break;
      case 2: {  // a number of 1 to 8 bytes: a small one, or one of the ends of the range
        uint64_t v = below(2) ? below(300) : ~uint64_t(0) >> below(64);
        size_t n = size_t(1) << below(4);
        for (size_t i = 0; i < n && at + i < input.size(); ++i) input[at + i] = uint8_t(v >> 8 * i);
        break;
      }
      case 3: input.resize(at); break;
      case 4: input.insert(input.begin() + long(at), 1 + below(8), uint8_t(random())); break;
      case 5:
        if (!input.empty())
          input.erase(input.begin() + long(at),
                      input.begin() + long(at + 1 + below(std::min<size_t>(8, input.size() - at))));
        break;
      case 6: {  // a piece of another file
        const Input& other = corpus[below(corpus.size())];
        size_t from = below(other.size()), n = std::min(1 + below(64), other.size() - from);
        for (size_t i = 0; i < n && at + i < input.size(); ++i) input[at + i] = other[from + i];
        break;
      }
      default: {  // a piece of itself, again
        Input piece(input.begin() + long(at), input.begin() + long(std::min(input.size(), at + below(32))));
        input.insert(input.begin() + long(below(input.size())), piece.begin(), piece.end());
      }
    }
  }
  return input;
}

class FuzzTarget : public testing::TestWithParam<Target> {};

TEST_P(FuzzTarget, survives_its_corpus_and_mutations_of_it) {
  const Target& target = GetParam();
  auto corpus = corpus_of(target.name);
  ASSERT_FALSE(corpus.empty()) << "tests/fuzz_corpus/" << target.name << " has no files";
  size_t good = 0, cases = 0;
  for (auto& input : corpus) good += accepted(target, input);
  EXPECT_GT(good, 0u) << "no file of the corpus is accepted: mutations of them would test the first check only";
  auto seed = uint64_t(env::integer("SF_FUZZ_SEED"));
  std::mt19937_64 random(seed);
  auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(std::stod(env::text("SF_FUZZ_SECONDS")));
  good = 0;
  for (; std::chrono::steady_clock::now() < end; ++cases) good += accepted(target, mutated(corpus, random));
  RecordProperty("cases", int(cases));
  std::cout << target.name << ": " << cases << " mutations of " << corpus.size() << " files, seed " << seed << ", "
            << good << " accepted\n";
}

INSTANTIATE_TEST_SUITE_P(all, FuzzTarget, testing::ValuesIn(targets()),
                         [](auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sf::fuzz
