// layer_norm on the CPU; row_norm.h has the arithmetic.
#include "scaffolding/ops/layer_norm/kernel.h"

#include "scaffolding/ops/layer_norm/row_norm.h"

namespace sf {
namespace SF_ISA {

static void forward(const LayerNormForward& a) {
  visit_floating(a.x.dtype, [&](auto tag) { norm_forward<typename decltype(tag)::type, true>(a, a.bias, a.mean); });
}
static void backward(const LayerNormBackward& a) {
  visit_floating(a.x.dtype,
                 [&](auto tag) { norm_backward<typename decltype(tag)::type, true>(a, a.bias, a.mean, a.dbias); });
}
static bool forward_supports(const LayerNormForward& a) {
  return computes(a.x.dtype) && same_rows(a.x, a.x) && same_rows(a.residual, a.x) && same_rows(a.sum, a.x) &&
         same_rows(a.y, a.x) && any_floating(a.weight) && any_floating(a.bias) && any_floating(a.scale) &&
         any_floating(a.shift);
}
static bool backward_supports(const LayerNormBackward& a) {
  return computes(a.x.dtype) && same_rows(a.x, a.x) && same_rows(a.dy, a.x) && same_rows(a.dsum, a.x) &&
         same_rows(a.dx, a.x) && any_floating(a.weight) && any_floating(a.bias) && any_floating(a.scale);
}

SF_KERNEL(layer_norm_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, forward, forward_supports)
SF_KERNEL(layer_norm_backward, DeviceType::CPU, "native", SF_ISA_PRIORITY, backward, backward_supports)

}  // namespace SF_ISA
}  // namespace sf
