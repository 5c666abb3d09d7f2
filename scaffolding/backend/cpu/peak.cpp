// Multiply-adds that do not wait for each other: twelve sums hide a latency of 4 cycles on two ports and fit 16
// registers; with 32 registers 24, since twelve vdpbf16ps of 6 cycles just fill two ports: 10 % below what a matrix
// product reaches. The loops are assembly, each behind the question whether the processor has the instruction, so that
// any compiler makes all of them and none needs a file of its own.
#include "scaffolding/backend/cpu/peak.h"

#include <algorithm>
#include <ctime>
#include <string_view>

#include "scaffolding/backend/cpu/isa.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/parallel.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace sf::cpu {
namespace {

// ---- loops

// Vectors of four floats, which any processor has. Where multiplication and addition are two instructions the product
// must depend on the sum, or the compiler makes it once.
void four_floats(int64_t rounds) {
  typedef float Four __attribute__((vector_size(16)));
  constexpr int kChains = 12;
  Four sums[kChains] = {}, a = Four{} + 0.9999f, b = Four{} + 1.0001f;
  for (int64_t k = 0; k < rounds; ++k) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
#if defined(__aarch64__)
      asm volatile("fmla %0.4s, %1.4s, %2.4s" : "+w"(sums[i]) : "w"(a), "w"(b));
#elif defined(__x86_64__)
      sums[i] = sums[i] * a + b;
      asm volatile("" : "+x"(sums[i]));
#else
      sums[i] = sums[i] * a + b;
      asm volatile("" : "+m"(sums[i]));
#endif
    }
  }
}

#if defined(__x86_64__)

// Numbers one, as factors.
constexpr uint32_t kOneFloat32 = 0x3f800000, kOneBFloat16 = 0x3f803f80, kOneFloat16 = 0x3c003c00, kOneInt8 = 0x01010101;

// The factor one in the registers 14 and 15, sums in those listed.
#define SF_CHAINS(v, sums, instruction)                            \
  "vmovd %1, %%xmm14\n"                                            \
  "vpbroadcastd %%xmm14, %%" v                                     \
  "14\n"                                                           \
  "vpbroadcastd %%xmm14, %%" v                                     \
  "15\n"                                                           \
  ".irp sum," sums                                                 \
  "\n vxorps %%xmm\\sum, %%xmm\\sum, %%xmm\\sum\n .endr\n"         \
  "1:\n"                                                           \
  ".irp sum," sums "\n " instruction " %%" v "14, %%" v "15, %%" v \
  "\\sum\n"                                                        \
  ".endr\n"                                                        \
  "sub $1, %0\n jnz 1b\n vzeroupper"
#define SF_LOW_REGISTERS                                                                                           \
  "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm14", \
      "xmm15"

#define SF_YMM_LOOP(name, one, instruction)                                 \
  __attribute__((target("avx2"))) void name(int64_t rounds) {               \
    asm volatile(SF_CHAINS("ymm", "0,1,2,3,4,5,6,7,8,9,10,11", instruction) \
                 : "+r"(rounds)                                             \
                 : "r"(one)                                                 \
                 : SF_LOW_REGISTERS);                                       \
  }
#define SF_ZMM_LOOP(name, one, instruction)                                                                           \
  __attribute__((target("avx512f"))) void name(int64_t rounds) {                                                      \
    asm volatile(SF_CHAINS("zmm", "0,1,2,3,4,5,6,7,8,9,10,11,16,17,18,19,20,21,22,23,24,25,26,27", instruction)       \
                 : "+r"(rounds)                                                                                       \
                 : "r"(one)                                                                                           \
                 : SF_LOW_REGISTERS, "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", \
                   "xmm25", "xmm26", "xmm27");                                                                        \
  }
