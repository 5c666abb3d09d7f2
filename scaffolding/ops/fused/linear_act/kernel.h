// A projection whose one half gates the other, in one pass: the contract with backends.
//
// y[m, j] = (a b_hidden + bias_hidden)[m, j] * act((a b_gate + bias_gate)[m, j]): the projection [M, 2N] is never
// stored.
// a is [M, K]; hidden and gate are weights [N, K], two halves of one [2N, K]; both biases are [N] or both undefined; y
// is [M, N] with stride 1 along N. One floating dtype for a, hidden, gate and y; biases in that dtype or float32. act
// is GeluErf, GeluTanh, Silu or Relu.
// With a low-rank side path h [M, R], up_hidden and up_gate [N, R], of the same dtype and with stride 1 along R, h
// up_hidden^T and h up_gate^T are added to the two products; else they are undefined.
#pragma once
#include "scaffolding/ops/matmul/kernel.h"

namespace sf {

struct GatedLinear {
  TensorView a, hidden, gate, bias_hidden, bias_gate;
  Activation act = Activation::GeluErf;
  TensorView y;
  uint64_t weight_version = 0;  // as Gemm::b_version
  TensorView h, up_hidden, up_gate;
};
extern KernelTable<GatedLinear> gated_linear;

}  // namespace sf
