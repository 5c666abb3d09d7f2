// One copy between two six-dimensional views of the same elements.
#include "scaffolding/ops/pixel_shuffle/pixel_shuffle.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/copy/kernel.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

namespace {

struct Image {
  int64_t n, c, h, w;
};
Image image_of(const char* op, const Tensor& x, const char* factor_name, int64_t r) {
  check_defined(op, "input", x);
  SF_CHECK(x.ndim() >= 3, op, ": input must be [..., C, H, W], got ", x.shape());
  SF_CHECK(r > 0 && r < (int64_t(1) << 31), op, ": ", factor_name, " must be positive, got ", r);
  int64_t n = 1;
  for (int64_t i = 0; i < x.ndim() - 3; ++i) n *= x.shape()[i];
  return {n, x.size(-3), x.size(-2), x.size(-1)};
}

bool is_channels_last(const Tensor& x) {
  return x.ndim() == 4 && !x.is_contiguous() && x.is_contiguous(MemoryFormat::ChannelsLast);
}

Tensor result(const Tensor& x, int64_t c, int64_t h, int64_t w) {
  Shape size = x.shape();
  size[x.ndim() - 3] = c;
  size[x.ndim() - 2] = h;
  size[x.ndim() - 1] = w;
  return is_channels_last(x) ? empty_strided(size, channels_last_strides(size), x.dtype(), x.device())
                             : empty(size, x.dtype(), x.device());
}

}  // namespace

Tensor pixel_shuffle(const Tensor& input, int64_t upscale_factor) {
  int64_t r = upscale_factor;
  auto [n, c, h, w] = image_of("pixel_shuffle", input, "upscale_factor", r);
  SF_CHECK(c % r == 0 && c / r % r == 0,
           "pixel_shuffle: the number of channels must be a multiple of upscale_factor squared, got ", c,
           " channels and factor ", r);
  SF_CHECK(h <= INT64_MAX / r && w <= INT64_MAX / r, "pixel_shuffle: the result is too large for ", input.shape(),
           " and factor ", r);
  c = c / r / r;
  Tensor y = result(input, c, h * r, w * r);
  if (y.numel() > 0) {
    autograd::NoGrad off;
    Tensor x = is_channels_last(input) ? input : contiguous(input);
    copy_bytes(y.view({n, c, h, r, w, r}), x.view({n, c, r, r, h, w}).permute({0, 1, 4, 2, 5, 3}));
  }
  return autograd::record("pixel_shuffle", y, {input},
                          [r](const Tensor& dy) -> Tensors { return {pixel_unshuffle(dy, r)}; });
}

Tensor pixel_unshuffle(const Tensor& input, int64_t downscale_factor) {
  int64_t r = downscale_factor;
  auto [n, c, h, w] = image_of("pixel_unshuffle", input, "downscale_factor", r);
  SF_CHECK(h % r == 0 && w % r == 0, "pixel_unshuffle: height and width must be multiples of downscale_factor, got ",
           input.shape(), " and factor ", r);
  SF_CHECK(c <= INT64_MAX / r / r, "pixel_unshuffle: the result is too large for ", input.shape(), " and factor ", r);
  h /= r;
  w /= r;
  Tensor y = result(input, c * r * r, h, w);
  if (y.numel() > 0) {
    autograd::NoGrad off;
    Tensor x = is_channels_last(input) ? input : contiguous(input);
    copy_bytes(y.view({n, c, r, r, h, w}), x.view({n, c, h, r, w, r}).permute({0, 1, 3, 5, 2, 4}));
  }
  return autograd::record("pixel_unshuffle", y, {input},
                          [r](const Tensor& dy) -> Tensors { return {pixel_shuffle(dy, r)}; });
}

Tensor channel_shuffle(const Tensor& input, int64_t groups) {
  check_defined("channel_shuffle", "input", input);
  SF_CHECK(input.ndim() >= 3, "channel_shuffle: input must be [N, C, ...] with 3 or more dimensions, got ",
           input.shape());
  SF_CHECK(groups > 0 && input.size(1) % groups == 0,
           "channel_shuffle: the number of channels must be a multiple of groups, got ", input.shape(),
           " and groups=", groups);
  return reshape(transpose(unflatten(input, 1, {groups, input.size(1) / groups}), 1, 2), input.shape());
}

SF_OP(pixel_shuffle, "input, upscale_factor")
    .doc("Channels become blocks of upscale_factor x upscale_factor pixels.")
    .like("torch.nn.functional.pixel_shuffle")
    .kernels(copy_kernel);
SF_OP(pixel_unshuffle, "input, downscale_factor")
    .doc("Blocks of pixels become channels: the inverse of pixel_shuffle.")
    .like("torch.nn.functional.pixel_unshuffle")
    .kernels(copy_kernel);
SF_OP(channel_shuffle, "input, groups")
    .doc("Channels of input[N, C, ...] as groups x C/groups, transposed.")
    .like("torch.nn.functional.channel_shuffle(input, groups)")
    .kernels(copy_kernel);

}  // namespace sf
