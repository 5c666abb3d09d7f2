// Fuzz targets: a reader of bytes of unknown origin, given anything. In x_fuzz.cpp beside the reader:
//   SF_FUZZ_TARGET(gguf) { io::GgufFile(io::Bytes::borrow(data, size, "fuzz")); }
// sf::Error is the right answer to nonsense; a crash, a sanitizer's report or another exception is a bug.
// tests/fuzz builds each target with libFuzzer; without clang, fuzz_target_test.cpp drives all of them with mutations
// of the corpus in tests/fuzz_corpus/<name>. Targets keep no state.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "scaffolding/core/error.h"

namespace sf::fuzz {

struct Target {
  const char* name;
  void (*run)(const uint8_t* data, size_t size);
};
inline std::vector<Target>& targets() {
  static std::vector<Target> all;
  return all;
}
struct Registration {
  Registration(const char* name, void (*run)(const uint8_t*, size_t)) { targets().push_back({name, run}); }
};

}  // namespace sf::fuzz

#ifdef SF_LIBFUZZER
#define SF_FUZZ_ENTRY(name)                                                 \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    try {                                                                   \
      fuzz_##name(data, size);                                              \
    } catch (const ::sf::Error&) {}                                         \
    return 0;                                                               \
  }
#else
#define SF_FUZZ_ENTRY(name) static ::sf::fuzz::Registration fuzz_registration_##name(#name, fuzz_##name);
#endif
#define SF_FUZZ_TARGET(name)                                 \
  static void fuzz_##name(const uint8_t* data, size_t size); \
  SF_FUZZ_ENTRY(name)                                        \
  static void fuzz_##name([[maybe_unused]] const uint8_t* data, [[maybe_unused]] size_t size)
