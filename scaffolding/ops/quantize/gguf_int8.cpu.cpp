// Products of GGUF's blocks with int8 activations: columns of a strip lie side by side in vectors (gguf_strip.h), so
// that no order of a sum depends on how wide those are. Integers of a block are made bytes without a sign where they
// have up to six bits (vpmaddubsw multiplies those by signed ones, and sums of a few pairs fit 16 bits), else 16 bits
// wide. Where the processor adds products of four bytes to 32 bits (vpdpbusd), all of them are such bytes.
// Compiled without contraction: a fused multiply-add rounds otherwise (cmake/sources.cmake).
#include "scaffolding/ops/quantize/gguf_int8.h"

#include "scaffolding/backend/cpu/int8_dot.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/core/scratch.h"
#include "scaffolding/ops/matmul/packed_gemm.h"
#include "scaffolding/ops/quantize/gguf_strip.h"

namespace sf {
namespace SF_ISA {

constexpr bool kManyRegisters = kLanes == 16;
constexpr int kStripRows = kManyRegisters ? 8 : 4;        // sums that stay in registers
constexpr int kDottedRows = kManyRegisters ? 6 : 3;       // of dots, with the numbers that those become
constexpr int64_t kMostRows = 64, kRowBytes = 192 << 10;  // of activations that stay in a cache
constexpr int64_t kPackedAtOnce = 2 << 20;                // bytes

// Rows of activations from some number on. codes: int8, or int16 for WideCodes.
struct ActivationRows {
  const uint8_t* codes;
  const float* scales;
  const int16_t* sums;
  int64_t codes_row, scales_row, sums_row;  // codes_row in bytes
};

SF_INLINE Ints splat_at(const void* p) { return vector_at<int32_t>(p) - Ints{}; }
SF_INLINE vf floats(Ints x) { return __builtin_convertvector(x, vf_raw); }

// Bytes without a sign times signed ones, added in pairs that fit 16 bits.
SF_INLINE Shorts times_bytes(Ints a, Ints b) {
#if defined(__AVX512BW__)
  return (Shorts)_mm512_maddubs_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (Shorts)_mm256_maddubs_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSSE3__)
  return (Shorts)_mm_maddubs_epi16((__m128i)a, (__m128i)b);
#else
  const Shorts x = (Shorts)a, y = (Shorts)b;
  return (x & 255) * (y << 8 >> 8) + (x >> 8 & 255) * (y >> 8);
#endif
}
// 16 bits times 16 bits, added in pairs.
SF_INLINE Ints times_pairs(Shorts a, Ints b) {
#if defined(__AVX512BW__)
  return (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (Ints)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
  const Ints x = (Ints)a;
  return (x << 16 >> 16) * (b << 16 >> 16) + (x >> 16) * (b >> 16);
#endif
}

// sum + products of four bytes without a sign and four signed ones. As an instruction: the flags of this file's
// instruction set do not have it, the processor was asked.
SF_INLINE Ints add_dot(Ints sum, Ints a, Ints b) {
#if defined(__AVX512F__)
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
#elif defined(__AVX2__)
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
#endif
  return sum;
}

// The sum as it is now, in a register: g++ would make all products first and keep them in memory.
template <class T> SF_INLINE T added(T a, T b) {
  T sum = a + b;
#if defined(__x86_64__)
  asm("" : "+v"(sum));
#endif
  return sum;
}

// A format as the products here see it.
template <class F> struct PackedFormat {
  int64_t block, bytes;
  void (*pack)(Columns rows, int64_t at, int blocks, int64_t ahead, StripPart<F>& to);
  int offset;  // what made its integers positive
};
// Whether each block asks for the one `ahead` of it. Where they are small, all are asked for before the first is
// packed: each way is the quicker one by a fifth where it is taken.
constexpr bool spreads_prefetches(int64_t block, int64_t bytes) { return block < kDeep && bytes > 32; }

// Packs so many blocks of each row, from byte `at` on. Those of the next strip are `ahead` bytes further on.
template <class Format, class F>
[[gnu::noinline]] static void pack_blocks(Columns rows, int64_t at, int blocks, int64_t ahead, StripPart<F>& to) {
  for (int v = 0; v < kStripVecs; ++v, rows += kLanes)
    for (int b = 0; b < blocks; ++b) {
      const int64_t here = at + b * Format::kBytes;
      if (spreads_prefetches(Format::kBlock, Format::kBytes))
        for (int c = 0; c < kLanes; ++c) __builtin_prefetch(rows[c] + here + ahead, 0, 2);
      Format::template pack<F>(rows, here, b, {to, v * kLanes});
    }
}

// `count` numbers from k0 on, of the columns from `first` on; past the last column it is the last one again.
template <class F>
static void pack_part(const GgufInt8Product& g, const PackedFormat<F>& f, int64_t first, int64_t k0, int64_t count,
                      StripPart<F>& to) {
  const int64_t n = g.c.sizes[1], row_bytes = g.blocks.sizes[1], at = k0 / f.block * f.bytes;
  const uint8_t* rows[kStripCols];
  for (int c = 0; c < kStripCols; ++c) {
    rows[c] = g.blocks.as<const uint8_t>() + min64(first + c, n - 1) * row_bytes;
    if (!spreads_prefetches(f.block, f.bytes))
      for (int64_t y = 0; y < count / f.block * f.bytes; y += 64)
        __builtin_prefetch(rows[c] + kStripCols * row_bytes + at + y, 0, 2);
  }
  f.pack(rows, at, int(count / f.block), kStripCols * row_bytes, to);
}

// ---- Rows times a strip

template <int MR> using Tile = Ints[MR][kStripVecs];

// Products of kFours fours from `at` on, times `by`: added to the sums.
template <class F, int MR>
SF_INLINE void add_fours(const StripPart<F>& w, const ActivationRows& a, int at, const uint32_t* by, Tile<MR>& sums) {
  Shorts parts[MR][kStripVecs];
#pragma GCC unroll 4
  for (int g = 0; g < F::kFours; ++g) {
    Ints codes[kStripVecs];
#pragma GCC unroll 2
    for (int j = 0; j < kStripVecs; ++j) codes[j] = vector_at<Ints>(w.codes[at + g] + j * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
      const Ints row = splat_at(a.codes + i * a.codes_row + 4 * (at + g));
#pragma GCC unroll 2
      for (int j = 0; j < kStripVecs; ++j) {
        const Shorts product = times_bytes(codes[j], row);
        parts[i][j] = g == 0 ? product : added(parts[i][j], product);
      }
    }
  }
#pragma GCC unroll 2
  for (int j = 0; j < kStripVecs; ++j) {
    const Ints factor = by ? vector_at<Ints>(by + j * kLanes) : Ints{} + 0x10001;
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) sums[i][j] += times_pairs(parts[i][j], factor);
  }
}

// Rows a power of two apart fall on few sets of L1: those that come next are on their way from L2 meanwhile.
template <int MR> SF_INLINE void fetch_next_rows(const ActivationRows& a, int at) {
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) __builtin_prefetch(a.codes + (MR + i) * a.codes_row + at, 0, 3);
}
// The same of `fours` by dots.
template <class F, int MR>
SF_INLINE void add_dots(const StripPart<F>& w, const ActivationRows& a, int at, int fours, Tile<MR>& sums) {
#pragma GCC unroll 8
  for (int g = 0; g < fours; ++g) {
    Ints codes[kStripVecs];
#pragma GCC unroll 2
    for (int j = 0; j < kStripVecs; ++j) codes[j] = vector_at<Ints>(w.codes[at + g] + j * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
      const Ints row = splat_at(a.codes + i * a.codes_row + 4 * (at + g));
#pragma GCC unroll 2
      for (int j = 0; j < kStripVecs; ++j) sums[i][j] = add_dot(sums[i][j], codes[j], row);
    }
  }
}

