// Attention as cuDNN's graphs, from sizes and strides alone: neither memory nor a device is needed to build one. The
// ops and their order are those that cuDNN documents for its fused engines ("Fused Flash Attention fprop / bprop");
// another order of the same maths finds no engine.
#pragma once
#include "scaffolding/backend/cuda/cudnn_graph.h"

namespace sf::cuda::cudnn {

struct AttentionGraph {
  DType dtype = kBFloat16;                                             // of all but lse
  int64_t batch = 1, heads = 1, key_heads = 1, queries = 1, keys = 1;  // heads is a multiple of key_heads
  int64_t width = 64, value_width = 64;                                // of a head
  Dims q, k, v, y;      // strides of [batch, heads, length, width]; the last is 1
  bool causal = false;  // query i sees keys j <= i
  float scale = 1;
  bool lse = false;  // written, float32 [batch, heads, queries]
};
// What run_plan names.
constexpr Id kAttentionQ = 1, kAttentionK = 2, kAttentionV = 3, kAttentionY = 4, kAttentionLse = 5;
Graph graph_of(const AttentionGraph& a);

struct AttentionGradientGraph {
  AttentionGraph forward;
  Dims dy, dq, dk, dv;  // strides
  // dq is added up by atomic additions in float32 memory of [batch, heads, queries, width], and then rounded; false: in
  // a fixed order, without that memory.
  bool accumulate = true;
};
constexpr Id kAttentionDy = 6, kAttentionDq = 7, kAttentionDk = 8, kAttentionDv = 9;
constexpr Id kAttentionDelta = 10;  // float32 [batch, heads, queries], written and read: sum_d dy y
constexpr Id kAttentionSums = 11;   // where `accumulate` is
Graph graph_of(const AttentionGradientGraph& a);

}  // namespace sf::cuda::cudnn
