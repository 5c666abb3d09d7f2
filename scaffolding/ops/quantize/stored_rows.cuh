// Weights in few bits as CUDA's kernels read them: a warp brings the bytes of a few hundred numbers into shared memory,
// 16 at a time whatever a block's size, and each lane makes V neighbouring numbers of them, 8 or 16. Codes are put
// together four to a word; a byte becomes a float by a permutation and a subtraction, which are exact.
//
// A decoder D says what a weight's numbers are, all rows one after the other:
//   kBlock, kBytes            so many numbers in so many bytes
//   kSixteen                  whether it looks numbers up in sixteen that lie in shared memory, `table`
//   sixteenth(i)              that table's entry i
//   decode<V>(s, i, first, row, table, y)
//                             y = the V numbers from i on, of a segment that begins with number `first`, of row `row`,
//                             and whose bytes are s. i is a multiple of V, `first` of kBlock and of 16.
// What blocks of GGUF mean is told in gguf_decode.h; numbers have the same bits (scale and integer: 24 bits together).
#pragma once
#include "scaffolding/backend/cuda/mma.cuh"
#include "scaffolding/ops/quantize/block_scales.cuh"
#include "scaffolding/ops/quantize/fp8_codes.cuh"
#include "scaffolding/ops/quantize/gguf_codes.h"

namespace sf::cuda {

inline constexpr int kWarp = 32;

// Bytes in shared memory, from an even place on. One word past what is asked for may be read.
struct Staged {
  const uint32_t* words;
  int at;
  __device__ const uint8_t* bytes() const { return reinterpret_cast<const uint8_t*>(words) + at; }
  __device__ Staged from(int byte) const { return {words, at + byte}; }
  __device__ float half(int byte) const {
    return widen(Half{*reinterpret_cast<const uint16_t*>(reinterpret_cast<const uint8_t*>(words) + at + byte)});
  }
  // 4 N bytes from an even one on.
  template <int N> __device__ void get(int byte, uint32_t (&w)[N]) const {
    const int from = (at + byte) / 4, by = (at + byte) % 4 * 8;
    uint32_t here = words[from];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const uint32_t next = words[from + i + 1];
      w[i] = uint32_t((uint64_t(next) << 32 | here) >> by);
      here = next;
    }
  }
};

// Room for the bytes of so many numbers that begin anywhere, a multiple of 16.
template <class D> constexpr int staged_bytes(int numbers) {
  return ((numbers + D::kBlock - 1) / D::kBlock * D::kBytes + 16 + 4 + 15) / 16 * 16;
}

// Of the warp: `count` bytes from `from` on of a weight of `total` bytes at data, which is 16-byte aligned, on their
// way to `to` in dynamic shared memory, where they are when the copies were waited for. Returns the first one's place.
__device__ inline int stage(const uint8_t* data, int64_t total, int64_t from, int count, unsigned char* to) {
  const int64_t start = from / 16 * 16;
  const int past = int(from - start) + count;
  for (int i = int(threadIdx.x % kWarp) * 16; i < past; i += 16 * kWarp) {
    if (start + i + 16 <= total) copy_async(shared_address(to + i), data + start + i, true);
    else
      for (int64_t b = start + i; b < total; ++b) to[b - start] = data[b];
  }
  return int(from - start);
}

// Byte j of a word less `zero`, as a float.
__device__ inline float byte_of(uint32_t word, int j, int zero) {
#ifdef __CUDA_ARCH__
  const uint32_t bits = __byte_perm(word, 0x4b000000u, 0x7440u + unsigned(j));
#else
  const uint32_t bits = 0x4b000000u | (word >> 8 * j & 255);
#endif
  return __uint_as_float(bits) - (0x1p23f + float(zero));
}
// (byte - zero) * scale - minimum
template <int V>
__device__ inline void scaled(const uint32_t (&q)[V / 4], int zero, float scale, float minimum, float (&y)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) y[i] = fmaf(byte_of(q[i / 4], i % 4, zero), scale, -minimum);
}

// ---- GGUF's blocks

// Low or high halves of bytes.
template <int N> __device__ inline void halves(uint32_t (&q)[N], int high) {
#pragma unroll
  for (int i = 0; i < N; ++i) q[i] = q[i] >> 4 * high & 0x0f0f0f0fu;
}
// Bits `at` on of each byte that `mask` leaves, moved up by `to`.
template <int N>
__device__ inline void add_bits(uint32_t (&q)[N], const uint32_t (&more)[N], int at, uint32_t mask, int to) {
#pragma unroll
  for (int i = 0; i < N; ++i) q[i] |= (more[i] >> at & mask) << to;
}

