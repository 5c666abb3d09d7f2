// A block of kLanes columns of the result is as many rows of the source, turned in registers. 16-bit elements of two
// rows are paired first, so that they turn as one. Runs of kRun columns keep the lines that they read in the
// first-level cache until all of their elements are used, and write several lines of each row.
#include "scaffolding/ops/copy/transpose.h"

#include "scaffolding/backend/cpu/simd_transpose.h"

namespace sf {
namespace SF_ISA {
namespace {

constexpr int64_t kRun = 64;

template <class T> SF_INLINE const T* source(const TransposedTiles& t, int64_t row, int64_t col) {
  return reinterpret_cast<const T*>(static_cast<const char*>(t.from) + col * t.from_row) + row;
}
template <class T> SF_INLINE T* target(const TransposedTiles& t, int64_t row, int64_t col) {
  return reinterpret_cast<T*>(static_cast<char*>(t.to) + row * t.to_row) + col;
}

// rows [r0, r1) of columns [c0, c1), one by one
template <class T> static void by_elements(const TransposedTiles& t, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  for (int64_t r = r0; r < r1; ++r)
    for (int64_t c = c0; c < c1; ++c) *target<T>(t, r, c) = *source<T>(t, r, c);
}

// T's columns that a block of kLanes rows has
template <class T> constexpr int kColumns = kLanes * 4 / int(sizeof(T));

SF_INLINE void turn_block(const TransposedTiles& t, int64_t r, int64_t c, uint32_t) {
  vi_raw x[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) std::memcpy(&x[i], source<uint32_t>(t, r, c + i), sizeof x[i]);
  transpose(x);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) std::memcpy(target<uint32_t>(t, r + i, c), &x[i], sizeof x[i]);
}
SF_INLINE void turn_block(const TransposedTiles& t, int64_t r, int64_t c, uint16_t) {
  auto words = [&](int64_t col) {
    vh_raw h;
    std::memcpy(&h, source<uint16_t>(t, r, col), sizeof h);
    return __builtin_convertvector(h, vi_raw);
  };
  vi_raw x[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) x[i] = words(c + 2 * i) | words(c + 2 * i + 1) << 16;
  transpose(x);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) std::memcpy(target<uint16_t>(t, r + i, c), &x[i], sizeof x[i]);
}

template <class T> void by_blocks(const TransposedTiles& t) {
  constexpr int64_t kRows = kLanes, kCols = kColumns<T>;
  static_assert(kRun % kCols == 0);
  const int64_t rows = t.rows / kRows * kRows, cols = t.cols / kCols * kCols;
  for (int64_t run = 0; run < cols; run += kRun) {
    const int64_t end = run + kRun < cols ? run + kRun : cols;
    for (int64_t r = 0; r < rows; r += kRows)
      for (int64_t c = run; c < end; c += kCols) turn_block(t, r, c, T());
    by_elements<T>(t, rows, t.rows, run, end);
  }
  by_elements<T>(t, 0, t.rows, cols, t.cols);
}

template <class T> void by_squares(const TransposedTiles& t) {
  constexpr int64_t kSide = 32;
  for (int64_t r = 0; r < t.rows; r += kSide)
    for (int64_t c = 0; c < t.cols; c += kSide)
      by_elements<T>(t, r, r + kSide < t.rows ? r + kSide : t.rows, c, c + kSide < t.cols ? c + kSide : t.cols);
}

void turn(const TransposedTiles& t) {
  switch (t.item) {
    case 4: return by_blocks<uint32_t>(t);
    case 2: return by_blocks<uint16_t>(t);
    case 8: return by_squares<uint64_t>(t);
    default: return by_squares<uint8_t>(t);
  }
}

SF_KERNEL(transpose_tiles, DeviceType::CPU, "native", SF_ISA_PRIORITY, turn, nullptr)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
