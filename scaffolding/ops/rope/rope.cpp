#include "scaffolding/ops/rope/rope.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/layer_norm/row_norm_op.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/rope/kernel.h"

namespace sf {

constinit KernelTable<RopeApply> rope_apply{"rope"};

// A rotation is orthogonal: its gradient is the rotation back. Tables get no gradient: they are positions, not weights.
static Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved, bool inverse) {
  const char* op = "apply_rotary_emb";
  DType table = x.dtype() == kFloat64 ? kFloat64 : kFloat32;
  Tensor xs, c, s;
  {
    autograd::NoGrad off;
    Shape full = x.shape();
    full.back() = cos.size(-1);
    xs = x.stride(-1) == 1 ? x : contiguous(x);
    c = contiguous(cos.to(table)).expand(full);
    s = contiguous(sin.to(table)).expand(full);
  }
  Tensor y = empty(x.shape(), x.dtype(), x.device());
  RopeApply r{xs, c, s, y, interleaved, false, inverse};
  auto kernel = rope_apply.find(x.device(), r);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", x.dtype(), " on ", x.device());
  if (y.numel() > 0) kernel(r);
  return autograd::record(op, y, {x}, [cos, sin, interleaved, inverse](const Tensor& dy) -> Tensors {
    return {rotate(dy, cos, sin, interleaved, !inverse)};
  });
}

Tensor apply_rotary_emb(const Tensor& input, const Tensor& cos, const Tensor& sin, bool interleaved) {
  const char* op = "apply_rotary_emb";
  check_defined(op, "input", input);
  check_floating(op, "input", input);
  for (auto [name, t] : {std::pair{"cos", &cos}, {"sin", &sin}}) {
    check_defined(op, name, *t);
    check_floating(op, name, *t);
    check_same_device(op, input, *t);
    SF_CHECK_AS(RuntimeError, !autograd::any_requires_grad({*t}), op, ": ", name, " has no gradient; detach it");
  }
  SF_CHECK(input.ndim() >= 1 && cos.ndim() >= 1 && cos.ndim() <= input.ndim(), op, ": cos must have between 1 and ",
           input.ndim(), " dimensions, got ", cos.shape());
  check_shape(op, "sin", sin, cos.shape());
  int64_t r = cos.size(-1);
  SF_CHECK(r % 2 == 0 && r <= input.size(-1), op, ": the tables' last size must be even and at most ", input.size(-1),
           ", got ", cos.shape());
  Shape want = input.shape();
  want.back() = r;
  SF_CHECK(broadcast_shapes(op, cos.shape(), want) == want, op, ": cos ", cos.shape(), " does not broadcast to ", want);
  return rotate(input, cos, sin, interleaved, false);
}

SF_OP(apply_rotary_emb, "input, cos, sin, interleaved=True")
    .doc("Rotary position embedding: pairs of elements rotated by position; tables have one entry per element.")
    .like(
        "torch.cat([(lambda x, r: x * cos + r * sin)(input[..., :cos.shape[-1]], torch.stack([-input[..., "
        "1:cos.shape[-1]:2], input[..., 0:cos.shape[-1]:2]], "
        "-1)"
        ".flatten(-2) if interleaved else torch.cat([-input[..., cos.shape[-1] // 2:cos.shape[-1]], input[..., "
        ":cos.shape[-1] // 2]], -1)), "
        "input[..., cos.shape[-1]:]], -1)")
    .kernels(rope_apply);

}  // namespace sf
