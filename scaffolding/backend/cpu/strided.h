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

  // The two innermost dimensions change places: for rows of a few elements, where the next dimension has more.
  void swap_inner() {
    rows = rows / sizes[1] * sizes[0];
    std::swap(sizes[0], sizes[1]);
    for (int k = 0; k < operands; ++k) std::swap(strides[k][0], strides[k][1]);
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
      for (int64_t w = b; w < e; ++w) {
        const int64_t first = w % bands * band;
        int64_t rest = w / bands;
        char* p[kMaxOperands];
        for (int k = 0; k < operands; ++k) p[k] = data[k] + first * strides[k][at];
        for (int d = 1; d < ndim; ++d) {
          if (d == at) continue;
          for (int k = 0; k < operands; ++k) p[k] += rest % sizes[d] * strides[k][d];
          rest /= sizes[d];
        }
        f(p, std::min(band, sizes[at] - first));
      }
    });
  }

 private:
  void start(int64_t row, int64_t* index, char** p) const;
  void advance(int64_t* index, char** p) const;
};

}  // namespace sf::cpu
