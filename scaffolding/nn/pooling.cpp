#include "scaffolding/nn/pooling.h"

#include "scaffolding/nn/format.h"
#include "scaffolding/ops/pool/pool.h"

namespace sf::nn {

AvgPoolNd::AvgPoolNd(const char* name, int64_t n, const Ints& kernel, const std::optional<Ints>& step, const Ints& pad,
                     bool ceil, bool include_pad, std::optional<int64_t> divisor)
    : dims(n),
      kernel_size(kernel),
      stride(step.value_or(kernel)),
      padding(pad),
      ceil_mode(ceil),
      count_include_pad(include_pad),
      divisor_override(divisor) {
  kernel_size.spread(name, "kernel_size", n, 1);
  stride.spread(name, "stride", n, 1);
  padding.spread(name, "padding", n, 0);
  SF_CHECK(!divisor || *divisor != 0, name, ": divisor_override must not be zero");
}

AvgPool1d::AvgPool1d(const Ints& kernel, const std::optional<Ints>& step, const Ints& pad, bool ceil, bool include_pad)
    : AvgPoolNd("AvgPool1d", 1, kernel, step, pad, ceil, include_pad, {}) {
  for (Ints* n : {&kernel_size, &stride, &padding}) n->single = false;  // torch keeps these as tuples
}

Tensor AvgPoolNd::forward(const Tensor& input) const {
  const Shape &k = kernel_size.values, &s = stride.values, &p = padding.values;
  if (dims == 1) return avg_pool1d(input, k, s, p, ceil_mode, count_include_pad);
  return (dims == 2 ? avg_pool2d : avg_pool3d)(input, k, s, p, ceil_mode, count_include_pad, divisor_override);
}

std::string AvgPoolNd::extra_repr() const {
  return "kernel_size=" + text(kernel_size) + ", stride=" + text(stride) + ", padding=" + text(padding);
}

MaxPoolNd::MaxPoolNd(const char* name, int64_t n, const Ints& kernel, const std::optional<Ints>& step, const Ints& pad,
                     const Ints& dil, bool indices, bool ceil)
    : dims(n),
      kernel_size(kernel),
      stride(step.value_or(kernel)),
      padding(pad),
      dilation(dil),
      return_indices(indices),
      ceil_mode(ceil) {
  kernel_size.spread(name, "kernel_size", n, 1);
  stride.spread(name, "stride", n, 1);
  padding.spread(name, "padding", n, 0);
  dilation.spread(name, "dilation", n, 1);
}

Tensor MaxPoolNd::forward(const Tensor& input) const {
  auto* pool = dims == 1 ? max_pool1d : dims == 2 ? max_pool2d : max_pool3d;
  return pool(input, kernel_size.values, stride.values, padding.values, dilation.values, ceil_mode);
}
std::tuple<Tensor, Tensor> MaxPoolNd::forward_with_indices(const Tensor& input) const {
  auto* pool = dims == 1 ? max_pool1d_with_indices : dims == 2 ? max_pool2d_with_indices : max_pool3d_with_indices;
  return pool(input, kernel_size.values, stride.values, padding.values, dilation.values, ceil_mode);
}
Value MaxPoolNd::forward_value(const Tensor& input) const {
  if (!return_indices) return forward(input);
  return sf::detail::to_tensors(forward_with_indices(input));
}

std::string MaxPoolNd::extra_repr() const {
  return "kernel_size=" + text(kernel_size) + ", stride=" + text(stride) + ", padding=" + text(padding) +
         ", dilation=" + text(dilation) + ", ceil_mode=" + text(ceil_mode);
}

AdaptivePoolNd::AdaptivePoolNd(const char* name, int64_t n, const Ints& size, bool indices)
    : dims(n), output_size(size), return_indices(indices) {
  output_size.spread(name, "output_size", n, -1);
}

std::string AdaptivePoolNd::extra_repr() const {
  std::string s = text(output_size);
  for (size_t at; (at = s.find("-1")) != s.npos;) s.replace(at, 2, "None");
  return "output_size=" + s;
}

Tensor AdaptiveAvgPoolNd::forward(const Tensor& input) const {
  return (dims == 1   ? adaptive_avg_pool1d
          : dims == 2 ? adaptive_avg_pool2d
                      : adaptive_avg_pool3d)(input, output_size.values);
}
Tensor AdaptiveMaxPoolNd::forward(const Tensor& input) const {
  return (dims == 1   ? adaptive_max_pool1d
          : dims == 2 ? adaptive_max_pool2d
                      : adaptive_max_pool3d)(input, output_size.values);
}
std::tuple<Tensor, Tensor> AdaptiveMaxPoolNd::forward_with_indices(const Tensor& input) const {
  auto* pool = dims == 1   ? adaptive_max_pool1d_with_indices
               : dims == 2 ? adaptive_max_pool2d_with_indices
                           : adaptive_max_pool3d_with_indices;
  return pool(input, output_size.values);
}
Value AdaptiveMaxPoolNd::forward_value(const Tensor& input) const {
  if (!return_indices) return forward(input);
  return sf::detail::to_tensors(forward_with_indices(input));
}

// ---- registration

template <class T>
static std::unique_ptr<T> make_avg(Ints kernel_size, std::optional<Ints> stride, Ints padding, bool ceil_mode,
                                   bool count_include_pad, std::optional<int64_t> divisor_override) {
  return std::make_unique<T>(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
}
template <class T>
static std::unique_ptr<T> make_max(Ints kernel_size, std::optional<Ints> stride, Ints padding, Ints dilation,
                                   bool return_indices, bool ceil_mode) {
  return std::make_unique<T>(kernel_size, stride, padding, dilation, return_indices, ceil_mode);
}
template <class T> static std::unique_ptr<T> make_adaptive(Ints output_size) {
  return std::make_unique<T>(output_size);
}
template <class T> static std::unique_ptr<T> make_adaptive_max(Ints output_size, bool return_indices) {
  return std::make_unique<T>(output_size, return_indices);
}

static LayerEntry& avg_fields(LayerEntry& e) {
  return e.forward<&AvgPoolNd::forward>("input")
      .field<&AvgPoolNd::kernel_size>("kernel_size")
      .field<&AvgPoolNd::stride>("stride")
      .field<&AvgPoolNd::padding>("padding")
      .field<&AvgPoolNd::ceil_mode>("ceil_mode")
      .field<&AvgPoolNd::count_include_pad>("count_include_pad")
      .field<&AvgPoolNd::divisor_override>("divisor_override");
}
static LayerEntry& max_fields(LayerEntry& e) {
  return e.forward<&MaxPoolNd::forward_value>("input")
      .field<&MaxPoolNd::kernel_size>("kernel_size")
      .field<&MaxPoolNd::stride>("stride")
      .field<&MaxPoolNd::padding>("padding")
      .field<&MaxPoolNd::dilation>("dilation")
      .field<&MaxPoolNd::return_indices>("return_indices")
      .field<&MaxPoolNd::ceil_mode>("ceil_mode");
}
static LayerEntry& adaptive_avg_fields(LayerEntry& e) {
  return e.forward<&AdaptiveAvgPoolNd::forward>("input").field<&AdaptivePoolNd::output_size>("output_size");
}
static LayerEntry& adaptive_max_fields(LayerEntry& e) {
  return e.forward<&AdaptiveMaxPoolNd::forward_value>("input")
      .field<&AdaptivePoolNd::output_size>("output_size")
      .field<&AdaptivePoolNd::return_indices>("return_indices");
}

static constexpr const char* kAvg =
    "kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None";
static constexpr const char* kMax =
    "kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False";
SF_LAYER(AvgPool1d, "kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True",
         [](Ints kernel_size, std::optional<Ints> stride, Ints padding, bool ceil_mode, bool count_include_pad) {
           return std::make_unique<AvgPool1d>(kernel_size, stride, padding, ceil_mode, count_include_pad);
         })
    .doc("Averages over windows of the last dimension of input[N, C, L].")
    .with(avg_fields);
SF_LAYER(AvgPool2d, kAvg, &make_avg<AvgPool2d>).doc("Averages over windows of input[N, C, H, W].").with(avg_fields);
SF_LAYER(AvgPool3d, kAvg, &make_avg<AvgPool3d>).doc("Averages over windows of input[N, C, D, H, W].").with(avg_fields);
SF_LAYER(MaxPool1d, kMax, &make_max<MaxPool1d>).doc("Maxima of windows of input[N, C, L].").with(max_fields);
SF_LAYER(MaxPool2d, kMax, &make_max<MaxPool2d>).doc("Maxima of windows of input[N, C, H, W].").with(max_fields);
SF_LAYER(MaxPool3d, kMax, &make_max<MaxPool3d>).doc("Maxima of windows of input[N, C, D, H, W].").with(max_fields);
SF_LAYER(AdaptiveAvgPool1d, "output_size", &make_adaptive<AdaptiveAvgPool1d>)
    .doc("Averages of output_size parts of the last dimension.")
    .with(adaptive_avg_fields);
SF_LAYER(AdaptiveAvgPool2d, "output_size", &make_adaptive<AdaptiveAvgPool2d>)
    .doc("Averages of output_size parts of the last 2 dimensions.")
    .with(adaptive_avg_fields);
SF_LAYER(AdaptiveAvgPool3d, "output_size", &make_adaptive<AdaptiveAvgPool3d>)
    .doc("Averages of output_size parts of the last 3 dimensions.")
    .with(adaptive_avg_fields);
SF_LAYER(AdaptiveMaxPool1d, "output_size, return_indices=False", &make_adaptive_max<AdaptiveMaxPool1d>)
    .doc("Maxima of output_size parts of the last dimension.")
    .with(adaptive_max_fields);
SF_LAYER(AdaptiveMaxPool2d, "output_size, return_indices=False", &make_adaptive_max<AdaptiveMaxPool2d>)
    .doc("Maxima of output_size parts of the last 2 dimensions.")
    .with(adaptive_max_fields);
SF_LAYER(AdaptiveMaxPool3d, "output_size, return_indices=False", &make_adaptive_max<AdaptiveMaxPool3d>)
    .doc("Maxima of output_size parts of the last 3 dimensions.")
    .with(adaptive_max_fields);

}  // namespace sf::nn
