#include "scaffolding/nn/half_weights.h"

#include <algorithm>
#include <typeinfo>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/nn/conv_strips.h"
#include "scaffolding/nn/format.h"
#include "scaffolding/nn/quantize.h"
#include "scaffolding/nn/stored_product.h"
#include "scaffolding/ops/conv/narrow_conv.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/quantize/half_rows.h"
#include "scaffolding/ops/view/view.h"

namespace sf::nn {

namespace {
std::string name_of(DType dtype) { return dtype == kFloat16 ? "float16" : "bfloat16"; }
}  // namespace

LinearHalf::LinearHalf(const Tensor& numbers, const Tensor& bias_)
    : in_features(numbers.size(1)), out_features(numbers.size(0)), weight(numbers), bias(bias_) {}

Tensor LinearHalf::forward(const Tensor& input) const {
  check_input_features("LinearHalf", input, in_features);
  return linear_half(input, weight, bias);
}
Tensor LinearHalf::forward_plus(const Tensor& input, const Tensor& residual) const {
  return stored_product(*this, input, {.residual = residual});
}
std::string LinearHalf::weight_format() const { return name_of(weight.dtype()); }
Tensor LinearHalf::dense_weight(DType dtype) const { return to_dtype(weight, dtype); }
std::string LinearHalf::extra_repr() const {
  return "in_features=" + text(in_features) + ", out_features=" + text(out_features) + ", bias=" + text(bool(bias));
}

Conv2dHalf::Conv2dHalf(const Conv2d& like, const Tensor& numbers) : Conv2d(like), narrow(numbers) {
  weight = empty(numbers.shape(), like.weight.dtype(), Device(Device::Meta));
}

void Conv2dHalf::visit(Visitor& v) {
  v.buffer("weight", narrow, true);
  v.parameter("bias", bias);
}

bool Conv2dHalf::is_product_of_pixels(const Tensor& input) const {
  const bool one = std::all_of(kernel_size.begin(), kernel_size.end(), [](int64_t k) { return k == 1; }) &&
                   std::all_of(stride.begin(), stride.end(), [](int64_t s) { return s == 1; });
  return one && groups == 1 && !padding.same && pads_with_zeros() &&
         std::all_of(padding.amounts.begin(), padding.amounts.end(), [](int64_t p) { return p == 0; }) &&
         input.ndim() == 4 && input.size(1) == in_channels && input.is_contiguous(MemoryFormat::ChannelsLast);
}

Tensor Conv2dHalf::forward(const Tensor& input) const {
  check_defined("Conv2dHalf", "input", input);
  check_floating("Conv2dHalf", "input", input);
  if (is_product_of_pixels(input)) {  // of rows of channels
    const Tensor rows = input.permute({0, 2, 3, 1});
    return linear_half(rows, narrow.view({out_channels, in_channels}), bias).permute({0, 3, 1, 2});
  }
  if (input.ndim() == 4 && !padding.same && pads_with_zeros() && !autograd::any_requires_grad({input, bias})) {
    ConvShape shape{.groups = groups};
    for (int i : {0, 1})
      shape.stride[i] = stride[i], shape.padding[i] = padding.amounts[i], shape.dilation[i] = dilation[i];
    if (const Tensor y = conv_with_narrow_weight(input, narrow, bias, shape)) return y;
  }
  return convolve_in_strips(*this, input, [&](int64_t first, int64_t channels) {
    return to_dtype(narrow.narrow(0, first, channels), input.dtype());
  });
}
std::string Conv2dHalf::weight_format() const { return name_of(narrow.dtype()); }
Tensor Conv2dHalf::dense_weight(DType dtype) const { return to_dtype(narrow, dtype); }

EmbeddingHalf::EmbeddingHalf(const Tensor& numbers, DType dtype)
    : num_embeddings(numbers.size(0)),
      embedding_dim(numbers.size(1)),
      weight(numbers),
      like(empty({0}, dtype, numbers.device()), false) {}

Tensor EmbeddingHalf::forward(const Tensor& input) const {
  check_defined("EmbeddingHalf", "input", input);
  return to_dtype(embedding(input, weight), like.dtype());
}
std::string EmbeddingHalf::weight_format() const { return name_of(weight.dtype()); }
Tensor EmbeddingHalf::dense_weight(DType dtype) const { return to_dtype(weight, dtype); }
std::string EmbeddingHalf::extra_repr() const { return text(num_embeddings) + ", " + text(embedding_dim); }

Module* put_half(Module& layer, const Tensor& weight, DType dtype) {
  if (layer.present() != &layer || (weight.dtype() != kFloat16 && weight.dtype() != kBFloat16)) return nullptr;
  auto takes = [&](const Tensor& own) { return own && own.shape() == weight.shape() && weight.is_contiguous(); };
  if (typeid(layer) == typeid(Linear)) {
    auto& l = static_cast<Linear&>(layer);
    if (takes(l.weight)) return put_stored_layer(layer, std::make_shared<LinearHalf>(weight, l.bias), dtype);
  } else if (typeid(layer) == typeid(Conv2d)) {
    auto& l = static_cast<Conv2d&>(layer);
    if (takes(l.weight)) return put_stored_layer(layer, std::make_shared<Conv2dHalf>(l, weight), dtype);
  } else if (typeid(layer) == typeid(Embedding)) {
    auto& l = static_cast<Embedding&>(layer);
    if (takes(l.weight) && !l.max_norm)
      return put_stored_layer(layer, std::make_shared<EmbeddingHalf>(weight, dtype), dtype);
  }
  return nullptr;
}

bool is_half(const Module& layer) {
  return dynamic_cast<const LinearHalf*>(&layer) || dynamic_cast<const Conv2dHalf*>(&layer) ||
         dynamic_cast<const EmbeddingHalf*>(&layer);
}

}  // namespace sf::nn
