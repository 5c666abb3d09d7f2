#include "scaffolding/ops/dropout/dropout.h"

#include <cmath>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/cpu/strided.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/dropout/kernel.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<ApplyMask> apply_mask_kernel{"apply_mask"};

namespace {

// Linear in x, so that its gradient is itself.
Tensor apply_mask(const char* op, const Tensor& x, const Tensor& mask, double scale) {
  Tensor y = empty_like(x), wide;
  {
    autograd::NoGrad off;
    wide = mask.expand(x.shape());
  }
  ApplyMask a{y, x, wide, scale};
  auto kernel = apply_mask_kernel.find(x.device(), a);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel on ", x.device());
  kernel(a);
  return autograd::record(op, y, {x}, [op, kept = autograd::save(mask), scale](const Tensor& dy) -> Tensors {
    return {apply_mask(op, dy, kept.get(), scale)};
  });
}

Tensor drop(const char* op, const Tensor& input, double p, bool training, const Generator& generator,
            int64_t mask_dims) {
  check_defined(op, "input", input);
  check_floating(op, "input", input);
  SF_CHECK(p >= 0 && p <= 1, op, ": p must be between 0 and 1, got ", p);
  if (p == 0 || !training || input.numel() == 0) return input;
  if (p == 1) return input * 0.0;
  Tensor mask;
  if (mask_dims < 0) {
    mask = empty_like(input, kBool);
  } else {
    Shape size = input.shape();
    for (int64_t i = mask_dims; i < size.size(); ++i) size[i] = 1;
    mask = empty(size, kBool, input.device());
  }
  bernoulli_(mask, wrapped(1 - p), generator);
  return apply_mask(op, input, mask, 1 / (1 - p));
}

Tensor drop_channels(const char* op, const Tensor& input, double p, bool training, const Generator& generator,
                     int64_t unbatched_rank) {
  check_defined(op, "input", input);
  SF_CHECK(input.ndim() >= 2, op, ": input must have at least 2 dimensions, got ", input.shape());
  return drop(op, input, p, training, generator, input.ndim() == unbatched_rank ? 1 : 2);
}

}  // namespace

Tensor dropout(const Tensor& input, double p, bool training, const Generator& generator) {
  return drop("dropout", input, p, training, generator, -1);
}
Tensor feature_dropout(const Tensor& input, double p, bool training, const Generator& generator) {
  return drop_channels("feature_dropout", input, p, training, generator, -1);
}
Tensor dropout1d(const Tensor& input, double p, bool training, const Generator& generator) {
  SF_CHECK(!input || input.ndim() == 2 || input.ndim() == 3, "dropout1d: input must be [C, L] or [N, C, L], got ",
           input.shape());
  return drop_channels("dropout1d", input, p, training, generator, 2);
}
// [N, C, L] counts as batched, as in torch
Tensor dropout2d(const Tensor& input, double p, bool training, const Generator& generator) {
  SF_CHECK(!input || input.ndim() == 3 || input.ndim() == 4, "dropout2d: input must be [N, C, H, W] or [N, C, L], got ",
           input.shape());
  return drop_channels("dropout2d", input, p, training, generator, -1);
}
Tensor dropout3d(const Tensor& input, double p, bool training, const Generator& generator) {
  SF_CHECK(!input || input.ndim() == 4 || input.ndim() == 5,
           "dropout3d: input must be [C, D, H, W] or [N, C, D, H, W], got ", input.shape());
  return drop_channels("dropout3d", input, p, training, generator, 4);
}

namespace {
// Of blocks of input with one draw each; mask_dims as above.
Tensor alpha_drop(const char* op, const Tensor& input, double p, bool training, const Generator& generator,
                  int64_t mask_dims) {
  SF_CHECK(p >= 0 && p <= 1, op, ": p must be between 0 and 1, got ", p);
  if (p == 0 || !training || input.numel() == 0) return input;
  if (p == 1) return input * 0.0;
  constexpr double alpha = 1.7580993408473766;  // selu's limit towards -inf, negated
  double a = 1 / std::sqrt((alpha * alpha * p + 1) * (1 - p));
  Shape size = input.shape();
  for (int64_t i = std::max<int64_t>(mask_dims, 0); i < size.size(); ++i) size[i] = 1;
  Tensor mask = mask_dims < 0 ? empty_like(input) : empty(size, input.dtype(), input.device());
  Tensor kept = bernoulli_(mask, wrapped(1 - p), generator);
  return input * (kept * a) + ((kept - 1) * (alpha * a) + alpha * a * p);
}
}  // namespace

