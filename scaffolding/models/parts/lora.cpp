#include "scaffolding/models/parts/lora.h"

#include <typeinfo>

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/error.h"
#include "scaffolding/nn/quantize.h"
#include "scaffolding/nn/quantized.h"
#include "scaffolding/nn/quantized_gguf.h"
#include "scaffolding/nn/quantized_rows.h"
#include "scaffolding/ops/conv/conv_residual.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

// What two convolutions do, a 1x1 one first, as one: [R, C, kh, kw].
Tensor through(const Tensor& mid, const Tensor& down) {
  const int64_t rank = mid.size(0), inner = mid.size(1), channels = down.size(1);
  const Tensor taps = mid.permute({0, 2, 3, 1}).reshape({-1, inner});  // [R kh kw, inner]
  const Tensor all = matmul(taps, down.reshape({inner, channels}));
  return all.reshape({rank, mid.size(2), mid.size(3), channels}).permute({0, 3, 1, 2});
}

// [R, ...] of linear layers' kind where the layer is one, of convolutions' where that is.
Tensor shaped(const Tensor& t, bool conv) {
  if (conv) return t.ndim() == 2 ? t.unsqueeze(-1).unsqueeze(-1) : t;
  return t.ndim() == 4 && t.size(2) == 1 && t.size(3) == 1 ? t.flatten(1) : t;
}

// [out_features, in_features], or a convolution's weight's shape.
Shape weight_shape(const nn::Module& layer) {
  if (auto* conv = dynamic_cast<const nn::Conv2d*>(&layer)) return conv->weight.shape();
  if (auto* linear = dynamic_cast<const nn::Linear*>(&layer)) return linear->weight.shape();
  if (auto* stored = dynamic_cast<const nn::StoredLinear*>(&layer)) return stored->dense_shape();
  fail<NotSupported>("LoraPath: goes beside linear layers and 2-D convolutions, not beside a ", layer.type());
}

// Memory for `rank` of the layer's inputs. Convolutions on a GPU read it channels-last.
Tensor room(Shape sizes, bool conv, DType dtype, Device device) {
  const Tensor t = zeros(sizes, dtype, device);
  return conv ? t.contiguous(MemoryFormat::ChannelsLast) : t;
}

bool calls_python(const nn::Module& m) { return m.extension() && m.extension()->calls(); }
// A plain call of it, which nothing in Python stands in for.
template <class Layer> const Layer* as(const nn::Module& m) {
  return typeid(m) == typeid(Layer) && !calls_python(m) ? static_cast<const Layer*>(&m) : nullptr;
}

}  // namespace

int64_t rank_of(const std::vector<LoraTerm>& terms) {
  int64_t sum = 0;
  for (auto& t : terms) sum += t.rank();
  return sum;
}

bool LoraPath::goes_beside(const nn::Module& layer) {
  if (auto* conv = dynamic_cast<const nn::Conv2d*>(&layer)) return conv->groups == 1;
  return dynamic_cast<const nn::Linear*>(&layer) || dynamic_cast<const nn::StoredLinear*>(&layer);
}

LoraTerm LoraPath::ready(const nn::Module& layer, const LoraTerm& t, DType dtype, Device device) {
  const auto* conv = dynamic_cast<const nn::Conv2d*>(&layer);
  SF_CHECK(!conv || goes_beside(layer), "LoraPath: a convolution must have one group");
  autograd::NoGrad off;
  const Shape weight = weight_shape(layer);
  const int64_t rows = weight[0];
  Tensor d = shaped(t.mid ? through(t.mid.to(kFloat32), t.down.to(kFloat32)) : t.down, conv);
  Tensor u = shaped(t.up, conv);
  SF_CHECK(d.ndim() == (conv ? 4 : 2) && u.ndim() == d.ndim() && u.size(1) == d.size(0) &&
               (!conv || (u.size(2) == 1 && u.size(3) == 1)),
           "LoraPath: down must be [R, K] and up [N, R], of a convolution [R, C, kh, kw] and [N, R, 1, 1], got ",
           t.down.shape(), " and ", t.up.shape());
  Shape inputs = weight;
  inputs[0] = d.size(0);
  SF_CHECK(d.shape() == inputs, "LoraPath: down must be ", inputs, " beside a weight ", weight, ", got ", d.shape());
  SF_CHECK(t.row >= 0 && t.row + u.size(0) <= rows, "LoraPath: an update of ", u.size(0), " rows from row ", t.row,
           " is not in a layer of ", rows, " rows");
  d = d.to(device).to(dtype), u = u.to(device).to(dtype);
  if (u.size(0) < rows) {
    Shape above = u.shape(), below = u.shape();
    above[0] = t.row, below[0] = rows - t.row - u.size(0);
    u = cat({zeros(above, dtype, device), u, zeros(below, dtype, device)}, 0);
  }
  return {d, u, {}, 0, t.scale};
}