// What is added to the sums of a row for a block of 32 whose codes were made positive.
SF_INLINE Ints less_offset(const ActivationRows& a, int row, int block, int offset) {
  const auto twice = int32_t(uint32_t(uint16_t(-offset)) * 0x10001u);
  return times_pairs((Shorts)splat_at(a.sums + row * a.sums_row + 2 * block), Ints{} + twice);
}

// Eight blocks of 32 or fewer, whose results stay in registers.
template <class F, int MR>
SF_INLINE void add_dotted_blocks(const StripPart<F>& w, const ActivationRows& a, int blocks, int offset, float* to) {
  vf y[MR][kStripVecs];
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < kStripVecs; ++j) y[i][j] = load(to + i * kStripCols + j * kLanes);
  for (int b = 0; b < blocks; ++b) {
    Tile<MR> sums = {};
    if constexpr (!F::kMinimum)
#pragma GCC unroll 8
      for (int i = 0; i < MR; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < kStripVecs; ++j) sums[i][j] = less_offset(a, i, b, offset);
    if (b % 2 == 0) fetch_next_rows<MR>(a, 32 * b);
    add_dots<F, MR>(w, a, 8 * b, 8, sums);
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
      const vf scale(a.scales[i * a.scales_row + b]);
#pragma GCC unroll 2
      for (int j = 0; j < kStripVecs; ++j) {
        y[i][j] += floats(sums[i][j]) * (scale * load(w.scale[b] + j * kLanes));
        if constexpr (F::kMinimum)
          y[i][j] -= floats(less_offset(a, i, b, -1)) * scale * load(w.minimum[b] + j * kLanes);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < kStripVecs; ++j) store(to + i * kStripCols + j * kLanes, y[i][j]);
}