SF_YMM_LOOP(fma_256, kOneFloat32, "vfmadd231ps")
SF_YMM_LOOP(avx_vnni, kOneInt8, "%{vex%} vpdpbusd")  // braces alone would choose between dialects of assembly
SF_ZMM_LOOP(fma_512, kOneFloat32, "vfmadd231ps")
SF_ZMM_LOOP(avx512_bf16, kOneBFloat16, "vdpbf16ps")
SF_ZMM_LOOP(avx512_fp16, kOneFloat16, "vfmadd231ph")
SF_ZMM_LOOP(avx512_vnni, kOneInt8, "vpdpbusd")

// Two by two tiles, as a product has them: sums in 0 to 3, factors in 4 to 7. Factors are numbers from `one` to twice
// that (`digits` are their mantissas): with the same number everywhere a tile unit takes less power and runs a tenth
// faster than it ever does for a product.
#define SF_TILE_LOOP(name, one, digits, DOT)                                                           \
  void name(int64_t rounds) {                                                                          \
    struct alignas(64) {                                                                               \
      uint8_t palette = 1, start = 0, reserved[14] = {};                                               \
      uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};                                           \
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};                                             \
    } config;                                                                                          \
    alignas(64) uint32_t ones[16 * 16];                                                                \
    for (uint32_t i = 0; i < 256; ++i) ones[i] = one | (i * 0x9e3779b9u & digits);                     \
    asm volatile(                                                                                      \
        "ldtilecfg %1\n"                                                                               \
        ".irp sum,0,1,2,3\n tilezero %%tmm\\sum\n .endr\n"                                             \
        ".irp factor,4,5,6,7\n tileloadd (%2,%3,1), %%tmm\\factor\n"                                   \
        ".endr\n"                                                                                      \
        "1:\n" DOT(0, 4, 6) DOT(1, 4, 7) DOT(2, 5, 6) DOT(3, 5, 7) "sub $1, %0\n jnz 1b\n tilerelease" \
        : "+r"(rounds)                                                                                 \
        : "m"(config), "r"(ones), "r"(int64_t(64))                                                     \
        : "cc", "memory");                                                                             \
  }
#define SF_TDPBF16PS(c, a, b) "tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c "\n"
#define SF_TDPBSSD(c, a, b) "tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c "\n"
// tdpfp16ps in bytes: assemblers before 2023 do not know it.
#define SF_TDPFP16PS(c, a, b) ".byte 0xc4, 0xe2, 0x7b - 8 * " #b ", 0x5c, 0xc0 + 8 * " #c " + " #a "\n"
SF_TILE_LOOP(amx_bf16, kOneBFloat16, 0x007f007fu, SF_TDPBF16PS)
SF_TILE_LOOP(amx_fp16, kOneFloat16, 0x03ff03ffu, SF_TDPFP16PS)
SF_TILE_LOOP(amx_int8, kOneInt8, 0xfefefefeu, SF_TDPBSSD)

struct Features {
  bool avx512_vnni = false, avx512_fp16 = false, avx_vnni = false, amx_fp16 = false;
};
Features features() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return {};
  Features f{.avx512_vnni = bool(c >> 11 & 1), .avx512_fp16 = bool(d >> 23 & 1)};
  if (a < 1) return f;  // there is no second leaf
  __get_cpuid_count(7, 1, &a, &b, &c, &d);
  f.avx_vnni = a >> 4 & 1, f.amx_fp16 = a >> 21 & 1;
  return f;
}

#endif

