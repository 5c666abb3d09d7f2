#include "scaffolding/ops/fused/filtered_snake/snake.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/meta_memory.h"
#include "scaffolding/core/error.h"
#include "scaffolding/ops/conv/conv.h"
#include "scaffolding/ops/conv_transpose/conv_transpose.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/fused/filtered_snake/kernel.h"
#include "scaffolding/ops/pad/pad.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<FilteredSnake> filtered_snake_forward{"filtered_snake"};

namespace {

void check_filter(const char* op, const Tensor& input, const Tensor& filter, int64_t ratio) {
  check_defined(op, "input", input);
  check_defined(op, "filter", filter);
  check_floating(op, "input", input);
  SF_CHECK(input.ndim() == 3 && input.numel() > 0, op, ": input must be [N, C, L], got ", input.shape());
  SF_CHECK(filter.ndim() == 1, op, ": filter must be [K], got ", filter.shape());
  SF_CHECK(ratio >= 1 && filter.size(0) >= ratio, op, ": ratio must be 1 to the filter's ", filter.size(0), ", got ",
           ratio);
}

// f of a signal [N * C, 1, L] of its own for each channel.
template <class F> Tensor each_channel(const Tensor& input, const F& f) {
  const Tensor y = f(input.reshape({-1, 1, input.size(2)}));
  return y.reshape({input.size(0), input.size(1), y.size(2)});
}
Tensor as_weight(const Tensor& filter, const Tensor& input) {
  return to_dtype(filter, input.dtype()).reshape({1, 1, -1});
}

}  // namespace

Tensor upsampled_by(const Tensor& input, const Tensor& filter, int64_t ratio) {
  check_filter("upsampled_by", input, filter, ratio);
  const int64_t taps = filter.size(0), around = taps / ratio - 1, before = around * ratio + (taps - ratio) / 2;
  return each_channel(input, [&](const Tensor& x) {
    const Tensor y =
        conv_transpose1d(pad(x, {around, around}, "replicate"), as_weight(filter, x) * double(ratio), {}, {ratio});
    return y.narrow(2, before, ratio * x.size(2));
  });
}

Tensor downsampled_by(const Tensor& input, const Tensor& filter, int64_t ratio) {
  check_filter("downsampled_by", input, filter, ratio);
  const int64_t taps = filter.size(0);
  return each_channel(input, [&](const Tensor& x) {
    return conv1d(pad(x, {taps / 2 + taps % 2 - 1, taps / 2}, "replicate"), as_weight(filter, x), {}, {ratio});
  });
}

Tensor snake(const Tensor& input, const Tensor& frequency, const Tensor& amplitude) {
  auto of_channels = [&](const char* name, const Tensor& t) {
    check_defined("snake", name, t);
    check_shape("snake", name, t, {input.size(1)});
    return t.unsqueeze(1);
  };
  check_defined("snake", "input", input);
  SF_CHECK(input.ndim() == 3, "snake: input must be [N, C, L], got ", input.shape());
  return input + of_channels("amplitude", amplitude) * square(sin(input * of_channels("frequency", frequency)));
}

Tensor filtered_snake(const Tensor& input, const Tensor& frequency, const Tensor& amplitude, const Tensor& up,
                      const Tensor& down, int64_t ratio) {
  const char* op = "filtered_snake";
  auto composed = [&] {
    return downsampled_by(snake(upsampled_by(input, up, ratio), frequency, amplitude), down, ratio);
  };
  check_filter(op, input, up, ratio);
  check_filter(op, input, down, ratio);
  if (ratio != 2 || up.size(0) != down.size(0) || autocast::active() || input.dtype() == kFloat64 ||
      autograd::any_requires_grad({input, frequency, amplitude, up, down}))
    return composed();
  check_shape(op, "frequency", frequency, {input.size(1)});
  check_shape(op, "amplitude", amplitude, {input.size(1)});
  auto floats = [](const Tensor& t) { return contiguous(to_dtype(t, kFloat32)); };
  const Tensor x = to_channels_last(input), f = floats(frequency), a = floats(amplitude), u = floats(up),
               d = floats(down);
  const Tensor y = empty_strided(x.shape(), channels_last_strides(x.shape()), x.dtype(), x.device());
  const FilteredSnake args{x, f, a, u, d, y};
  auto kernel = filtered_snake_forward.find(x.device(), args);
  if (!kernel || !filtered_snake_forward.find(MetaMemory::kernels_of(x.device()), args)) return composed();
  kernel(args);
  return y;
}

}  // namespace sf
