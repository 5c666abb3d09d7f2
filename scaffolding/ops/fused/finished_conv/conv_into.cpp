#include "scaffolding/ops/fused/finished_conv/conv_into.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/meta_memory.h"
#include "scaffolding/core/error.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/fused/finished_conv/kernel.h"

namespace sf {

constinit KernelTable<FinishedConvForward> finished_conv_forward{"finished_conv_forward"};

bool conv2d_finished_into(const Tensor& y, const Tensor& input, const Tensor& weight, const Tensor& bias,
                          const ConvFinish& f) {
  const char* op = "conv2d_finished_into";
  SF_CHECK(input.ndim() == 4 && weight.ndim() == 4 && weight.size(1) == input.size(1), op,
           ": input must be [N, C, H, W] and weight [O, C, 3, 3], got ", input.shape(), " and ", weight.shape());
  const Shape sizes{input.size(0), weight.size(0), input.size(2) * f.repeat, input.size(3) * f.repeat};
  SF_CHECK(y.shape() == sizes, op, ": y must be ", sizes, ", got ", y.shape());
  check_shape(op, "bias", bias, {weight.size(0)});
  check_shape(op, "slopes", f.slopes, {weight.size(0)});
  check_shape(op, "residual", f.residual, sizes);
  check_shape(op, "second", f.second, sizes);
  if (autocast::active() || weight.size(2) != 3 || weight.size(3) != 3 || y.numel() == 0 ||
      autograd::any_requires_grad({input, weight, bias, f.slopes, f.residual, f.second}))
    return false;
  for (const Tensor* t : {&weight, &bias, &f.slopes, &f.residual, &f.second, &y})
    if (*t && (t->dtype() != kFloat32 || t->device() != input.device())) return false;
  if (input.dtype() != kFloat32 || !(weight.is_contiguous() || weight.is_contiguous(MemoryFormat::ChannelsLast)))
    return false;
  const Tensor b = bias ? contiguous(bias) : bias, slopes = f.slopes ? contiguous(f.slopes) : f.slopes;
  FinishedConvForward p{.repeat = f.repeat, .scale = float(f.scale), .residual_scale = float(f.residual_scale)};
  p.conv.x = input, p.conv.weight = weight, p.conv.bias = b, p.conv.residual = f.residual, p.conv.y = y;
  p.conv.shape.padding[0] = p.conv.shape.padding[1] = 1;
  p.slopes = slopes, p.second = f.second;
  auto kernel = finished_conv_forward.find(input.device(), p);
  if (!kernel || !finished_conv_forward.find(MetaMemory::kernels_of(input.device()), p)) return false;
  kernel(p);
  return true;
}

}  // namespace sf
