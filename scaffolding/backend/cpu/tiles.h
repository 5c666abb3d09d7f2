// The processor's eight tile registers, 16 rows of 64 bytes each. Included only by *.amx.cpp files, which are compiled
// twice: with the instructions (SF_ISA avx512amx), and with the same functions in plain C++ (amx_emulated), so that a
// processor without tiles runs the same kernels in tests. Everything lives in namespace sf::SF_ISA and inlines.
//
// All tiles have the full shape: smaller operands are padded with zeros along k, and rows or columns past the end of a
// matrix are computed and dropped.
#pragma once
#include "scaffolding/backend/cpu/simd.h"

namespace sf {
namespace SF_ISA {

inline constexpr int kTileLines = 16, kTileBytes = 64;  // rows of a tile, bytes of a row

#if defined(SF_AMX_EMULATED)

struct TileFile {
  alignas(64) uint8_t tile[8][kTileLines][kTileBytes];
};
// On the heap, and never given back: a library that is loaded late has room for a few hundred bytes of thread-local
// memory, not for 8 KB.
inline thread_local TileFile* thread_tiles = nullptr;
inline TileFile& tile_file() {
  if (!thread_tiles) thread_tiles = new TileFile;
  return *thread_tiles;
}

template <int T> inline void tile_zero() { std::memset(tile_file().tile[T], 0, sizeof tile_file().tile[T]); }
template <int T> inline void tile_load(const void* from, int64_t stride) {
  for (int i = 0; i < kTileLines; ++i)
    std::memcpy(tile_file().tile[T][i], static_cast<const char*>(from) + i * stride, kTileBytes);
}
template <int T> inline void tile_stream(const void* from, int64_t stride) { tile_load<T>(from, stride); }
template <int T> inline void tile_store(void* to, int64_t stride) {
  for (int i = 0; i < kTileLines; ++i)
    std::memcpy(static_cast<char*>(to) + i * stride, tile_file().tile[T][i], kTileBytes);
}
typedef float TileFloats __attribute__((vector_size(64)));
typedef int32_t TileInts __attribute__((vector_size(64)));
template <class Line> inline Line tile_line(int tile, int row) {
  Line line;
  std::memcpy(&line, tile_file().tile[tile][row], kTileBytes);
  return line;
}
// The even or odd ones of 32 bfloat16; denormals are 0, as the processor reads them.
inline TileFloats tile_halves(TileInts line, bool odd) {
  const TileInts upper = odd ? line & int32_t(0xffff0000) : line << 16;
  return (TileFloats)(upper & ((upper & 0x7f800000) != 0));
}
// c[i][j] += sum over pairs of a[i][2 p + h] * b[p][2 j + h]; sums of even and odd k apart, as the processor's.
template <int C, int A, int B> inline void tile_dot_bf16() {
  TileFloats b[kTileLines][2];
  for (int p = 0; p < kTileLines; ++p)
    for (int h = 0; h < 2; ++h) b[p][h] = tile_halves(tile_line<TileInts>(B, p), h);
  for (int i = 0; i < kTileLines; ++i) {
    TileFloats sum[2] = {}, a[2];
    for (int h = 0; h < 2; ++h) a[h] = tile_halves(tile_line<TileInts>(A, i), h);
    for (int p = 0; p < kTileLines; ++p)
      for (int h = 0; h < 2; ++h) sum[h] += a[h][p] * b[p][h];
    const TileFloats c = tile_line<TileFloats>(C, i) + (sum[0] + sum[1]);
    std::memcpy(tile_file().tile[C][i], &c, kTileBytes);
  }
}
// c[i][j] += sum over fours of a[i][4 p + h] * b[p][4 j + h]; c in int32.
template <int C, int A, int B> inline void tile_dot_int8() {
  auto bytes = [](TileInts line, int h) { return line << (24 - 8 * h) >> 24; };
  for (int h = 0; h < 4; ++h) {
    TileInts b[kTileLines];
    for (int p = 0; p < kTileLines; ++p) b[p] = bytes(tile_line<TileInts>(B, p), h);
    for (int i = 0; i < kTileLines; ++i) {
      const TileInts a = bytes(tile_line<TileInts>(A, i), h);
      TileInts c = tile_line<TileInts>(C, i);
      for (int p = 0; p < kTileLines; ++p) c += a[p] * b[p];
      std::memcpy(tile_file().tile[C][i], &c, kTileBytes);
    }
  }
}
struct TileScope {};

#else

// As instructions: the compiler's own functions want the register's number as a literal, which a template has not.
template <int T> SF_INLINE void tile_zero() { asm volatile("tilezero %%tmm%c0" ::"i"(T)); }
template <int T> SF_INLINE void tile_load(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(T) : "memory");
}
// The same of memory that is not read again soon: it leaves L1 to what is (a strip of 32 KB stays there while panels of
// as much go by: 3.3 against 2.4 TFLOP/s).
template <int T> SF_INLINE void tile_stream(const void* from, int64_t stride) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(T) : "memory");
}
template <int T> SF_INLINE void tile_store(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(T) : "memory");
}
template <int C, int A, int B> SF_INLINE void tile_dot_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}
template <int C, int A, int B> SF_INLINE void tile_dot_int8() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}

// Tiles hold something only inside of one: a thread that is switched off meanwhile costs the kernel 8 KB to save. A
// kernel opens one in each piece of parallel work; they do not nest.
struct TileScope {
  SF_INLINE TileScope() {
    struct alignas(64) {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    for (int i = 0; i < 8; ++i) config.bytes[i] = kTileBytes, config.rows[i] = kTileLines;
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  SF_INLINE ~TileScope() { asm volatile("tilerelease"); }
  TileScope(const TileScope&) = delete;
};

#endif

}  // namespace SF_ISA
}  // namespace sf
