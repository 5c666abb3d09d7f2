// Norms of windows, as torch computes them: from averages, so that a window that ceil_mode lets reach past the end
// counts as full.
#include "scaffolding/core/op.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/pool/pool.h"
#include "scaffolding/ops/pool/window.h"

namespace sf {

namespace {

Tensor lp_pool(const char* op, const Tensor& x, int64_t dims, double norm_type, const Shape& kernel_size,
               const Shape& stride, bool ceil_mode) {
  pool::check_input(op, x, dims);
  SF_CHECK(norm_type != 0, op, ": norm_type must not be 0");
  const Shape kernel = pool::spread(op, "kernel_size", kernel_size, dims, 1);
  Tensor powers = pow(x, wrapped(norm_type));
  Tensor mean = dims == 1   ? avg_pool1d(powers, kernel, stride, {0}, ceil_mode)
                : dims == 2 ? avg_pool2d(powers, kernel, stride, {0}, ceil_mode)
                            : avg_pool3d(powers, kernel, stride, {0}, ceil_mode);
  return pow(sign(mean) * relu(abs(mean)) * double(numel(kernel)), wrapped(1 / norm_type));
}

}  // namespace

Tensor lp_pool1d(const Tensor& input, double norm_type, const Shape& kernel_size, const Shape& stride, bool ceil_mode) {
  return lp_pool("lp_pool1d", input, 1, norm_type, kernel_size, stride, ceil_mode);
}
Tensor lp_pool2d(const Tensor& input, double norm_type, const Shape& kernel_size, const Shape& stride, bool ceil_mode) {
  return lp_pool("lp_pool2d", input, 2, norm_type, kernel_size, stride, ceil_mode);
}
Tensor lp_pool3d(const Tensor& input, double norm_type, const Shape& kernel_size, const Shape& stride, bool ceil_mode) {
  return lp_pool("lp_pool3d", input, 3, norm_type, kernel_size, stride, ceil_mode);
}

SF_OP(lp_pool1d, "input, norm_type, kernel_size, stride=None, ceil_mode=False")
    .doc("The norm_type-norm of windows of the last dimension.")
    .like("torch.nn.functional.lp_pool1d(input, norm_type, kernel_size[0], stride[0] if stride else None, ceil_mode)");
SF_OP(lp_pool2d, "input, norm_type, kernel_size, stride=None, ceil_mode=False")
    .doc("The norm_type-norm of windows of the last 2 dimensions.")
    .like(
        "torch.nn.functional.lp_pool2d(input, norm_type, kernel_size if len(kernel_size) > 1 else kernel_size[0], "
        "stride, ceil_mode)");
SF_OP(lp_pool3d, "input, norm_type, kernel_size, stride=None, ceil_mode=False")
    .doc("The norm_type-norm of windows of the last 3 dimensions.")
    .like(
        "torch.nn.functional.lp_pool3d(input, norm_type, kernel_size if len(kernel_size) > 1 else kernel_size[0], "
        "stride, ceil_mode)");

}  // namespace sf