LoraPath::LoraPath(const nn::Module& layer, int64_t rank, DType dtype, Device device)
    : layer_(layer), conv_(dynamic_cast<const nn::Conv2d*>(&layer)) {
  SF_CHECK(goes_beside(layer), "LoraPath: goes beside linear layers and 2-D convolutions of one group, not beside a ",
           layer.type());
  SF_CHECK(rank > 0, "LoraPath: a slot's rank must be positive, got ", rank);
  autograd::NoGrad off;
  Shape sizes = weight_shape(layer);
  up = room(conv_ ? Shape{sizes[0], rank, 1, 1} : Shape{sizes[0], rank}, conv_, dtype, device);
  sizes[0] = rank;
  down = room(sizes, conv_, dtype, device);
}

LoraPath::LoraPath(const nn::Module& layer, const std::vector<LoraTerm>& terms, DType dtype, Device device)
    : layer_(layer), conv_(dynamic_cast<const nn::Conv2d*>(&layer)) {
  SF_CHECK(!terms.empty(), "LoraPath: needs a term");
  autograd::NoGrad off;
  std::vector<LoraTerm> all;
  for (auto& t : terms) all.push_back(ready(layer, t, dtype, device));
  if (are_slots(device)) {
    LoraPath slot(layer, rank_of(all), dtype, device);
    slot.fill(all);
    down = slot.down, up = slot.up, filled_ = slot.filled_;
    return;
  }
  Tensors downs, ups;
  for (auto& t : all) {
    downs.push_back(t.down);
    ups.push_back(all.size() > 1 ? t.up * t.scale : t.up);
  }
  scale = all.size() > 1 ? 1 : all[0].scale;
  down = all.size() > 1 ? cat(downs, 0) : downs[0];
  up = all.size() > 1 ? cat(ups, 1) : ups[0];
  scale_ = full({}, scale, kFloat32, device);
}

void LoraPath::fill(const std::vector<LoraTerm>& terms) {
  autograd::NoGrad off;
  const int64_t used = rank_of(terms);
  SF_CHECK(used <= rank(), "LoraPath: ranks of ", used, " in all are more than the slot's ", rank());
  int64_t at = 0;
  for (auto& t : terms) {
    down.narrow(0, at, t.rank()).copy_(t.down);
    up.narrow(1, at, t.rank()).copy_(t.scale == 1 ? t.up : t.up * t.scale);  // from float32, rounded once
    at += t.rank();
  }
  if (used < filled_) up.narrow(1, used, filled_ - used).zero_();
  filled_ = used;
}

Tensor LoraPath::apply(const Tensor& x, const std::function<Tensor()>& bare) const {
  if (auto* linear = as<nn::Linear>(layer_)) return linear_lora(x, linear->weight, linear->bias, down, up, scale);
  const bool records = autocast::active() || autograd::any_requires_grad({x, down, up});
  // Of quantised layers one pass over the weight adds what the LoRA gives, before anything is rounded.
  auto* stored = dynamic_cast<const nn::StoredLinear*>(&layer_);
  auto* float8 = dynamic_cast<const nn::LinearFP8*>(&layer_);
  if (stored && !calls_python(layer_) && !(float8 && float8->dynamic) && !records)
    return stored->forward_plus(x, side(x));
  auto* conv = as<nn::Conv2d>(layer_);
  if (conv && !records && x.ndim() == 4 && !conv->padding.same && conv->pads_with_zeros() &&
      x.dtype() == conv->weight.dtype() && x.size(1) == conv->in_channels &&
      !autograd::any_requires_grad({conv->weight, conv->bias})) {
    const Shape& pads = conv->padding.amounts;
    return conv_plus_residual(x, conv->weight, conv->bias, side(x),
                              {.stride = {conv->stride[0], conv->stride[1], 1},
                               .padding = {pads[0], pads[1], 0},
                               .dilation = {conv->dilation[0], conv->dilation[1], 1}});
  }
  return beside(bare(), x);
}

void LoraPath::each_tensor(const std::function<void(const Tensor&)>& see) const {
  for (const Tensor* t : {&down, &up, &scale_}) see(*t);
}

Tensor LoraPath::within(const Tensor& input) const {
  const Tensor h = conv_ ? conv_->convolve(input, down) : linear(input, down);
  return scale == 1 ? h : h * scale;
}
Tensor LoraPath::side(const Tensor& input) const {
  return conv_ ? conv2d(within(input), up) : linear(within(input), up);
}
Tensor LoraPath::beside(const Tensor& output, const Tensor& input) const {
  return conv_ ? output + side(input) : linear_add(within(input), up, {}, output);
}
void LoraPath::side_into(const Tensor& output, const Tensor& input) const {
  gemm_into("linear_lora", within(input).unsqueeze(0), up.t().unsqueeze(0), output.unsqueeze(0), 0);
}

}  // namespace sf::models
