// rms_norm on the CPU; layer_norm/row_norm.h has the arithmetic.
#include "scaffolding/ops/rms_norm/kernel.h"

#include "scaffolding/ops/layer_norm/row_norm.h"

namespace sf {
namespace SF_ISA {

static void forward(const RmsNormForward& a) {
  visit_floating(a.x.dtype,
                 [&](auto tag) { norm_forward<typename decltype(tag)::type, false>(a, TensorView(), TensorView()); });
}
static void backward(const RmsNormBackward& a) {
  visit_floating(a.x.dtype, [&](auto tag) {
    norm_backward<typename decltype(tag)::type, false>(a, TensorView(), TensorView(), TensorView());
  });
}
static bool forward_supports(const RmsNormForward& a) {
  return computes(a.x.dtype) && same_rows(a.x, a.x) && same_rows(a.residual, a.x) && same_rows(a.sum, a.x) &&
         same_rows(a.y, a.x) && any_floating(a.weight) && any_floating(a.scale) && any_floating(a.shift);
}
static bool backward_supports(const RmsNormBackward& a) {
  return computes(a.x.dtype) && same_rows(a.x, a.x) && same_rows(a.dy, a.x) && same_rows(a.dsum, a.x) &&
         same_rows(a.dx, a.x) && any_floating(a.weight) && any_floating(a.scale);
}

SF_KERNEL(rms_norm_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, forward, forward_supports)
SF_KERNEL(rms_norm_backward, DeviceType::CPU, "native", SF_ISA_PRIORITY, backward, backward_supports)

}  // namespace SF_ISA
}  // namespace sf
