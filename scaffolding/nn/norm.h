// Normalisation layers.
#pragma once
#include "scaffolding/nn/layer.h"

namespace sf::nn {

struct BatchNormOptions {
  Number eps = 1e-5;
  std::optional<Number> momentum = 0.1;  // of the running statistics; absent: their plain average
  bool affine = true;
  bool track_running_stats = true;
  bool bias = true;
  TensorOptions tensor = {};
};

// What batch and instance normalisation of input[N, num_features, ...] share. In training statistics are the input's
// and move the running ones;
// in eval mode the running ones are used, where they are kept.
struct RunningNorm : Module {
  int64_t num_features;
  Number eps;
  std::optional<Number> momentum;
  bool affine, track_running_stats;
  Tensor weight, bias;               // [num_features], or absent
  Buffer running_mean, running_var;  // [num_features], or absent
  Buffer num_batches_tracked;        // int64 []

  RunningNorm(const char* name, int64_t num_features, const BatchNormOptions& options);
  void reset_running_stats();
  void reset_parameters();
  std::string extra_repr() const override;
};

struct BatchNorm : RunningNorm {
  int64_t least_ndim, most_ndim;
  BatchNorm(const char* name, int64_t least, int64_t most, int64_t num_features, const BatchNormOptions& o)
      : RunningNorm(name, num_features, o), least_ndim(least), most_ndim(most) {}
  Tensor forward(const Tensor& input) const;
};
struct BatchNorm1d : BatchNorm {  // [N, C] or [N, C, L]
  SF_MODULE(BatchNorm1d, weight, bias, running_mean, running_var, num_batches_tracked)
  explicit BatchNorm1d(int64_t num_features, const BatchNormOptions& o = {})
      : BatchNorm("BatchNorm1d", 2, 3, num_features, o) {}
};
struct BatchNorm2d : BatchNorm {
  SF_MODULE(BatchNorm2d, weight, bias, running_mean, running_var, num_batches_tracked)
  explicit BatchNorm2d(int64_t num_features, const BatchNormOptions& o = {})
      : BatchNorm("BatchNorm2d", 4, 4, num_features, o) {}
};
struct BatchNorm3d : BatchNorm {
  SF_MODULE(BatchNorm3d, weight, bias, running_mean, running_var, num_batches_tracked)
  explicit BatchNorm3d(int64_t num_features, const BatchNormOptions& o = {})
      : BatchNorm("BatchNorm3d", 5, 5, num_features, o) {}
};

inline constexpr double kDefaultMomentum = 0.1;
inline BatchNormOptions instance_norm_defaults() { return {1e-5, kDefaultMomentum, false, false, true, {}}; }

// Statistics per sample and channel; also of inputs without a batch.
struct InstanceNorm : RunningNorm {
  int64_t spatial;
  InstanceNorm(const char* name, int64_t spatial_dims, int64_t num_features, const BatchNormOptions& o)
      : RunningNorm(name, num_features, o), spatial(spatial_dims) {}
  Tensor forward(const Tensor& input) const;
};
struct InstanceNorm1d : InstanceNorm {
  SF_MODULE(InstanceNorm1d, weight, bias, running_mean, running_var, num_batches_tracked)
  explicit InstanceNorm1d(int64_t num_features, const BatchNormOptions& o = instance_norm_defaults())
      : InstanceNorm("InstanceNorm1d", 1, num_features, o) {}
};
struct InstanceNorm2d : InstanceNorm {
  SF_MODULE(InstanceNorm2d, weight, bias, running_mean, running_var, num_batches_tracked)
  explicit InstanceNorm2d(int64_t num_features, const BatchNormOptions& o = instance_norm_defaults())
      : InstanceNorm("InstanceNorm2d", 2, num_features, o) {}
};
struct InstanceNorm3d : InstanceNorm {
  SF_MODULE(InstanceNorm3d, weight, bias, running_mean, running_var, num_batches_tracked)
  explicit InstanceNorm3d(int64_t num_features, const BatchNormOptions& o = instance_norm_defaults())
      : InstanceNorm("InstanceNorm3d", 3, num_features, o) {}
};

struct LayerNorm : Module {
  Shape normalized_shape;
  Number eps;
  bool elementwise_affine;
  Tensor weight, bias;  // [normalized_shape], or absent
  SF_MODULE(LayerNorm, weight, bias)

  explicit LayerNorm(const Shape& normalized_shape, Number eps = 1e-5, bool elementwise_affine = true, bool bias = true,
                     const TensorOptions& options = {});
  Tensor forward(const Tensor& input) const;
  void reset_parameters();
  std::string extra_repr() const override;
};

struct RMSNorm : Module {
  Shape normalized_shape;
  std::optional<Number> eps;  // absent: float32's epsilon, of float64 its own
  bool elementwise_affine;
  Tensor weight;  // [normalized_shape], or absent
  SF_MODULE(RMSNorm, weight)

  explicit RMSNorm(const Shape& normalized_shape, std::optional<Number> eps = {}, bool elementwise_affine = true,
                   const TensorOptions& options = {});
  Tensor forward(const Tensor& x) const;
  void reset_parameters();
  std::string extra_repr() const override;
};

struct GroupNorm : Module {
  int64_t num_groups, num_channels;
  Number eps;
  bool affine;
  Tensor weight, bias;  // [num_channels], or absent
  SF_MODULE(GroupNorm, weight, bias)

  GroupNorm(int64_t num_groups, int64_t num_channels, Number eps = 1e-5, bool affine = true, bool bias = true,
            const TensorOptions& options = {});
  Tensor forward(const Tensor& input) const;
  void reset_parameters();
  std::string extra_repr() const override;
};

}  // namespace sf::nn