// Eight blocks of 32 or fewer.
template <class F, int MR>
SF_INLINE void add_blocks(const StripPart<F>& w, const ActivationRows& a, int blocks, int offset, float* to) {
  for (int b = 0; b < blocks; ++b) {
    Tile<MR> sums = {};
    if constexpr (F::kPerLane == 4) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) add_fours<F, MR>(w, a, 8 * b + 4 * half, nullptr, sums);
    } else {
      const auto* codes = w.codes + 16 * b;
      const uint8_t* rows = a.codes + 64 * b;
#pragma GCC unroll 16
      for (int pair = 0; pair < 16; ++pair)
#pragma GCC unroll 8
        for (int i = 0; i < MR; ++i) {
          const Ints row = splat_at(rows + i * a.codes_row + 4 * pair);
#pragma GCC unroll 2
          for (int j = 0; j < kStripVecs; ++j) {
            const Ints product = times_pairs(vector_at<Shorts>(codes[pair] + j * kLanes), row);
            sums[i][j] = pair == 0 ? product : added(sums[i][j], product);
          }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
      const vf scale(a.scales[i * a.scales_row + b]);
      Ints less = {};
      if constexpr (F::kPerLane == 4)  // of pairs nothing is made positive
        less = less_offset(a, i, b, F::kMinimum ? -1 : -offset);
#pragma GCC unroll 2
      for (int j = 0; j < kStripVecs; ++j) {
        float* y = to + i * kStripCols + j * kLanes;
        const vf by = scale * load(w.scale[b] + j * kLanes);
        if constexpr (F::kMinimum)
          store(y, load(y) + floats(sums[i][j]) * by - floats(less) * scale * load(w.minimum[b] + j * kLanes));
        else store(y, load(y) + floats(sums[i][j] - less) * by);
      }
    }
  }
}

