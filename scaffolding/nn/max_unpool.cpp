#include "scaffolding/nn/max_unpool.h"

#include "scaffolding/nn/format.h"
#include "scaffolding/ops/pool/pool.h"

namespace sf::nn {

MaxUnpoolNd::MaxUnpoolNd(const char* name, int64_t n, const Ints& kernel, const std::optional<Ints>& step,
                         const Ints& pad)
    : dims(n),
      kernel_size(kernel.spread(name, "kernel_size", n, 1)),
      stride(step.value_or(kernel).spread(name, "stride", n, 1)),
      padding(pad.spread(name, "padding", n, 0)) {}

Tensor MaxUnpoolNd::forward(const Tensor& input, const Tensor& indices, const std::optional<Shape>& output_size) const {
  auto* unpool = dims == 1 ? max_unpool1d : dims == 2 ? max_unpool2d : max_unpool3d;
  return unpool(input, indices, kernel_size.values, stride.values, padding.values, output_size.value_or(Shape()));
}

std::string MaxUnpoolNd::extra_repr() const {
  return "kernel_size=" + text(kernel_size) + ", stride=" + text(stride) + ", padding=" + text(padding);
}

template <class T> static std::unique_ptr<T> make(Ints kernel_size, std::optional<Ints> stride, Ints padding) {
  return std::make_unique<T>(kernel_size, stride, padding);
}
static LayerEntry& fields(LayerEntry& e) {
  return e.forward<&MaxUnpoolNd::forward>("input, indices, output_size=None")
      .field<&MaxUnpoolNd::kernel_size>("kernel_size")
      .field<&MaxUnpoolNd::stride>("stride")
      .field<&MaxUnpoolNd::padding>("padding");
}
static constexpr const char* kParameters = "kernel_size, stride=None, padding=0";
SF_LAYER(MaxUnpool1d, kParameters, &make<MaxUnpool1d>)
    .doc("input[N, C, L] put where MaxPool1d found it, zeros elsewhere.")
    .with(fields);
SF_LAYER(MaxUnpool2d, kParameters, &make<MaxUnpool2d>)
    .doc("input[N, C, H, W] put where MaxPool2d found it, zeros elsewhere.")
    .with(fields);
SF_LAYER(MaxUnpool3d, kParameters, &make<MaxUnpool3d>)
    .doc("input[N, C, D, H, W] put where MaxPool3d found it, zeros elsewhere.")
    .with(fields);

}  // namespace sf::nn
