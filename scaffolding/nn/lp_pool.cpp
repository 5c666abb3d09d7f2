#include "scaffolding/nn/lp_pool.h"

#include "scaffolding/nn/format.h"
#include "scaffolding/ops/pool/pool.h"

namespace sf::nn {

LPPoolNd::LPPoolNd(const char* name, int64_t n, Number norm, const Ints& kernel, const std::optional<Ints>& step,
                   bool ceil)
    : dims(n), norm_type(norm), kernel_size(kernel), stride(step), ceil_mode(ceil) {
  SF_CHECK(double(norm) != 0, name, ": norm_type must not be 0");
  kernel_size.spread(name, "kernel_size", n, 1);
  if (stride) stride->spread(name, "stride", n, 1);
}

Tensor LPPoolNd::forward(const Tensor& input) const {
  auto* pool = dims == 1 ? lp_pool1d : dims == 2 ? lp_pool2d : lp_pool3d;
  return pool(input, norm_type, kernel_size.values, stride ? stride->values : Shape(), ceil_mode);
}

std::string LPPoolNd::extra_repr() const {
  return "norm_type=" + text(norm_type) + ", kernel_size=" + text(kernel_size) + ", stride=" + text(stride) +
         ", ceil_mode=" + text(ceil_mode);
}

template <class T>
static std::unique_ptr<T> make(Number norm_type, Ints kernel_size, std::optional<Ints> stride, bool ceil_mode) {
  return std::make_unique<T>(norm_type, kernel_size, stride, ceil_mode);
}
static LayerEntry& fields(LayerEntry& e) {
  return e.forward<&LPPoolNd::forward>("input")
      .field<&LPPoolNd::norm_type>("norm_type")
      .field<&LPPoolNd::kernel_size>("kernel_size")
      .field<&LPPoolNd::stride>("stride")
      .field<&LPPoolNd::ceil_mode>("ceil_mode");
}
static constexpr const char* kParameters = "norm_type, kernel_size, stride=None, ceil_mode=False";
SF_LAYER(LPPool1d, kParameters, &make<LPPool1d>).doc("The norm_type-norm of windows of input[N, C, L].").with(fields);
SF_LAYER(LPPool2d, kParameters, &make<LPPool2d>)
    .doc("The norm_type-norm of windows of input[N, C, H, W].")
    .with(fields);
SF_LAYER(LPPool3d, kParameters, &make<LPPool3d>)
    .doc("The norm_type-norm of windows of input[N, C, D, H, W].")
    .with(fields);

}  // namespace sf::nn
