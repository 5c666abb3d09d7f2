#include "scaffolding/ops/conv/conv_graph.h"

namespace sf::cuda::cudnn {

namespace {

Dims channels_last(const Dims& sizes) {
  Dims strides(sizes.size());
  int64_t stride = strides[1] = 1;
  stride *= sizes[1];
  for (size_t i = sizes.size() - 1; i > 1; --i) strides[i] = stride, stride *= sizes[i];
  strides[0] = stride;
  return strides;
}

Pointwise function_of(Activation act) {
  switch (act) {
    case Activation::Relu: return Pointwise::Relu;
    case Activation::GeluErf: return Pointwise::Gelu;
    case Activation::GeluTanh: return Pointwise::GeluTanh;
    case Activation::Silu: return Pointwise::Swish;
    default: return Pointwise::Identity;
  }
}

}  // namespace

bool has_words_for(Activation act) { return act == Activation::None || function_of(act) != Pointwise::Identity; }

// Residual, bias, activation in this order, with ReLU or none, is what cuDNN has finished kernels for ("ConvBiasAct");
// other functions are compiled when the plan is made.
Graph graph_of(const ConvolutionGraph& c) {
  Graph g;
  DataType type = data_type(c.dtype);
  g.tensor(type, c.x, channels_last(c.x), c.alignment[0]);
  g.tensor(type, c.w, channels_last(c.w), c.alignment[1]);
  g.tensor(type, c.y, channels_last(c.y), c.alignment[2]);
  Dims per_channel(c.y.size(), 1);
  per_channel[1] = c.y[1];
  if (c.bias) g.tensor(data_type(*c.bias), per_channel, channels_last(per_channel), int64_t(size_of(*c.bias)));
  if (c.residual) g.tensor(type, c.y, channels_last(c.y), *c.residual);

  std::vector<std::pair<Pointwise, Id>> then;
  if (c.residual) then.emplace_back(Pointwise::Add, conv_residual(c));
  if (c.bias) then.emplace_back(Pointwise::Add, kConvBias);
  if (c.act != Activation::None) then.emplace_back(function_of(c.act), 0);
  auto between = [&] { return g.hidden(DataType::Float, c.y, channels_last(c.y)); };
  Id last = then.empty() ? kConvY : between();
  g.convolve(c.what, kConvX, kConvW, last, c.window);
  for (size_t i = 0; i < then.size(); ++i) {
    Id next = i + 1 == then.size() ? kConvY : between();
    g.pointwise(then[i].first, next, last, then[i].second);
    last = next;
  }
  return g;
}

}  // namespace sf::cuda::cudnn