// One block of 256.
template <class F, int MR> SF_INLINE void add_super_block(const StripPart<F>& w, const ActivationRows& a, float* to) {
  Tile<MR> sums = {};
  if constexpr (F::kDots) {
    for (int at = 0; at < kDeep / 4; at += F::kEach) {
      Tile<MR> part = {};
      if (at % 16 == 0) fetch_next_rows<MR>(a, 4 * at);
      add_dots<F, MR>(w, a, at, F::kEach, part);
#pragma GCC unroll 2
      for (int j = 0; j < kStripVecs; ++j) {
        const Ints scale = vector_at<Ints>(w.scales[at / 4] + j * kLanes) << 16 >> 16;
#pragma GCC unroll 8
        for (int i = 0; i < MR; ++i) sums[i][j] += part[i][j] * scale;
      }
    }
  } else {
    for (int s = 0; s < 16; ++s)
#pragma GCC unroll 2
      for (int part = 0; part < 4; part += F::kFours) add_fours<F, MR>(w, a, 4 * s + part, w.scales[s], sums);
  }
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < kStripVecs; ++j) {
      Ints less = {};
#pragma GCC unroll 8
      for (int p = 0; p < 8; ++p)
        less +=
            times_pairs((Shorts)splat_at(a.sums + i * a.sums_row + 2 * p), vector_at<Ints>(w.minima[p] + j * kLanes));
      float* y = to + i * kStripCols + j * kLanes;
      const vf by(a.scales[i * a.scales_row]), scale = load(w.scale[0] + j * kLanes);
      if constexpr (F::kMinimum) {
        const vf minimum = load(w.minimum[0] + j * kLanes);
        store(y, load(y) + by * (floats(sums[i][j]) * scale - floats(less) * minimum));
      } else {
        store(y, load(y) + floats(sums[i][j] - less) * (by * scale));
      }
    }
}

template <class F, int MR>
[[gnu::noinline]] static void add_rows(const StripPart<F>& w, const ActivationRows& a, int count, int offset,
                                       float* to) {
  if constexpr (F::kWhole > 0) add_super_block<F, MR>(w, a, to);
  else if constexpr (F::kDots) add_dotted_blocks<F, MR>(w, a, count / 32, offset, to);
  else add_blocks<F, MR>(w, a, count / 32, offset, to);
}

template <class F> constexpr int rows_at_once = F::kDots ? kDottedRows : kStripRows;

// Rows r0 .. r1 (at most kMostRows) of a strip's columns, whose parts are packed there already or, with null, here.
template <class F>
static void multiply_strip(const GgufInt8Product& g, const PackedFormat<F>& f, const ActivationRows& all, int64_t r0,
                           int64_t r1, int64_t strip, const StripPart<F>* packed) {
  const int64_t k = g.codes.sizes[1], n = g.c.sizes[1], first = strip * kStripCols;
  alignas(64) float sums[kMostRows * kStripCols];
  for (int64_t i = 0; i < (r1 - r0) * kStripCols; ++i) sums[i] = 0;
  StripPart<F> here;
  for (int64_t k0 = 0; k0 < k; k0 += kDeep) {
    const int64_t count = min64(kDeep, k - k0);
    if (!packed) pack_part<F>(g, f, first, k0, count, here);
    const StripPart<F>& part = packed ? packed[k0 / kDeep] : here;
    for (int64_t r = r0; r < r1;) {
      const ActivationRows a{all.codes + r * all.codes_row + k0 * all.codes_row / k,
                             all.scales + r * all.scales_row + k0 / f.block,
                             all.sums + r * all.sums_row + k0 / 16,
                             all.codes_row,
                             all.scales_row,
                             all.sums_row};
      float* to = sums + (r - r0) * kStripCols;
      constexpr int kRows = rows_at_once<F>;
      constexpr int kFewer = kRows > 4 ? 4 : kRows;
      if (r + kRows <= r1) add_rows<F, kRows>(part, a, int(count), f.offset, to), r += kRows;
      else if (r + kFewer <= r1) add_rows<F, kFewer>(part, a, int(count), f.offset, to), r += kFewer;
      else if (r + 2 <= r1) add_rows<F, 2>(part, a, int(count), f.offset, to), r += 2;
      else add_rows<F, 1>(part, a, int(count), f.offset, to), ++r;
    }
  }
  const int cols = int(min64(kStripCols, n - first));
  const float* bias = g.bias ? g.bias.as<const float>() + first : nullptr;
  for (int64_t r = r0; r < r1; ++r) {
    float* c = g.c.as<float>() + r * n + first;
    const float* from = sums + (r - r0) * kStripCols;
    for (int j = 0; j < cols; ++j) c[j] = bias ? from[j] + bias[j] : from[j];
  }
}

