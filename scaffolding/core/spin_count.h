// How long OpenMP's threads look for their next work before they sleep, for GOMP_SPINCOUNT: GNU OpenMP reads it when it
// is loaded and has no function for this, so whoever loads it sets it first (apps/cli/openmp_waits.cpp, _waiting.py).
//
// It counts pauses, which take 10 ns on some processors and 50 on others. By default it is 300 000: while another
// program has one of the cores, every parallel region ends with milliseconds of such waits (beside a compiler, a
// training step of ResNet-18 took eight times as long). Too few, and threads sleep in the gaps between the kernels of a
// step and have to be woken: on a virtual machine of two cores pictures of emoji-128 took 1.80 s with 20 us, 1.65 with
// 30, 1.59 with 40 and 1.62 with 50, and beside another program 4.5, 5.1, 5.5 and 5.9.
#pragma once
#include <algorithm>
#include <chrono>

namespace sf {

inline long spin_count() {
  constexpr double kSeconds = 40e-6;
  constexpr int kPauses = 500;
  double least = 1;  // of so many; whatever else the machine does makes it longer
  for (int again = 0; again < 3; ++again) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kPauses; ++i) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#else
      __asm__ volatile("" ::: "memory");
#endif
    }
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return std::clamp(long(kSeconds * kPauses / std::max(least, 1e-9)), 500L, 50000L);
}

}  // namespace sf
