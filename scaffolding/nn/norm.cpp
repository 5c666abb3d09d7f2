#include "scaffolding/nn/norm.h"

#include "scaffolding/nn/format.h"
#include "scaffolding/nn/init.h"
#include "scaffolding/ops/batch_norm/batch_norm.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/group_norm/group_norm.h"
#include "scaffolding/ops/layer_norm/layer_norm.h"
#include "scaffolding/ops/rms_norm/rms_norm.h"

namespace sf::nn {

RunningNorm::RunningNorm(const char* name, int64_t n, const BatchNormOptions& o)
    : num_features(n), eps(o.eps), momentum(o.momentum), affine(o.affine), track_running_stats(o.track_running_stats) {
  SF_CHECK(n >= 0, name, ": num_features must not be negative, got ", n);
  const TensorOptions& t = o.tensor;
  if (affine) weight = parameter(empty({n}, t.dtype, t.device));
  if (affine && o.bias) bias = parameter(empty({n}, t.dtype, t.device));
  if (track_running_stats) {
    running_mean = zeros({n}, t.dtype, t.device);
    running_var = ones({n}, t.dtype, t.device);
    num_batches_tracked = zeros({}, kInt64, t.device);
  }
  reset_parameters();
}

void RunningNorm::reset_running_stats() {
  if (!track_running_stats) return;
  running_mean.zero_();
  running_var.fill_(1);
  num_batches_tracked.zero_();
}

void RunningNorm::reset_parameters() {
  reset_running_stats();
  if (weight) init::ones_(weight);
  if (bias) init::zeros_(bias);
}

std::string RunningNorm::extra_repr() const {
  return text(num_features) + ", eps=" + text(eps) + ", momentum=" + text(momentum) + ", affine=" + text(affine) +
         ", bias=" + text(bool(bias)) + ", track_running_stats=" + text(track_running_stats);
}

Tensor BatchNorm::forward(const Tensor& input) const {
  SF_CHECK(input.ndim() >= least_ndim && input.ndim() <= most_ndim, type(), ": expected ", least_ndim, "D",
           least_ndim == most_ndim ? "" : " or 3D", " input (got ", input.ndim(), "D input)");
  double factor = momentum ? double(*momentum) : 0;
  bool statistics = training || !running_mean;
  if (training && track_running_stats && num_batches_tracked) {
    Tensor count = num_batches_tracked;
    count.add_(Scalar(1));
    if (!momentum) factor = 1 / double(count.item_int());
  }
  bool move = !training || track_running_stats;
  const Tensor none, &mean = move ? static_cast<const Tensor&>(running_mean) : none,
                     &var = move ? static_cast<const Tensor&>(running_var) : none;
  return batch_norm(input, mean, var, weight, bias, statistics, factor, eps);
}

Tensor InstanceNorm::forward(const Tensor& input) const {
  bool unbatched = input.ndim() == spatial + 1;
  SF_CHECK(unbatched || input.ndim() == spatial + 2, type(), ": expected ", spatial + 1, "D or ", spatial + 2,
           "D input (got ", input.ndim(), "D input)");
  int64_t channels = input.size(unbatched ? 0 : 1);
  SF_CHECK(!affine || channels == num_features, type(), ": expected input's size at dim=", unbatched ? 0 : 1,
           " to match num_features (", num_features, "), but got: ", channels);
  Tensor x = unbatched ? input.unsqueeze(0) : input;
  Tensor y = instance_norm(x, running_mean, running_var, weight, bias, training || !track_running_stats,
                           momentum ? double(*momentum) : 0, eps);
  return unbatched ? y.squeeze(0) : y;
}

LayerNorm::LayerNorm(const Shape& shape, Number e, bool with_weight, bool with_bias, const TensorOptions& o)
    : normalized_shape(shape), eps(e), elementwise_affine(with_weight) {
  SF_CHECK(!shape.empty(), "LayerNorm: normalized_shape must have at least one size");
  if (with_weight) weight = parameter(empty(shape, o.dtype, o.device));
  if (with_weight && with_bias) bias = parameter(empty(shape, o.dtype, o.device));
  reset_parameters();
}
void LayerNorm::reset_parameters() {
  if (weight) init::ones_(weight);
  if (bias) init::zeros_(bias);
}
Tensor LayerNorm::forward(const Tensor& input) const { return layer_norm(input, normalized_shape, weight, bias, eps); }
std::string LayerNorm::extra_repr() const {
  return text(normalized_shape) + ", eps=" + text(eps) + ", elementwise_affine=" + text(elementwise_affine) +
         ", bias=" + text(bool(bias));
}

RMSNorm::RMSNorm(const Shape& shape, std::optional<Number> e, bool with_weight, const TensorOptions& o)
    : normalized_shape(shape), eps(e), elementwise_affine(with_weight) {
  SF_CHECK(!shape.empty(), "RMSNorm: normalized_shape must have at least one size");
  if (with_weight) weight = parameter(empty(shape, o.dtype, o.device));
  reset_parameters();
}
void RMSNorm::reset_parameters() {
  if (weight) init::ones_(weight);
}
Tensor RMSNorm::forward(const Tensor& x) const { return rms_norm(x, normalized_shape, weight, eps); }
std::string RMSNorm::extra_repr() const {
  return text(normalized_shape) + ", eps=" + text(eps) + ", elementwise_affine=" + text(elementwise_affine);
}

GroupNorm::GroupNorm(int64_t groups, int64_t channels, Number e, bool with_weight, bool with_bias,
                     const TensorOptions& o)
    : num_groups(groups), num_channels(channels), eps(e), affine(with_weight) {
  SF_CHECK(groups > 0, "GroupNorm: num_groups must be positive, got ", groups);
  SF_CHECK(channels % groups == 0, "GroupNorm: num_channels (", channels, ") must be divisible by num_groups (", groups,
           ")");
  if (with_weight) weight = parameter(empty({channels}, o.dtype, o.device));
  if (with_weight && with_bias) bias = parameter(empty({channels}, o.dtype, o.device));
  reset_parameters();
}
void GroupNorm::reset_parameters() {
  if (weight) init::ones_(weight);
  if (bias) init::zeros_(bias);
}
Tensor GroupNorm::forward(const Tensor& input) const { return group_norm(input, num_groups, weight, bias, eps); }
std::string GroupNorm::extra_repr() const {
  return text(num_groups) + ", " + text(num_channels) + ", eps=" + text(eps) + ", affine=" + text(affine) +
         ", bias=" + text(bool(bias));
}

// ---- registration

template <class T>
static std::unique_ptr<T> make_running(int64_t num_features, Number eps, std::optional<Number> momentum, bool affine,
                                       bool track_running_stats, std::optional<Device> device,
                                       std::optional<DType> dtype, bool bias) {
  return std::make_unique<T>(
      num_features, BatchNormOptions{eps, momentum, affine, track_running_stats, bias, TensorOptions{device, dtype}});
}
template <class Base> static LayerEntry& running_fields(LayerEntry& e) {
  return e.forward<&Base::forward>("input")
      .template field<&RunningNorm::num_features>("num_features")
      .template field<&RunningNorm::eps>("eps")
      .template field<&RunningNorm::momentum>("momentum")
      .template field<&RunningNorm::affine>("affine")
      .template field<&RunningNorm::track_running_stats>("track_running_stats");
}
static constexpr const char* kBatchNorm =
    "num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None, bias=True";
static constexpr const char* kInstanceNorm =
    "num_features, eps=1e-5, momentum=0.1, affine=False, track_running_stats=False, device=None, dtype=None, bias=True";
SF_LAYER(BatchNorm1d, kBatchNorm, &make_running<BatchNorm1d>)
    .doc("Batch normalisation of input[N, C] or [N, C, L].")
    .with(running_fields<BatchNorm>);
SF_LAYER(BatchNorm2d, kBatchNorm, &make_running<BatchNorm2d>)
    .doc("Batch normalisation of input[N, C, H, W].")
    .with(running_fields<BatchNorm>);
SF_LAYER(BatchNorm3d, kBatchNorm, &make_running<BatchNorm3d>)
    .doc("Batch normalisation of input[N, C, D, H, W].")
    .with(running_fields<BatchNorm>);
SF_LAYER(InstanceNorm1d, kInstanceNorm, &make_running<InstanceNorm1d>)
    .doc("Normalisation of each channel of each sample of input[N, C, L].")
    .with(running_fields<InstanceNorm>);
SF_LAYER(InstanceNorm2d, kInstanceNorm, &make_running<InstanceNorm2d>)
    .doc("Normalisation of each channel of each sample of input[N, C, H, W].")
    .with(running_fields<InstanceNorm>);
SF_LAYER(InstanceNorm3d, kInstanceNorm, &make_running<InstanceNorm3d>)
    .doc("Normalisation of each channel of each sample of input[N, C, D, H, W].")
    .with(running_fields<InstanceNorm>);

SF_LAYER(
    LayerNorm, "normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None",
    [](Shape normalized_shape, Number eps, bool elementwise_affine, bool bias, std::optional<Device> device,
       std::optional<DType> dtype) {
      return std::make_unique<LayerNorm>(normalized_shape, eps, elementwise_affine, bias, TensorOptions{device, dtype});
    })
    .doc("Layer normalisation over the last dimensions normalized_shape.")
    .forward<&LayerNorm::forward>("input")
    .field<&LayerNorm::normalized_shape>("normalized_shape")
    .field<&LayerNorm::eps>("eps")
    .field<&LayerNorm::elementwise_affine>("elementwise_affine");
SF_LAYER(RMSNorm, "normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None",
         [](Shape normalized_shape, std::optional<Number> eps, bool elementwise_affine, std::optional<Device> device,
            std::optional<DType> dtype) {
           return std::make_unique<RMSNorm>(normalized_shape, eps, elementwise_affine, TensorOptions{device, dtype});
         })
    .doc("Root-mean-square normalisation over the last dimensions normalized_shape.")
    .forward<&RMSNorm::forward>("x")
    .field<&RMSNorm::normalized_shape>("normalized_shape")
    .field<&RMSNorm::eps>("eps")
    .field<&RMSNorm::elementwise_affine>("elementwise_affine");
SF_LAYER(
    GroupNorm, "num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None, bias=True",
    [](int64_t num_groups, int64_t num_channels, Number eps, bool affine, std::optional<Device> device,
       std::optional<DType> dtype, bool bias) {
      return std::make_unique<GroupNorm>(num_groups, num_channels, eps, affine, bias, TensorOptions{device, dtype});
    })
    .doc("Group normalisation of input[N, num_channels, ...].")
    .forward<&GroupNorm::forward>("input")
    .field<&GroupNorm::num_groups>("num_groups")
    .field<&GroupNorm::num_channels>("num_channels")
    .field<&GroupNorm::eps>("eps")
    .field<&GroupNorm::affine>("affine");

}  // namespace sf::nn