static __device__ const Iq4Codes iq4_codes = kIq4;

template <GgufBlocks F> struct Block;
// 32 numbers behind `head` bytes, of which the last four are fifth bits where there are five; number j is the low half
// of byte j, number j + 16 the high half.
template <int head, bool fifth, int zero, bool has_minimum> struct HalfBytes {
  template <int V> static __device__ void decode(const Staged& b, int at, const float*, float (&y)[V]) {
    uint32_t q[V / 4];
    b.get(head + at % 16, q);
    halves(q, at / 16);
    if constexpr (fifth) {
#pragma unroll
      for (int i = 0; i < V / 4; ++i) {
        const uint32_t four = b.bytes()[head - 4 + (at + 4 * i) / 8] >> (at + 4 * i) % 8 & 15u;
        q[i] |= (four * 0x00204081u & 0x01010101u) << 4;
      }
    }
    scaled<V>(q, zero, b.half(0), has_minimum ? -b.half(2) : 0.f, y);
  }
};
template <> struct Block<GgufBlocks::Q4_0> : HalfBytes<2, false, 8, false> {};
template <> struct Block<GgufBlocks::Q4_1> : HalfBytes<4, false, 0, true> {};
template <> struct Block<GgufBlocks::Q5_0> : HalfBytes<6, true, 16, false> {};
template <> struct Block<GgufBlocks::Q5_1> : HalfBytes<8, true, 0, true> {};
template <> struct Block<GgufBlocks::Q8_0> {
  template <int V> static __device__ void decode(const Staged& b, int at, const float*, float (&y)[V]) {
    uint32_t q[V / 4];
    b.get(2 + at, q);
#pragma unroll
    for (uint32_t& w : q) w ^= 0x80808080u;
    scaled<V>(q, 128, b.half(0), 0, y);
  }
};
template <> struct Block<GgufBlocks::IQ4_NL> {
  template <int V> static __device__ void decode(const Staged& b, int at, const float* table, float (&y)[V]) {
    uint32_t q[V / 4];
    b.get(2 + at % 16, q);
    const float scale = b.half(0);
#pragma unroll
    for (int i = 0; i < V; ++i) y[i] = table[q[i / 4] >> (8 * (i % 4) + at / 16 * 4) & 15u] * scale;
  }
};
template <> struct Block<GgufBlocks::Q2_K> {
  template <int V> static __device__ void decode(const Staged& b, int at, const float*, float (&y)[V]) {
    uint32_t q[V / 4];
    b.get(16 + at / 128 * 32 + at % 32, q);
#pragma unroll
    for (uint32_t& w : q) w = w >> at % 128 / 32 * 2 & 0x03030303u;
    const unsigned packed = b.bytes()[at / 16];
    scaled<V>(q, 0, b.half(80) * float(packed & 15), b.half(82) * float(packed >> 4), y);
  }
};
template <> struct Block<GgufBlocks::Q3_K> {
  template <int V> static __device__ void decode(const Staged& b, int at, const float*, float (&y)[V]) {
    uint32_t q[V / 4], high[V / 4];
    b.get(32 + at / 128 * 32 + at % 32, q);
    b.get(at % 32, high);
#pragma unroll
    for (uint32_t& w : q) w = w >> at % 128 / 32 * 2 & 0x03030303u;
    add_bits(q, high, at / 32, 0x01010101u, 2);
    const uint8_t* packed = b.bytes() + 96;
    const int part = at / 16, low = packed[part % 8] >> part / 8 * 4 & 15;
    const int scale = (low | (packed[8 + part % 4] >> part / 4 * 2 & 3) << 4) - 32;
    scaled<V>(q, 4, b.half(108) * float(scale), 0, y);
  }
};
template <> struct Block<GgufBlocks::Q4_K> {
  template <int V> static __device__ void decode(const Staged& b, int at, const float*, float (&y)[V]) {
    uint32_t q[V / 4];
    b.get(16 + at / 64 * 32 + at % 32, q);
    halves(q, at / 32 % 2);
    const ScaleAndMinimum s = scale_and_minimum(b.bytes() + 4, at / 32);
    scaled<V>(q, 0, b.half(0) * float(s.scale), b.half(2) * float(s.minimum), y);
  }
};
template <> struct Block<GgufBlocks::Q5_K> {
  template <int V> static __device__ void decode(const Staged& b, int at, const float*, float (&y)[V]) {
    uint32_t q[V / 4], high[V / 4];
    b.get(48 + at / 64 * 32 + at % 32, q);
    b.get(16 + at % 32, high);
    halves(q, at / 32 % 2);
    add_bits(q, high, at / 32, 0x01010101u, 4);
    const ScaleAndMinimum s = scale_and_minimum(b.bytes() + 4, at / 32);
    scaled<V>(q, 0, b.half(0) * float(s.scale), b.half(2) * float(s.minimum), y);
  }
};
template <> struct Block<GgufBlocks::Q6_K> {
  template <int V> static __device__ void decode(const Staged& b, int at, const float*, float (&y)[V]) {
    uint32_t q[V / 4], high[V / 4];
    const int quarter = at % 128 / 32;
    b.get(at / 128 * 64 + quarter % 2 * 32 + at % 32, q);
    b.get(128 + at / 128 * 32 + at % 32, high);
    halves(q, quarter / 2);
    add_bits(q, high, 2 * quarter, 0x03030303u, 4);
    scaled<V>(q, 32, b.half(208) * float(int(int8_t(b.bytes()[192 + at / 16]))), 0, y);
  }
};