std::vector<Unit> find_units() {
  std::vector<Unit> found;
  [[maybe_unused]] auto add = [&](bool present, Unit unit) {
    if (present) found.push_back(unit);
  };
  // Chains times lanes times multiply-adds of a lane times two.
#if defined(__x86_64__)
  const bool wide = has(Isa::avx512), tiles = has(Isa::avx512amx);
  const Features f = features();
  add(wide, {"FMA float32", "vfmadd231ps zmm", kFloat32, 24 * 16 * 2, fma_512});
  add(!wide && has(Isa::avx2), {"FMA float32", "vfmadd231ps ymm", kFloat32, 12 * 8 * 2, fma_256});
  add(!has(Isa::avx2), {"SSE float32", "mulps, addps", kFloat32, 12 * 4 * 2, four_floats});
  add(has(Isa::avx512bf16), {"AVX512-BF16 bfloat16", "vdpbf16ps zmm", kBFloat16, 24 * 16 * 2 * 2, avx512_bf16});
  add(tiles, {"AMX bfloat16", "tdpbf16ps", kBFloat16, 4 * 256 * 32 * 2, amx_bf16});
  add(wide && f.avx512_fp16, {"AVX512-FP16 float16", "vfmadd231ph zmm", kFloat16, 24 * 32 * 2, avx512_fp16});
  add(tiles && f.amx_fp16, {"AMX float16", "tdpfp16ps", kFloat16, 4 * 256 * 32 * 2, amx_fp16});
  add(has(Isa::avx2) && f.avx_vnni, {"AVX-VNNI int8", "vpdpbusd ymm", kInt8, 12 * 8 * 4 * 2, avx_vnni});
  add(wide && f.avx512_vnni, {"AVX512-VNNI int8", "vpdpbusd zmm", kInt8, 24 * 16 * 4 * 2, avx512_vnni});
  add(tiles, {"AMX int8", "tdpbssd", kInt8, 4 * 256 * 64 * 2, amx_int8});
#else
  add(true, {"vector float32", "four lanes", kFloat32, 12 * 4 * 2, four_floats});
#endif
  return found;
}

// ---- rates

Rate now() {
  auto read = [](clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
  };
  return {read(CLOCK_MONOTONIC), read(CLOCK_PROCESS_CPUTIME_ID)};
}

// Rounds that take one thread about as long.
int64_t rounds_of(const Unit& unit, double seconds) {
  for (int64_t rounds = 1000;; rounds *= 4) {
    const double start = now().wall;
    unit.loop(rounds);
    const double took = now().wall - start;
    if (took > seconds / 8) return std::max<int64_t>(1, int64_t(double(rounds) * seconds / took));
  }
}

Rate rate_of_rounds(const Unit& unit, int64_t rounds) {
  const int threads = num_threads();
  const Rate start = now();
  parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) unit.loop(rounds);
  });
  const Rate end = now();
  const double done = unit.operations * double(rounds) * threads;
  return {done / (end.wall - start.wall), done / (end.cpu - start.cpu)};
}

}  // namespace

const std::vector<Unit>& units() {
  static const std::vector<Unit> found = find_units();
  return found;
}

bool computes(const Unit& unit, DType dtype) {
  return unit.dtype == dtype || (unit.dtype == kFloat32 && size_of(dtype) < size_of(kFloat32));
}

Rate rate_of(const Unit& unit, double seconds) { return rate_of_rounds(unit, rounds_of(unit, seconds)); }

std::vector<Peak> measured_peaks() {
  std::vector<Peak> peaks;
  for (const Unit& unit : units()) {
    const int64_t rounds = rounds_of(unit, 0.002);
    Peak& peak = peaks.emplace_back(Peak{unit, {}});
    for (int run = 0; run < 8; ++run) {
      const Rate rate = rate_of_rounds(unit, rounds);
      peak.rate = {std::max(peak.rate.wall, rate.wall), std::max(peak.rate.cpu, rate.cpu)};
    }
  }
  return peaks;
}

const Peak& roof_of(const std::vector<Peak>& peaks, DType dtype) {
  const Peak* best = nullptr;
  for (const Peak& peak : peaks)
    if (computes(peak.unit, dtype) && (!best || peak.rate.cpu > best->rate.cpu)) best = &peak;
  SF_CHECK(best, "roof_of: no unit computes ", dtype);
  return *best;
}

double split_float32_rate(const std::vector<Peak>& peaks) {
  for (const Peak& peak : peaks)
    if (std::string_view(peak.unit.name) == "AMX bfloat16") return peak.rate.wall / 6;
  return 0;
}

}  // namespace sf::cpu
