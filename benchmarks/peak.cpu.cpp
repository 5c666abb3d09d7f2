// Twelve chains of multiply-adds: enough to hide a latency of 4 to 6 cycles on two ports, few enough for 16 registers.
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

// step(sum, k) is one multiply-add; without the barrier the compiler would see through the loop.
template <class Step> SF_INLINE void chains(int64_t rounds, Step step) {
  vf s0(0.f), s1(1.f), s2(2.f), s3(3.f), s4(4.f), s5(5.f), s6(6.f), s7(7.f), s8(8.f), s9(9.f), s10(10.f), s11(11.f);
  for (int64_t k = 0; k < rounds; ++k) {
#define SF_STEP(s) \
  s = step(s);     \
  SF_KEEP_IN_REGISTER(s.v);
    SF_STEP(s0) SF_STEP(s1) SF_STEP(s2) SF_STEP(s3) SF_STEP(s4) SF_STEP(s5) SF_STEP(s6) SF_STEP(s7) SF_STEP(s8) SF_STEP(s9) SF_STEP(s10) SF_STEP(s11)
#undef SF_STEP
  }
}

void float32(const bench::Peak& p) {
  vf a(1.0001f), b(0.9999f);
  SF_KEEP_IN_REGISTER(a.v);
  SF_KEEP_IN_REGISTER(b.v);
  chains(
      p.rounds, [&](vf s) __attribute__((always_inline)) { return fma(a, b, s); });
  *p.flop = 12.0 * 2 * kLanes * double(p.rounds);
}
bool is_float32(const bench::Peak& p) { return p.dtype == kFloat32; }
SF_KERNEL(bench::peak_kernel, DeviceType::CPU, "fma", SF_ISA_PRIORITY, float32, is_float32)

#if defined(__AVX512BF16__)
void bfloat16(const bench::Peak& p) {
  vi_raw ones = vi_raw{} + 0x3f803f80;
  SF_KEEP_IN_REGISTER(ones);
  chains(
      p.rounds, [&](vf s) __attribute__((always_inline)) { return vf((vf_raw)_mm512_dpbf16_ps((__m512)s.v, (__m512bh)ones, (__m512bh)ones)); });
  *p.flop = 12.0 * 4 * kLanes * double(p.rounds);
}
bool is_bfloat16(const bench::Peak& p) { return p.dtype == kBFloat16; }
SF_KERNEL(bench::peak_kernel, DeviceType::CPU, "vdpbf16ps", SF_ISA_PRIORITY, bfloat16, is_bfloat16)
#endif

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
