// StridedLoop: walks up to four operands over one common shape, whatever their strides.
// Dimensions are sorted by the first operand's strides (the output's) and merged where memory allows, so that most
// calls become one long row. Compiled once (base instruction set); rows are handed to kernels.
#pragma once
#include "scaffolding/core/parallel.h"
#include "scaffolding/core/shape.h"
#include "scaffolding/core/tensor_view.h"

namespace sf::cpu {

inline constexpr int kMaxOperands = 4;

struct StridedLoop {
  int operands = 0, ndim = 0;
  int64_t sizes[kMaxDims];                  // sizes[0] is the innermost
  int64_t strides[kMaxOperands][kMaxDims];  // in bytes
  char* data[kMaxOperands];
  int64_t rows = 1;  // product of the outer sizes

  // All views have the shape of the first (callers expand broadcast operands: stride 0).
  StridedLoop(std::initializer_list<const TensorView*> views);

  int64_t row_length() const { return sizes[0]; }
  // f(char* const* ptrs, int64_t n) for pieces of rows, in parallel; stride_of(i) is the step inside a row.
  template <class F> void run(int64_t grain, const F& f) const {
    if (rows == 0 || sizes[0] == 0) return;
    if (rows == 1) {
      parallel_for(sizes[0], grain, [&](int64_t b, int64_t e) {
        char* p[kMaxOperands];
        for (int i = 0; i < operands; ++i) p[i] = data[i] + b * strides[i][0];
        f(p, e - b);
      });
      return;
    }
    int64_t rows_grain = std::max<int64_t>(1, grain / std::max<int64_t>(sizes[0], 1));
    parallel_for(rows, rows_grain, [&](int64_t b, int64_t e) {
      int64_t index[kMaxDims];
      char* p[kMaxOperands];
      start(b, index, p);
      for (int64_t r = b; r < e; ++r) {
        f(p, sizes[0]);
        advance(index, p);
      }
    });
  }

  // Pixels of a few channels, whose rows are too short for a loop of their own.
  bool has_pixels() const { return ndim > 1 && sizes[0] < 8 && sizes[1] >= 8; }
  // f(char* const* ptrs, int64_t n) for n entries along dimension 1 of each channel in turn, while the cache has them.
  template <class F> void run_pixels(int64_t grain, const F& f) const {
    constexpr int64_t kBand = 256;
    run_across(1, kBand, std::max<int64_t>(1, grain / (kBand * sizes[0])), [&](char* const* p, int64_t n) {
      char* at[kMaxOperands];
      for (int64_t i = 0; i < sizes[0]; ++i) {
        for (int k = 0; k < operands; ++k) at[k] = p[k] + i * strides[k][0];
        f(at, n);
      }
    });
  }

  // The dimension along which operand i is dense, of elements of that many bytes; 0 where none is.
  int dense_dimension(int i, int64_t item) const {
    for (int d = 1; d < ndim; ++d)
      if (strides[i][d] == item && sizes[d] > 1) return d;
    return 0;
  }
  // f(char* const* ptrs, int64_t n) for up to `band` places along dimension `at` and whole rows of the innermost one,
  // in parallel, `grain` bands to a thread at least.
  template <class F> void run_across(int at, int64_t band, int64_t grain, const F& f) const {
    const int64_t bands = (sizes[at] + band - 1) / band;
    parallel_for(rows / sizes[at] * bands, grain, [&](int64_t b, int64_t e) {
      int64_t index[kMaxDims] = {}, rest = b / bands, first = b % bands * band;
      char* p[kMaxOperands];
      for (int k = 0; k < operands; ++k) p[k] = data[k];
      for (int d = 1; d < ndim; ++d) {
        index[d] = d == at ? first : rest % sizes[d];
        if (d != at) rest /= sizes[d];
        for (int k = 0; k < operands; ++k) p[k] += index[d] * strides[k][d];
      }
      for (int64_t w = b; w < e; ++w) {
        f(p, std::min(band, sizes[at] - index[at]));
        step(index, p, at, band);
        for (int d = 1; d < ndim && index[at] == 0 && w + 1 < e; ++d) {
          if (d == at) continue;
          step(index, p, d, 1);
          if (index[d] > 0) break;
        }
      }
    });
  }

 private:
  void start(int64_t row, int64_t* index, char** p) const;
  void advance(int64_t* index, char** p) const;
  // `places` further along dimension d, or back to its beginning.
  void step(int64_t* index, char** p, int d, int64_t places) const {
    const int64_t by = index[d] + places < sizes[d] ? places : -index[d];
    index[d] += by;
    for (int k = 0; k < operands; ++k) p[k] += by * strides[k][d];
  }
};

}  // namespace sf::cpu