Tensor alpha_dropout(const Tensor& input, double p, bool training, const Generator& generator) {
  check_defined("alpha_dropout", "input", input);
  check_floating("alpha_dropout", "input", input);
  return alpha_drop("alpha_dropout", input, p, training, generator, -1);
}
Tensor feature_alpha_dropout(const Tensor& input, double p, bool training, const Generator& generator) {
  const char* op = "feature_alpha_dropout";
  check_defined(op, "input", input);
  check_floating(op, "input", input);
  SF_CHECK(input.ndim() >= 2, op, ": input must have at least 2 dimensions, got ", input.shape());
  return alpha_drop(op, input, p, training, generator, 2);
}

SF_OP(dropout, "input, p=0.5, training=True, generator=None")
    .doc("Zeroes elements with probability p in training, and scales the others by 1 / (1 - p).")
    .random()
    .kernels(apply_mask_kernel);
SF_OP(feature_dropout, "input, p=0.5, training=True, generator=None")
    .doc("dropout of whole channels of input[N, C, ...].")
    .random()
    .kernels(apply_mask_kernel);
SF_OP(dropout1d, "input, p=0.5, training=True, generator=None")
    .doc("dropout of whole channels of input[N, C, L] or [C, L].")
    .random()
    .kernels(apply_mask_kernel);
SF_OP(dropout2d, "input, p=0.5, training=True, generator=None")
    .doc("dropout of whole channels of input[N, C, H, W].")
    .random()
    .kernels(apply_mask_kernel);
SF_OP(dropout3d, "input, p=0.5, training=True, generator=None")
    .doc("dropout of whole channels of input[N, C, D, H, W] or [C, D, H, W].")
    .random()
    .kernels(apply_mask_kernel);

SF_OP(alpha_dropout, "input, p=0.5, training=False, generator=None")
    .doc("dropout for selu networks: dropped elements become selu's lowest value; mean and variance stay.")
    .random();
SF_OP(feature_alpha_dropout, "input, p=0.5, training=False, generator=None")
    .doc("alpha_dropout of whole channels of input[N, C, ...].")
    .random();

namespace {

template <class T, class A> void rows(const ApplyMask& a) {
  cpu::StridedLoop loop{&a.out, &a.in, &a.mask};
  int64_t so = loop.strides[0][0], si = loop.strides[1][0], sm = loop.strides[2][0];
  // torch divides a mask of the tensor's own dtype by 1 - p: the scale is rounded to it.
  A scale = A(a.scale);
  if constexpr (!std::is_arithmetic_v<T>) scale = to_float(from_float<T>(float(a.scale)));
  loop.run(1 << 14, [&](char* const* p, int64_t n) {
    auto one = [&](T v, bool kept) {
      A factor = kept ? scale : A(0);
      if constexpr (std::is_arithmetic_v<T>) return T(v * factor);
      else return from_float<T>(to_float(v) * factor);
    };
    if (so == sizeof(T) && si == sizeof(T) && sm == 1) {
      auto* out = reinterpret_cast<T*>(p[0]);
      auto* in = reinterpret_cast<const T*>(p[1]);
      auto* mask = reinterpret_cast<const uint8_t*>(p[2]);
      for (int64_t i = 0; i < n; ++i) out[i] = one(in[i], mask[i] != 0);
      return;
    }
    for (int64_t i = 0; i < n; ++i)
      *reinterpret_cast<T*>(p[0] + i * so) =
          one(*reinterpret_cast<const T*>(p[1] + i * si), *reinterpret_cast<const uint8_t*>(p[2] + i * sm) != 0);
  });
}

void apply_mask_cpu(const ApplyMask& a) {
  switch (a.in.dtype) {
    case kFloat64: return rows<double, double>(a);
    case kFloat16: return rows<Half, float>(a);
    case kBFloat16: return rows<BFloat16, float>(a);
    default: return rows<float, float>(a);
  }
}
SF_KERNEL(apply_mask_kernel, DeviceType::CPU, "native", 0, apply_mask_cpu, nullptr)

}  // namespace
}  // namespace sf
