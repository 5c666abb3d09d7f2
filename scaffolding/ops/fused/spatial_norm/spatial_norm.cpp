#include "scaffolding/ops/fused/spatial_norm/spatial_norm.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/meta_memory.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/fused/spatial_norm/kernel.h"
#include "scaffolding/ops/group_norm/group_norm.h"
#include "scaffolding/ops/group_norm/kernel.h"
#include "scaffolding/ops/interpolate/interpolate.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<SpatialNormForward> spatial_norm_forward{"spatial_norm"};

namespace {

// The first frame of an odd number stands for itself: it has no neighbour in the latents.
bool first_apart(int64_t frames) { return frames > 1 && frames % 2 == 1; }

bool is_repeated(int64_t from, int64_t to) { return from > 0 && to % from == 0; }

bool is_channels_last(const Tensor& t) { return t.is_contiguous(MemoryFormat::ChannelsLast); }

// The whole in one, or an undefined tensor.
Tensor in_one(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, const Tensor& scale,
              const Tensor& shift, double eps) {
  const bool apart = first_apart(x.size(2));
  if (x.numel() == 0 || !is_channels_last(x) || !is_channels_last(scale) || !is_channels_last(shift) ||
      !is_repeated(scale.size(2) - apart, x.size(2) - apart) || !is_repeated(scale.size(3), x.size(3)) ||
      !is_repeated(scale.size(4), x.size(4)) || autograd::any_requires_grad({x, weight, bias, scale, shift}))
    return {};
  const Tensor w = contiguous(to_dtype(weight, kFloat32)), b = contiguous(to_dtype(bias, kFloat32)),
               mean = empty({x.size(0), groups}, kFloat32, x.device()), rstd = empty_like(mean);
  GroupNormForward statistics{x, w, b, groups, eps, false, {}, mean, rstd};
  SpatialNormForward norm{x, w, b, mean, rstd, scale, shift, {}, groups, apart};
  norm.y = norm.x;  // for `find`
  const Device counted = MetaMemory::kernels_of(x.device());
  if (!group_norm_forward.find(counted, statistics) || !spatial_norm_forward.find(counted, norm)) return {};
  Tensor y = empty_like(x);
  norm.y = y;
  group_norm_forward.find(x.device(), statistics)(statistics);
  spatial_norm_forward.find(x.device(), norm)(norm);
  return y;
}

}  // namespace

Tensor repeat_latents(const Tensor& t, int64_t frames, int64_t height, int64_t width) {
  if (t.size(2) == frames && t.size(3) == height && t.size(4) == width) return t;
  auto part = [&](int64_t at, int64_t n, int64_t wanted) {
    return interpolate(t.narrow(2, at, n), Shape{wanted, height, width});
  };
  if (!first_apart(frames)) return part(0, t.size(2), frames);
  auto rows = [](const Tensor& video) { return video.permute({0, 2, 3, 4, 1}); };
  return cat({rows(part(0, 1, 1)), rows(part(1, t.size(2) - 1, frames - 1))}, 1).permute({0, 4, 1, 2, 3});
}

Tensor spatial_norm_silu(const Tensor& input, int64_t num_groups, const Tensor& norm_weight, const Tensor& norm_bias,
                         const Tensor& scale, const Tensor& shift, double eps) {
  const char* op = "spatial_norm_silu";
  check_defined(op, "input", input);
  check_floating(op, "input", input);
  SF_CHECK(input.ndim() == 5, op, ": input must be [N, C, T, H, W], got ", input.shape());
  SF_CHECK(num_groups > 0 && input.size(1) % num_groups == 0, op,
           ": num_groups must divide channels, got num_groups=", num_groups, " for input ", input.shape());
  for (auto [name, t] : {std::pair{"norm_weight", &norm_weight}, {"norm_bias", &norm_bias}}) {
    check_defined(op, name, *t);
    check_shape(op, name, *t, {input.size(1)});
    check_floating(op, name, *t);
    check_same_device(op, input, *t);
  }
  for (auto [name, t] : {std::pair{"scale", &scale}, {"shift", &shift}}) {
    check_defined(op, name, *t);
    check_same_device(op, input, *t);
    SF_CHECK_AS(TypeError, t->dtype() == input.dtype() || autocast::active(), op, ": ", name,
                " must have the input's dtype ", input.dtype(), ", got ", t->dtype());
    SF_CHECK(t->ndim() == 5 && t->numel() > 0 && t->size(0) == input.size(0) && t->size(1) == input.size(1), op, ": ",
             name, " must be [", input.size(0), ", ", input.size(1), ", t, h, w], got ", t->shape());
    SF_CHECK(!first_apart(input.size(2)) || t->size(2) > 1, op, ": ", name, " must have two frames or more for ",
             input.size(2), " of the input, got ", t->shape());
  }
  SF_CHECK(scale.shape() == shift.shape(), op, ": scale and shift must have one shape, got ", scale.shape(), " and ",
           shift.shape());
  if (!autocast::active() && input.dtype() != kFloat64)
    if (Tensor y = in_one(input, num_groups, norm_weight, norm_bias, scale, shift, eps)) return y;
  auto repeated = [&](const Tensor& t) { return repeat_latents(t, input.size(2), input.size(3), input.size(4)); };
  Tensor y = group_norm(input, num_groups, norm_weight, norm_bias, eps);  // one large tensor beside it at a time
  y = y * repeated(scale);
  y = y + repeated(shift);
  return silu(y);
}

SF_OP(spatial_norm_silu, "input, num_groups, norm_weight, norm_bias, scale, shift, eps=1e-6")
    .doc(
        "silu(group_norm(input[N, C, T, H, W]) * scale + shift) with scale and shift[N, C, t, h, w] repeated to the "
        "input's size; of an odd number of frames above one, the first has numbers of its own.")
    .like(
        "(lambda spread: F.silu(F.group_norm(input, num_groups, norm_weight, norm_bias, eps) * spread(scale) + "
        "spread(shift)))(lambda z: F.interpolate(z, input.shape[2:]) if input.shape[2] % 2 == 0 or input.shape[2] == 1 "
        "else torch.cat([F.interpolate(z[:, :, :1], (1, *input.shape[3:])), F.interpolate(z[:, :, 1:], (input.shape[2] "
        "- 1, *input.shape[3:]))], 2))")
    .kernels(group_norm_forward, spatial_norm_forward);

}  // namespace sf
