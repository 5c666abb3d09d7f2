// Activations of a Winograd convolution as channels-last memory, and the scratch memory that one takes.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/core/parallel.h"
#include "scaffolding/core/scratch.h"
#include "scaffolding/core/tensor_view.h"
#include "scaffolding/ops/conv/winograd_product.h"

namespace sf {
namespace SF_ISA {

enum WinogradSlot {
  kSlotInput = 8,
  kSlotGradient = 9,
  kSlotWeight = 10,
  kSlotProducts = 11,
  kSlotTotal = 12,
  kSlotX = 13,
  kSlotY = 14,
  kSlotResidual = 15
};

// to[col * rows + row] = from[row * cols + col] for a block of at most L x L, in registers where it is a whole one.
SF_INLINE void transpose_block(const float* from, float* to, int64_t rows, int64_t cols, int64_t r0, int64_t c0) {
  if (r0 + L <= rows && c0 + L <= cols) {
    MulF32::Vec v[L];
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) v[i] = load(from + (r0 + i) * cols + c0).v;
    transpose<MulF32::Vec, L>(v);
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) store_vec<MulF32>(to + (c0 + i) * rows + r0, v[i]);
    return;
  }
  for (int64_t r = r0; r < min64(r0 + L, rows); ++r)
    for (int64_t c = c0; c < min64(c0 + L, cols); ++c) to[c * rows + r] = from[r * cols + c];
}

// to[i][col][row] = from[i][row][col] for count matrices. Four blocks in a row along the side whose rows are long: each
// of these is on a page of its own.
static void transpose_each(const float* from, float* to, int64_t count, int64_t rows, int64_t cols) {
  if (count * rows * cols == 0) return;
  constexpr int64_t kSide = 4 * L;
  const bool across = cols > rows;
  const int64_t parts = ceil_div(across ? cols : rows, kSide);
  parallel_for(count * parts, max64(1, 4096 / (kSide * min64(rows, cols))), [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const float* a = from + at / parts * rows * cols;
      float* b = to + at / parts * rows * cols;
      const int64_t first = at % parts * kSide, last = min64(first + kSide, across ? cols : rows);
      for (int64_t k = 0; k < (across ? rows : cols); k += L)
        for (int64_t j = first; j < last; j += L) transpose_block(a, b, rows, cols, across ? k : j, across ? j : k);
    }
  });
}

// An activation of the call as channels-last memory: its own bytes, or a copy.
class Laid {
 public:
  Laid(const TensorView& t, int slot, bool read) : plain_(t.as<float>()), data_(plain_) {
    if (!t || t.is_channels_last()) return;
    count_ = t.sizes[0], channels_ = t.sizes[1], pixels_ = t.numel() / max64(1, count_ * channels_);
    data_ = static_cast<float*>(scratch(size_t(t.numel()) * 4, slot));
    if (read) transpose_each(plain_, data_, count_, channels_, pixels_);
  }
  SF_INLINE float* data() const { return data_; }
  void write_back() const {
    if (data_ != plain_) transpose_each(data_, plain_, count_, pixels_, channels_);
  }

 private:
  float *plain_, *data_;
  int64_t count_ = 0, channels_ = 0, pixels_ = 0;
};

}  // namespace SF_ISA
}  // namespace sf
