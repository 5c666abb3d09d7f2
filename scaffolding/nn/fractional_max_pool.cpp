#include "scaffolding/nn/fractional_max_pool.h"

#include "scaffolding/ops/pool/pool.h"

namespace sf::nn {

FractionalMaxPoolNd::FractionalMaxPoolNd(const char* name, int64_t n, const Ints& kernel,
                                         const std::optional<Ints>& size, const std::optional<Floats>& ratio,
                                         bool indices, const Tensor& random_samples)
    : dims(n),
      kernel_size(kernel.spread(name, "kernel_size", n, 1)),
      output_ratio(ratio),
      return_indices(indices),
      _random_samples(random_samples) {
  SF_CHECK(size || ratio, name, ": requires specifying either an output size, or a pooling ratio");
  SF_CHECK(!size || !ratio, name, ": only one of output_size and output_ratio may be specified");
  if (size) output_size = size->spread(name, "output_size", n, 1);
  if (!ratio) return;
  SF_CHECK(ratio->size() == 1 || int64_t(ratio->size()) == n, name, ": output_ratio must have one entry or ", n,
           ", got ", ratio->size());
  output_ratio->resize(size_t(n), ratio->front());
  for (double r : *output_ratio) SF_CHECK(r > 0 && r < 1, name, ": output_ratio must be between 0 and 1, got ", r);
}

std::tuple<Tensor, Tensor> FractionalMaxPoolNd::forward_with_indices(const Tensor& input) const {
  auto* pool = dims == 2 ? fractional_max_pool2d_with_indices : fractional_max_pool3d_with_indices;
  return pool(input, kernel_size.values, output_size ? output_size->values : Shape(), output_ratio, _random_samples);
}
Value FractionalMaxPoolNd::forward_value(const Tensor& input) const {
  if (!return_indices) return forward(input);
  return sf::detail::to_tensors(forward_with_indices(input));
}

template <class T>
static std::unique_ptr<T> make(Ints kernel_size, std::optional<Ints> output_size, std::optional<Floats> output_ratio,
                               bool return_indices, Tensor random_samples) {
  return std::make_unique<T>(kernel_size, output_size, output_ratio, return_indices, random_samples);
}
static LayerEntry& fields(LayerEntry& e) {
  return e.forward<&FractionalMaxPoolNd::forward_value>("input")
      .field<&FractionalMaxPoolNd::kernel_size>("kernel_size")
      .field<&FractionalMaxPoolNd::output_size>("output_size")
      .field<&FractionalMaxPoolNd::output_ratio>("output_ratio")
      .field<&FractionalMaxPoolNd::return_indices>("return_indices");
}
static constexpr const char* kParameters =
    "kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None";
SF_LAYER(FractionalMaxPool2d, kParameters, &make<FractionalMaxPool2d>)
    .doc(
        "Maxima of windows of input[N, C, H, W] at drawn distances; the output has output_size entries, or "
        "output_ratio "
        "times the input's.")
    .with(fields);
SF_LAYER(FractionalMaxPool3d, kParameters, &make<FractionalMaxPool3d>)
    .doc(
        "Maxima of windows of input[N, C, D, H, W] at drawn distances; the output has output_size entries, or "
        "output_ratio times the input's.")
    .with(fields);

}  // namespace sf::nn
