// scaffolding/backend/cuda/mma.cuh for the C++ compiler: what the PTX ISA says that each instruction does,
// one lane at a time.
// Addresses that are not aligned, or outside the block's dynamic shared memory, stop the program; rows of a matrix that
// share banks are counted.
#pragma once
#include <cuda_runtime.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "scaffolding/core/dtype.h"
#include "scaffolding/core/half.h"

namespace sf::cuda {

using SharedAddress = uint32_t;  // in bytes, from the start of dynamic shared memory

inline unsigned char* dynamic_shared() { return cuda_emulator::dynamic_shared(); }
inline SharedAddress shared_address(const void* p) {
  auto at = static_cast<const unsigned char*>(p);
  if (at < dynamic_shared() || at > dynamic_shared() + cuda_emulator::dynamic_shared_bytes())
    cuda_emulator::stop("no address of dynamic shared memory");
  return SharedAddress(at - dynamic_shared());
}

namespace emulated {

inline unsigned char* sixteen_bytes(SharedAddress at) {
  if (at % 16 != 0) cuda_emulator::stop("a shared address of ldmatrix or cp.async that is not 16-byte aligned");
  if (at + size_t(16) > cuda_emulator::dynamic_shared_bytes())
    cuda_emulator::stop("ldmatrix or cp.async outside the block's shared memory");
  return dynamic_shared() + at;
}

template <bool turned> void load_matrices(uint32_t (&r)[4], SharedAddress row) {
  cuda_emulator::Given mine{};
  std::memcpy(mine.words, sixteen_bytes(row), 16);
  mine.words[2] = row;
  const cuda_emulator::Given* lanes = cuda_emulator::gather(mine);
  unsigned l = cuda_emulator::lane(), g = l / 4, t = l % 4;
  for (unsigned m = 0; m < 4; ++m) {
    uint16_t pair[2];
    for (unsigned i = 0; i < 2; ++i) {
      unsigned from = turned ? 2 * t + i : g, element = turned ? g : 2 * t + i;
      std::memcpy(&pair[i], reinterpret_cast<const unsigned char*>(lanes[8 * m + from].words) + 2 * element, 2);
    }
    std::memcpy(&r[m], pair, 4);
  }
  // one phase of the load per matrix: its rows should lie in different 16-byte groups of the 128 bytes of all banks
  if (l < 4) {
    unsigned groups = 0;
    for (unsigned i = 0; i < 8; ++i) groups |= 1u << (lanes[8 * l + i].words[2] / 16 % 8);
    cuda_emulator::count_bank_conflicts(groups != 0xff);
  }
}

template <class T> float number(uint32_t two, unsigned which) { return to_float(T{uint16_t(two >> (16 * which))}); }

}  // namespace emulated

inline void load_matrices(uint32_t (&r)[4], SharedAddress row) { emulated::load_matrices<false>(r, row); }
inline void load_matrices_turned(uint32_t (&r)[4], SharedAddress row) { emulated::load_matrices<true>(r, row); }

template <class T> void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  cuda_emulator::Given mine{{a[0] | uint64_t(a[1]) << 32, a[2] | uint64_t(a[3]) << 32, b0 | uint64_t(b1) << 32, 0}};
  const cuda_emulator::Given* lanes = cuda_emulator::gather(mine);
  unsigned g = cuda_emulator::lane() / 4, t = cuda_emulator::lane() % 4;
  float rows[2][16], cols[2][16];  // g and g + 8 of a, 2t and 2t + 1 of b
  for (unsigned k = 0; k < 16; ++k) {
    unsigned place = k % 8 / 2;  // of the lane in its group
    for (unsigned i = 0; i < 2; ++i) {
      rows[i][k] = emulated::number<T>(uint32_t(lanes[4 * g + place].words[k / 8] >> (32 * i)), k % 2);
      cols[i][k] = emulated::number<T>(uint32_t(lanes[4 * (2 * t + i) + place].words[2] >> (32 * (k / 8))), k % 2);
    }
  }
  for (unsigned i = 0; i < 4; ++i) {
    float sum = 0;
    for (unsigned k = 0; k < 16; ++k) sum += rows[i / 2][k] * cols[i % 2][k];
    c[i] += sum;
  }
}

template <> inline void multiply_add<float>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  cuda_emulator::Given mine{{a[0] | uint64_t(a[1]) << 32, a[2] | uint64_t(a[3]) << 32, b0 | uint64_t(b1) << 32, 0}};
  const cuda_emulator::Given* lanes = cuda_emulator::gather(mine);
  unsigned g = cuda_emulator::lane() / 4, t = cuda_emulator::lane() % 4;
  auto tf32 = [](uint64_t two, unsigned which) {
    return std::bit_cast<float>(uint32_t(two >> (32 * which)) & 0xffffe000u);
  };
  for (unsigned i = 0; i < 4; ++i) {
    float sum = 0;
    for (unsigned k = 0; k < 8; ++k)
      sum += tf32(lanes[4 * g + k % 4].words[k / 4], i / 2) * tf32(lanes[4 * (2 * t + i % 2) + k % 4].words[2], k / 4);
    c[i] += sum;
  }
}
inline uint32_t tf32_bits(float x) { return (std::bit_cast<uint32_t>(x) + 0x1000u) & 0xffffe000u; }

inline void copy_async(SharedAddress to, const void* from, bool exists) {
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0)
    cuda_emulator::stop("cp.async from an address that is not 16-byte aligned");
  cuda_emulator::copy_async(emulated::sixteen_bytes(to), from, 16, exists ? 16 : 0);
}
inline void commit_copies() { cuda_emulator::commit_copies(); }
template <int all_but> void wait_for_copies() { cuda_emulator::wait_for_copies(all_but); }

template <class T> uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, Half>) return to_half(low).bits | uint32_t(to_half(high).bits) << 16;
  else return to_bfloat16(low).bits | uint32_t(to_bfloat16(high).bits) << 16;
}

inline float exp2_fast(float x) {
  float y = std::exp2(x);
  return y < 0x1p-126f ? 0.0f : y;
}

inline int computed_again(int x) { return x; }

}  // namespace sf::cuda
