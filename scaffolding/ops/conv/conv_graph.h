// Convolutions as cuDNN's graphs, from sizes alone: neither memory nor a device is needed to build one. Activations and
// weights are channels-last.
#pragma once
#include <optional>

#include "scaffolding/backend/cuda/cudnn_graph.h"
#include "scaffolding/ops/matmul/kernel.h"

namespace sf::cuda::cudnn {

struct ConvolutionGraph {
  Graph::Convolution what = Graph::Convolution::Forward;
  DType dtype = kFloat32;             // of x, w, y and residual
  Dims x, w, y;                       // sizes: [N, C, ...], [O, C / groups, ...], [N, O, ...]
  Graph::Window window;               // as many numbers as there are spatial dimensions
  int64_t alignment[3] = {1, 1, 1};   // in bytes, of x, w, y
  std::optional<DType> bias;          // [O], of a dtype of its own
  std::optional<int64_t> residual;    // y's sizes: its alignment
  Activation act = Activation::None;  // y = act(conv(x, w) + residual + bias), forward only
};
// What run_plan names. Bias and residual only where the graph has them.
constexpr Id kConvX = 1, kConvW = 2, kConvY = 3, kConvBias = 4;
inline Id conv_residual(const ConvolutionGraph& c) { return c.bias ? 5 : 4; }

bool has_words_for(Activation act);
Graph graph_of(const ConvolutionGraph& c);

}  // namespace sf::cuda::cudnn