template <class F> static void multiply_in_int8(const GgufInt8Product& g, const PackedFormat<F>& f) {
  const int64_t m = g.c.sizes[0], n = g.c.sizes[1], k = g.codes.sizes[1];
  ActivationRows a{
      g.codes.as<const uint8_t>(), g.scales.as<const float>(), g.sums.as<const int16_t>(), k, k / f.block, k / 16};
  if constexpr (F::kPerLane == 2) {
    auto* wide = static_cast<int16_t*>(scratch(size_t(m * k) * sizeof(int16_t), kSlotA));
    const int8_t* narrow = g.codes.as<const int8_t>();
    parallel_for(m * k, 1 << 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) wide[i] = narrow[i];
    });
    a.codes = reinterpret_cast<const uint8_t*>(wide), a.codes_row = 2 * k;
  }
  const int64_t strips = ceil_div(n, kStripCols), parts = ceil_div(k, kDeep);
  const int64_t grain = ceil_div(int64_t(1) << 18, k * kStripCols * min64(m, kMostRows));
  if (m <= kMostRows) {  // nothing would be read twice
    parallel_for(strips, grain, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) multiply_strip<F>(g, f, a, 0, m, s, nullptr);
    });
    return;
  }
  const int64_t each = max64(8, kPackedAtOnce / (parts * int64_t(sizeof(StripPart<F>))));
  auto* packed =
      static_cast<StripPart<F>*>(scratch(size_t(min64(each, strips) * parts) * sizeof(StripPart<F>), kSlotB));
  constexpr int kRows = rows_at_once<F>;
  const int64_t rows = max64(kRows, min64(kMostRows, kRowBytes / a.codes_row) / kRows * kRows),
                row_blocks = ceil_div(m, rows);
  for (int64_t s0 = 0; s0 < strips; s0 += each) {
    const int64_t some = min64(each, strips - s0);
    parallel_for(some * parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        pack_part<F>(g, f, (s0 + i / parts) * kStripCols, i % parts * kDeep, min64(kDeep, k - i % parts * kDeep),
                     packed[i]);
    });
    parallel_for(row_blocks * some, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        multiply_strip<F>(g, f, a, i / some * rows, min64(m, (i / some + 1) * rows), s0 + i % some,
                          packed + i % some * parts);
    });
  }
}

template <class Format, class F> static void multiply_format(const GgufInt8Product& g, int offset) {
  multiply_in_int8<F>(g, {Format::kBlock, Format::kBytes, pack_blocks<Format, F>, offset});
}
template <class Format> static void multiply_by_unit(const GgufInt8Product& g) {
  using F = typename Format::Kind;
#if defined(__AVX2__)
  if (cpu::int8_dot_of_bytes(kVecBytes))
    return multiply_format<Format, Dotted<F>>(g, F::kPerLane == 2 ? 128 : Format::kOffset);
#endif
  multiply_format<Format, F>(g, Format::kOffset);
}

static void run_gguf_int8_product(const GgufInt8Product& g) {
  switch (g.format) {
    case GgufBlocks::Q8_0: return multiply_by_unit<StripQ8_0>(g);
    case GgufBlocks::IQ4_NL: return multiply_by_unit<StripIQ4_NL>(g);
    case GgufBlocks::Q4_0: return multiply_by_unit<StripQ4_0>(g);
    case GgufBlocks::Q5_0: return multiply_by_unit<StripQ5_0>(g);
    case GgufBlocks::Q4_1: return multiply_by_unit<StripQ4_1>(g);
    case GgufBlocks::Q5_1: return multiply_by_unit<StripQ5_1>(g);
    case GgufBlocks::Q2_K: return multiply_by_unit<StripQ2_K>(g);
    case GgufBlocks::Q3_K: return multiply_by_unit<StripQ3_K>(g);
    case GgufBlocks::Q4_K: return multiply_by_unit<StripQ4_K>(g);
    case GgufBlocks::Q5_K: return multiply_by_unit<StripQ5_K>(g);
    case GgufBlocks::Q6_K: return multiply_by_unit<StripQ6_K>(g);
  }
}

}  // namespace SF_ISA

SF_KERNEL(gguf_int8_product, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_gguf_int8_product, nullptr)

}  // namespace sf
