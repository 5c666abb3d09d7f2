// Products with weights in few bits on CUDA: what they have in common, whatever the weight's format.
#pragma once
#include <functional>

#include "scaffolding/ops/matmul/kernel.h"

namespace sf::cuda {

// Up to so many rows the weight is decoded in registers for dot products, with more it is decoded into strips.
inline constexpr int64_t kFewRows = 16;

// c[m, n] = act(sum_k a[m, k] * w[n, k] + bias[n] + residual[m, n]): CodedProduct's and GgufProduct's without w.
struct StoredProduct {
  TensorView a, bias, residual, c;
  Activation act;
};
template <class P> StoredProduct without_weight(const P& p) { return {p.a, p.bias, p.residual, p.c, p.act}; }

// Rows from `row` on of the weight, `rows` of them, decoded to `to` in a's dtype on the current stream.
using DecodeStrip = std::function<void(int64_t row, int64_t rows, void* to)>;
// Strip after strip of at most 32 MB, which is where the weight is in a's dtype, and a product with each.
void multiply_strips(const StoredProduct& p, const DecodeStrip& decode);

// `bytes` bytes at data, or where that is no multiple of 16 a copy that is one.
class AlignedBytes {
 public:
  AlignedBytes(Device device, const void* data, int64_t bytes);
  ~AlignedBytes();
  AlignedBytes(const AlignedBytes&) = delete;
  const uint8_t* data() const { return static_cast<const uint8_t*>(data_); }

 private:
  Device device_;
  const void* data_;
  void* copy_ = nullptr;
};

}  // namespace sf::cuda