template <GgufBlocks F, int block, int bytes> struct GgufNumbers {
  static constexpr int kBlock = block, kBytes = bytes;
  static constexpr bool kSixteen = F == GgufBlocks::IQ4_NL;
  const uint8_t* data;
  static __device__ float sixteenth(int i) { return float(iq4_codes.v[i]); }
  template <int V>
  __device__ void decode(const Staged& s, int i, int64_t, int64_t, const float* table, float (&y)[V]) const {
    Block<F>::template decode<V>(s.from(i / kBlock * kBytes), i % kBlock, table, y);
  }
};

// ---- Codes of four and eight bits

struct NibbleNumbers {
  static constexpr int kBlock = 16, kBytes = 8;
  static constexpr bool kSixteen = true;
  const uint8_t* data;
  BlockScales scales;
  bool fp4;
  __device__ float sixteenth(int i) const { return (fp4 ? fp4_table : nf4_table).v[i]; }
  template <int V>
  __device__ void decode(const Staged& s, int i, int64_t first, int64_t, const float* table, float (&y)[V]) const {
    uint32_t q[V / 8];
    s.get(i / 2, q);
    const float scale = scales.of(first + i);  // blocks have at least 32 numbers
#pragma unroll
    for (int j = 0; j < V; ++j) y[j] = table[q[j / 8] >> (j % 8 / 2 * 8 + (j % 2 ? 0 : 4)) & 15u] * scale;
  }
};

struct Int8Numbers {
  static constexpr int kBlock = 16, kBytes = 16;
  static constexpr bool kSixteen = false;
  const uint8_t* data;
  const float* scales;
  float unit;
  static __device__ float sixteenth(int) { return 0; }
  template <int V>
  __device__ void decode(const Staged& s, int i, int64_t, int64_t row, const float*, float (&y)[V]) const {
    uint32_t q[V / 4];
    s.get(i, q);
    const float scale = scales[row];
#pragma unroll
    for (int j = 0; j < V; ++j) y[j] = byte_of(q[j / 4] ^ 0x80808080u, j % 4, 128) * scale * unit;
  }
};

template <class Q> struct Float8Numbers {
  static constexpr int kBlock = 16, kBytes = 16;
  static constexpr bool kSixteen = false;
  const uint8_t* data;
  const float* scales;
  bool by_row;
  static __device__ float sixteenth(int) { return 0; }
  template <int V>
  __device__ void decode(const Staged& s, int i, int64_t, int64_t row, const float*, float (&y)[V]) const {
    uint32_t q[V / 4];
    s.get(i, q);
    const float scale = scales[by_row ? row : 0];
#pragma unroll
    for (int j = 0; j < V; j += 2) {
      const uint32_t two = q[j / 4] >> 8 * (j % 4);
      two_values<Q>(uint8_t(two), uint8_t(two >> 8), y[j], y[j + 1]);
      y[j] *= scale, y[j + 1] *= scale;
    }
  }
};

}  // namespace sf::cuda
