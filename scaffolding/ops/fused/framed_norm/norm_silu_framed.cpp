#include "scaffolding/ops/fused/framed_norm/norm_silu_framed.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/meta_memory.h"
#include "scaffolding/core/error.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/fused/framed_norm/kernel.h"

namespace sf {

constinit KernelTable<FramedNormForward> framed_norm_forward{"framed_norm"};

Tensor rms_norm_silu_framed(const Tensor& input, const Tensor& scale, const Tensor& shift, double eps, int64_t before,
                            int64_t behind, int64_t border) {
  const char* op = "rms_norm_silu_framed";
  SF_CHECK(input.ndim() == 5 && before >= 0 && behind >= 0 && (border == 0 || border == 1), op,
           ": input must be [N, C, T, H, W], got ", input.shape());
  check_shape(op, "scale", scale, {input.size(0), input.size(1)});
  check_shape(op, "shift", shift, {input.size(0), input.size(1)});
  const bool reflects = border == 0 || (input.size(3) > 1 && input.size(4) > 1);
  if (input.numel() == 0 || !reflects || bool(scale) != bool(shift) || autocast::active() ||
      !input.is_contiguous(MemoryFormat::ChannelsLast) || autograd::any_requires_grad({input, scale, shift}))
    return {};
  auto wide = [](const Tensor& t) { return t ? contiguous(to_dtype(t, kFloat32)) : t; };
  const Tensor s = wide(scale), b = wide(shift);
  const Shape sizes{input.size(0), input.size(1), before + input.size(2) + behind, input.size(3) + 2 * border,
                    input.size(4) + 2 * border};
  FramedNormForward f{input, input, s, b, eps, before, behind, border};
  if (!framed_norm_forward.find(MetaMemory::kernels_of(input.device()), f)) return {};
  const Tensor y = empty_strided(sizes, channels_last_strides(sizes), input.dtype(), input.device());
  f.y = y;
  framed_norm_forward.find(input.device(), f)(f);
  return y;
}

}  // namespace sf
