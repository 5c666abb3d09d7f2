#include "scaffolding/models/parts/conv_beside.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/ops/conv/conv_residual.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

Tensor conv_beside(const Tensor& residual, const nn::Conv1d& conv, const Tensor& x) {
  const int64_t reach = conv.dilation[0] * (conv.kernel_size[0] - 1);
  if (!is_plain(conv) || !conv.pads_with_zeros() || autocast::active() || reach % 2 != 0 || !conv.padding.same)
    return residual + conv(x);
  const nn::WeightsHere here(conv);
  if (conv.weight.dtype() != x.dtype() || residual.dtype() != x.dtype() || residual.shape() != x.shape() ||
      autograd::any_requires_grad({x, residual, conv.weight, conv.bias}))
    return residual + conv(x);
  ConvShape shape;
  shape.dilation[0] = conv.dilation[0], shape.padding[0] = reach / 2, shape.groups = conv.groups;
  return conv_plus_residual(x, conv.weight, conv.bias, residual, shape);
}

}  // namespace sf::models
