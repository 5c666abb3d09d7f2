// Chains of multiply-adds that do not wait for each other: 12 hide a latency of 4 cycles on two ports and fit 16
// registers; with 32 registers 24, since twelve vdpbf16ps of 6 cycles just fill two ports:
// 10 % below what a matrix product reaches.
#include "benchmarks/peak.h"

#include "scaffolding/backend/cpu/simd.h"

namespace sf {
namespace SF_ISA {
namespace {

#if defined(__x86_64__)
#define SF_KEEP_IN_REGISTER(x) asm volatile("" : "+v"(x))
#else
#define SF_KEEP_IN_REGISTER(x) asm volatile("" : "+w"(x))
#endif

inline constexpr int kChains = kLanes == 16 ? 24 : 12;

// step(sum) is one multiply-add; without the barrier the compiler would see through the loop.
template <class Step> SF_INLINE void chains(int64_t rounds, Step step) {
  vf s[kChains];
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) s[i] = vf(float(i));
  for (int64_t k = 0; k < rounds; ++k) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) {
      s[i] = step(s[i]);
      SF_KEEP_IN_REGISTER(s[i].v);
    }
  }
}

void float32(const bench::Peak& p) {
  vf a(1.0001f), b(0.9999f);
  SF_KEEP_IN_REGISTER(a.v);
  SF_KEEP_IN_REGISTER(b.v);
  chains(
      p.rounds, [&](vf s) __attribute__((always_inline)) { return fma(a, b, s); });
  *p.flop = kChains * 2.0 * kLanes * double(p.rounds);
}
bool is_float32(const bench::Peak& p) { return p.dtype == kFloat32; }
SF_KERNEL(bench::peak_kernel, DeviceType::CPU, "fma", SF_ISA_PRIORITY, float32, is_float32)

#if defined(__AVX512BF16__)
void bfloat16(const bench::Peak& p) {
  vi_raw ones = vi_raw{} + 0x3f803f80;
  SF_KEEP_IN_REGISTER(ones);
  chains(
      p.rounds, [&](vf s) __attribute__((always_inline)) {
        return vf((vf_raw)_mm512_dpbf16_ps((__m512)s.v, (__m512bh)ones, (__m512bh)ones));
      });
  *p.flop = kChains * 4.0 * kLanes * double(p.rounds);
}
bool is_bfloat16(const bench::Peak& p) { return p.dtype == kBFloat16; }
SF_KERNEL(bench::peak_kernel, DeviceType::CPU, "vdpbf16ps", SF_ISA_PRIORITY, bfloat16, is_bfloat16)
#endif

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
