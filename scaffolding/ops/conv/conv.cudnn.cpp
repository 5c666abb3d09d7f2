// Convolutions of one to three dimensions and their gradients through cuDNN, channels-last, with residual, bias and
// activation in the same pass, or, where cuDNN has an engine for the convolution alone, in passes of ours behind it. A
// tensor of another memory order is copied; a convolution of one dimension is one of two with a single row. What cuDNN
// has no plan for goes to the next provider.
#include "scaffolding/backend/cuda/cudnn_plans.h"
#include "scaffolding/backend/cudnn_settings.h"
#include "scaffolding/ops/conv/conv_graph.h"
#include "scaffolding/ops/conv/conv_layout.h"
#include "scaffolding/ops/matmul/gemm_finish.h"

namespace sf::cuda {
namespace {

using cudnn::ConvolutionGraph;
using cudnn::Dims;
using cudnn::Graph;
using cudnn::Id;
using cudnn::PlanEntry;
using cudnn::PlanKey;
using Memory = std::pair<Id, void*>;

// Where the call's own memory is used, its alignment; a copy has the most there is.
int64_t alignment_when_laid(const TensorView& t) { return t.is_channels_last() ? cudnn::alignment(t) : 16; }

bool is_type(DType t) { return t == kFloat32 || t == kBFloat16 || t == kFloat16; }

// The sizes of a call, a single row put in where there is one spatial dimension.
Dims sizes_of(const TensorView& t) {
  Dims sizes(t.sizes, t.sizes + t.ndim);
  if (t.ndim == 3) sizes.insert(sizes.begin() + 2, 1);
  return sizes;
}
Dims window_of(const int64_t (&numbers)[3], int ndim, int64_t of_row) {
  Dims window(numbers, numbers + ndim - 2);
  if (ndim == 3) window.insert(window.begin(), of_row);
  return window;
}

ConvolutionGraph describe(Graph::Convolution what, const TensorView& x, const TensorView& w, const TensorView& y,
                          const ConvShape& s) {
  ConvolutionGraph c;
  c.what = what;
  c.dtype = x.dtype;
  c.x = sizes_of(x), c.w = sizes_of(w), c.y = sizes_of(y);
  c.window = {window_of(s.padding, x.ndim, 0), window_of(s.stride, x.ndim, 1), window_of(s.dilation, x.ndim, 1)};
  int i = 0;
  for (const TensorView* t : {&x, &w, &y}) c.alignment[i++] = alignment_when_laid(*t);
  return c;
}

PlanEntry plan_of(const ConvolutionGraph& c, int device) {
  PlanKey key("convolution");
  for (int64_t x : {int64_t(c.what), int64_t(c.dtype), int64_t(c.x.size())}) key.add(x);
  for (const Dims* d : {&c.x, &c.w, &c.y, &c.window.padding, &c.window.stride, &c.window.dilation})
    for (int64_t x : *d) key.add(x);
  for (int64_t x : c.alignment) key.add(x);
  key.add(c.bias ? int64_t(*c.bias) : -1);
  key.add(c.residual.value_or(-1));
  key.add(int64_t(c.act));
  CudnnSettings settings = cudnn_settings();
  cudnn::Wishes wishes{settings.deterministic, c.dtype == kFloat32 && !settings.allow_tf32};
  return cudnn::find_plan(device, key, wishes, [&] { return graph_of(c); });
}

// Whether the question is worth asking cuDNN.
bool possible(const TensorView& x, const TensorView& w, const TensorView& y) {
  return cudnn_settings().enabled && is_type(x.dtype) && w.dtype == x.dtype && y.dtype == x.dtype && x.numel() > 0 &&
         y.numel() > 0 && cudnn::usable(x.device.index);
}

ConvolutionGraph describe(const ConvForward& f) {
  ConvolutionGraph c = describe(Graph::Convolution::Forward, f.x, f.weight, f.y, f.shape);
  if (f.bias) c.bias = f.bias.dtype;
  if (f.residual) c.residual = alignment_when_laid(f.residual);
  c.act = f.act;
  return c;
}
// Without what follows the convolution: 9.19 has no engine that does the rest too for bfloat16 in groups of an odd
// number of channels, depthwise ones among them, unless that is a bias and ReLU.
ConvolutionGraph alone(ConvolutionGraph c) {
  c.bias.reset(), c.residual.reset(), c.act = Activation::None;
  return c;
}
bool supports_forward(const ConvForward& f) {
  if (!possible(f.x, f.weight, f.y) || !cudnn::has_words_for(f.act) ||
      (f.bias && f.bias.strides[0] != 1 && f.bias.sizes[0] != 1))
    return false;
  const ConvolutionGraph c = describe(f);
  return plan_of(c, f.x.device.index) || plan_of(alone(c), f.x.device.index);
}

// A channels-last picture as a matrix [1, pixels, channels].
TensorView pixels_of(const TensorView& t) {
  TensorView rows = t;
  const int64_t channels = t.sizes[1];
  rows.ndim = 3;
  rows.sizes[0] = 1, rows.sizes[1] = t.numel() / channels, rows.sizes[2] = channels;
  rows.strides[0] = t.numel(), rows.strides[1] = channels, rows.strides[2] = 1;
  return rows;
}
// y = act(y + residual + bias), rounded to y's dtype as the ops one by one.
void finish_alone(const ConvForward& f, const TensorView& y, const TensorView& residual) {
  Gemm g;
  g.c = pixels_of(y);
  if (residual) {
    g.beta = 1;
    finish_product(g, pixels_of(residual));
    g.beta = 0;
  }
  g.bias = f.bias, g.act = f.act;
  if (f.bias || f.act != Activation::None) finish_product(g, g.c);
}

void forward(const ConvForward& f) {
  const int device = f.x.device.index;
  ConvolutionGraph c = describe(f);
  PlanEntry plan = plan_of(c, device);
  const bool whole = plan != nullptr;
  if (!whole) plan = plan_of(alone(c), device);
  Laid x(f.x, true), y(f.y, false);
  LaidWeights w(f.weight, 1, false);
  std::optional<Laid> residual;
  if (f.residual) residual.emplace(f.residual, true);
  std::vector<Memory> memory{{cudnn::kConvX, x.view.data}, {cudnn::kConvW, w.data}, {cudnn::kConvY, y.view.data}};
  if (whole && f.bias) memory.emplace_back(cudnn::kConvBias, f.bias.data);
  if (whole && f.residual) memory.emplace_back(conv_residual(c), residual->view.data);
  run_plan(device, plan, memory);
  if (!whole) finish_alone(f, y.view, residual ? residual->view : TensorView());
  y.finish();
}

ConvolutionGraph describe(const ConvBackwardData& b) {
  return describe(Graph::Convolution::Data, b.dx, b.weight, b.dy, b.shape);
}
bool supports_data(const ConvBackwardData& b) {
  return possible(b.dx, b.weight, b.dy) && plan_of(describe(b), b.dx.device.index);
}
void backward_data(const ConvBackwardData& b) {
  PlanEntry plan = plan_of(describe(b), b.dx.device.index);
  Laid dy(b.dy, true), dx(b.dx, false);
  LaidWeights w(b.weight, 1, false);
  Memory memory[] = {{cudnn::kConvX, dx.view.data}, {cudnn::kConvW, w.data}, {cudnn::kConvY, dy.view.data}};
  run_plan(b.dx.device.index, plan, memory);
  dx.finish();
}

ConvolutionGraph describe(const ConvBackwardWeights& b) {
  return describe(Graph::Convolution::Filter, b.x, b.dweight, b.dy, b.shape);
}
bool supports_weights(const ConvBackwardWeights& b) {
  return !b.dbias && possible(b.x, b.dweight, b.dy) && plan_of(describe(b), b.x.device.index);
}
void backward_weights(const ConvBackwardWeights& b) {
  PlanEntry plan = plan_of(describe(b), b.x.device.index);
  Laid x(b.x, true), dy(b.dy, true), dweight(b.dweight, false);
  Memory memory[] = {{cudnn::kConvX, x.view.data}, {cudnn::kConvW, dweight.view.data}, {cudnn::kConvY, dy.view.data}};
  run_plan(b.x.device.index, plan, memory);
  dweight.finish();
}

SF_KERNEL(conv_forward, DeviceType::CUDA, "cudnn", 10, forward, supports_forward)
SF_KERNEL(conv_backward_data, DeviceType::CUDA, "cudnn", 10, backward_data, supports_data)
SF_KERNEL(conv_backward_weights, DeviceType::CUDA, "cudnn", 10, backward_weights, supports_weights)

}  // namespace
}  // namespace sf::cuda
