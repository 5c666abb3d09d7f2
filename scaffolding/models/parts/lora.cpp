#include "scaffolding/models/parts/lora.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/nn/quantized.h"
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
  if (auto* nf4 = dynamic_cast<const nn::LinearNF4*>(&layer)) return {nf4->out_features, nf4->in_features};
  if (auto* fp8 = dynamic_cast<const nn::LinearFP8*>(&layer)) return {fp8->out_features, fp8->in_features};
  fail<NotSupported>("LoraPath: goes beside linear layers and 2-D convolutions, not beside a ", layer.type());
}

}  // namespace

LoraPath::LoraPath(const nn::Module& layer, const std::vector<LoraTerm>& terms, DType dtype, Device device)
    : conv_(dynamic_cast<const nn::Conv2d*>(&layer)) {
  SF_CHECK(!terms.empty(), "LoraPath: needs a term");
  SF_CHECK(!conv_ || (conv_->groups == 1 && conv_->padding_mode == "zeros"),
           "LoraPath: a convolution must have one group and zeros around its input");
  autograd::NoGrad off;
  Tensors downs, ups;
  const Shape weight = weight_shape(layer);
  const int64_t rows = weight[0];
  for (const LoraTerm& t : terms) {
    Tensor d = shaped(t.mid ? through(t.mid.to(kFloat32), t.down.to(kFloat32)) : t.down, conv_);
    Tensor u = shaped(t.up, conv_);
    SF_CHECK(d.ndim() == (conv_ ? 4 : 2) && u.ndim() == d.ndim() && u.size(1) == d.size(0) &&
                 (!conv_ || (u.size(2) == 1 && u.size(3) == 1)),
             "LoraPath: down must be [R, K] and up [N, R], of a convolution [R, C, kh, kw] and [N, R, 1, 1], got ",
             t.down.shape(), " and ", t.up.shape());
    Shape inputs = weight;
    inputs[0] = d.size(0);
    SF_CHECK(d.shape() == inputs, "LoraPath: down must be ", inputs, " beside a weight ", weight, ", got ", d.shape());
    SF_CHECK(t.row >= 0 && t.row + u.size(0) <= rows, "LoraPath: an update of ", u.size(0), " rows from row ", t.row,
             " is not in a layer of ", rows, " rows");
    if (u.size(0) < rows) {
      Shape above = u.shape(), below = u.shape();
      above[0] = t.row, below[0] = rows - t.row - u.size(0);
      u = cat({zeros(above, u.dtype(), u.device()), u, zeros(below, u.dtype(), u.device())}, 0);
    }
    // Rounded once: from float32 with the scale, where several terms have different ones.
    if (terms.size() > 1) u = u.to(kFloat32) * t.scale;
    downs.push_back(d.to(device).to(dtype));
    ups.push_back(u.to(device).to(dtype));
  }
  scale = terms.size() > 1 ? 1 : terms[0].scale;
  down = terms.size() > 1 ? cat(downs, 0) : downs[0];
  up = terms.size() > 1 ? cat(ups, 1) : ups[0];
  scale_ = full({}, scale, kFloat32, device);
}

void LoraPath::each_tensor(const std::function<void(const Tensor&)>& see) const {
  for (const Tensor* t : {&down, &up, &scale_}) see(*t);
}

Tensor LoraPath::within(const Tensor& input) const {
  const Tensor h =
      conv_ ? conv2d(input, down, {}, conv_->stride, conv_->padding, conv_->dilation) : linear(input, down);
  return scale == 1 ? h : h * scale;
}
Tensor LoraPath::side(const Tensor& input) const {
  return conv_ ? conv2d(within(input), up) : linear(within(input), up);
}
Tensor LoraPath::beside(const Tensor& output, const Tensor& input) const {
  return conv_ ? output + side(input) : linear_add(within(input), up, {}, output);
}

}  // namespace sf::models
