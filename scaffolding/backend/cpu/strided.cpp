#include "scaffolding/backend/cpu/strided.h"

namespace sf::cpu {

StridedLoop::StridedLoop(std::initializer_list<const TensorView*> views) {
  const TensorView& first = **views.begin();
  int order[kMaxDims], n = 0;
  for (int d = first.ndim - 1; d >= 0; --d)
    if (first.sizes[d] != 1) order[n++] = d;  // innermost first; dimensions of one element need no loop
  // Insertion sort by the output's stride, then by the next operand's where the output broadcasts or ties.
  auto before = [&](int a, int b) {
    for (auto* v : views) {
      int64_t x = v->strides[a], y = v->strides[b];
      if (x == y) continue;
      if (x == 0 || y == 0) continue;
      return x < y;
    }
    return false;
  };
  for (int i = 1; i < n; ++i)
    for (int j = i; j > 0 && before(order[j], order[j - 1]); --j) std::swap(order[j], order[j - 1]);
  for (auto* v : views) {
    int64_t item = int64_t(size_of(v->dtype));
    data[operands] = static_cast<char*>(v->data);
    for (int i = 0; i < n; ++i) strides[operands][i] = v->strides[order[i]] * item;
    ++operands;
  }
  for (int i = 0; i < n; ++i) sizes[i] = first.sizes[order[i]];
  ndim = 0;
  for (int i = 0; i < n; ++i) {
    bool merge = ndim > 0;
    for (int k = 0; merge && k < operands; ++k) merge = strides[k][i] == strides[k][ndim - 1] * sizes[ndim - 1];
    if (merge) {
      sizes[ndim - 1] *= sizes[i];
    } else {
      sizes[ndim] = sizes[i];
      for (int k = 0; k < operands; ++k) strides[k][ndim] = strides[k][i];
      ++ndim;
    }
  }
  if (ndim == 0) {
    sizes[0] = first.numel();
    for (int k = 0; k < operands; ++k) strides[k][0] = 0;
    int k = 0;
    for (auto* v : views) strides[k++][0] = int64_t(size_of(v->dtype));
    ndim = 1;
  }
  for (int i = 1; i < ndim; ++i) rows *= sizes[i];
}

void StridedLoop::start(int64_t row, int64_t* index, char** p) const {
  for (int k = 0; k < operands; ++k) p[k] = data[k];
  for (int i = 1; i < ndim; ++i) {
    index[i] = row % sizes[i];
    row /= sizes[i];
    for (int k = 0; k < operands; ++k) p[k] += index[i] * strides[k][i];
  }
}

void StridedLoop::advance(int64_t* index, char** p) const {
  for (int i = 1; i < ndim; ++i) {
    for (int k = 0; k < operands; ++k) p[k] += strides[k][i];
    if (++index[i] < sizes[i]) return;
    index[i] = 0;
    for (int k = 0; k < operands; ++k) p[k] -= strides[k][i] * sizes[i];
  }
}

}  // namespace sf::cpu
