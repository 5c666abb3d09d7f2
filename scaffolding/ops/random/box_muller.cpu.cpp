// Logarithm, sine and cosine after Cephes (S. Moshier), evaluated in the order of torch's avx_mathfun.h as its compiler
// fuses it. Ours in simd_math.h are more accurate and therefore give other last bits.
#include "scaffolding/backend/cpu/simd.h"
#include "scaffolding/backend/cpu/simd_math.h"
#include "scaffolding/ops/random/kernel.h"

namespace sf {
namespace SF_ISA {
namespace {

SF_INLINE vf cephes_log(vf x) {  // x in (0, 1], normal
  vi_raw exponent = (bits(x) >> 23) - 0x7e;
  vf m = from_bits((bits(x) & ~0x7f800000) | 0x3f000000);  // [0.5, 1)
  vf e = __builtin_convertvector(exponent, vf_raw);
  vm low = m < vf(0.707106781186547524f);
  vf twice = select(low, m, vf(0.f));
  e = e - select(low, vf(1.f), vf(0.f));
  m = (m - vf(1.f)) + twice;
  vf z = m * m, y = vf(7.0376836292E-2f);
  y = fma(y, m, vf(-1.1514610310E-1f));
  y = fma(y, m, vf(1.1676998740E-1f));
  y = fma(y, m, vf(-1.2420140846E-1f));
  y = fma(y, m, vf(1.4249322787E-1f));
  y = fma(y, m, vf(-1.6668057665E-1f));
  y = fma(y, m, vf(2.0000714765E-1f));
  y = fma(y, m, vf(-2.4999993993E-1f));
  y = fma(y, m, vf(3.3333331174E-1f));
  y = y * m;
  vf tail = e * vf(-2.12194440e-4f);
  y = fma(y, z, tail);
  y = fma(-z, vf(0.5f), y);
  return fma(e, vf(0.693359375f), m + y);
}

SF_INLINE void cephes_sincos(vf x, vf& sine, vf& cosine) {  // x >= 0
  vi_raw j = (__builtin_convertvector((x * vf(1.27323954473516f)).v, vi_raw) + 1) & ~1;
  vf y = __builtin_convertvector(j, vf_raw);
  vi_raw sine_sign = (j & 4) << 29, cosine_sign = (~(j - 2) & 4) << 29;
  vm first = {vi_raw((j & 2) == 0)};
  x = fma(y, vf(-0.78515625f), x);
  x = fma(y, vf(-2.4187564849853515625e-4f), x);
  x = fma(y, vf(-3.77489497744594108e-8f), x);
  vf z = x * x;
  vf c = vf(2.443315711809948E-005f);
  c = fma(c, z, vf(-1.388731625493765E-003f));
  c = fma(c, z, vf(4.166664568298827E-002f));
  c = c * z;
  vf half = z * vf(0.5f);
  c = fma(c, z, -half) + vf(1.f);
  vf s = vf(-1.9515295891E-4f);
  s = fma(s, z, vf(8.3321608736E-3f));
  s = fma(s, z, vf(-1.6666654611E-1f));
  s = s * z;
  s = fma(s, x, x);
  sine = from_bits(bits(select(first, s, c)) ^ sine_sign);
  cosine = from_bits(bits(select(first, c, s)) ^ cosine_sign);
}

void box_muller(const BoxMuller& b) {
  constexpr int kGroup = kLanes < 8 ? kLanes : 8;  // lanes that lie side by side in a half block
  constexpr int64_t kHalves = kLanes / kGroup;     // blocks per vector
  for (int64_t at = 0; at < b.blocks; at += kHalves) {
    int64_t count = b.blocks - at < kHalves ? b.blocks - at : kHalves;
    for (int part = 0; part < 8; part += kGroup) {
      alignas(64) float u[kLanes] = {}, v[kLanes] = {};
      for (int64_t k = 0; k < count; ++k) {
        std::memcpy(u + k * kGroup, b.data + (at + k) * 16 + part, sizeof(float) * kGroup);
        std::memcpy(v + k * kGroup, b.data + (at + k) * 16 + 8 + part, sizeof(float) * kGroup);
      }
      vf radius = sqrt(vf(-2.f) * cephes_log(vf(1.f) - load(u)));
      vf sine, cosine;
      cephes_sincos(vf(6.283185307179586f) * load(v), sine, cosine);
      store(u, fma(radius * cosine, vf(b.std), vf(b.mean)));
      store(v, fma(radius * sine, vf(b.std), vf(b.mean)));
      for (int64_t k = 0; k < count; ++k) {
        std::memcpy(b.data + (at + k) * 16 + part, u + k * kGroup, sizeof(float) * kGroup);
        std::memcpy(b.data + (at + k) * 16 + 8 + part, v + k * kGroup, sizeof(float) * kGroup);
      }
    }
  }
}

SF_KERNEL(box_muller_kernel, DeviceType::CPU, "native", SF_ISA_PRIORITY, box_muller, nullptr)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
