// Activations as layers. Those with `inplace` write over their input when it is set.
#pragma once
#include "scaffolding/nn/layer.h"

namespace sf::nn {

struct InplaceActivation : Module {
  bool inplace = false;
  InplaceActivation() = default;
  explicit InplaceActivation(bool in_place) : inplace(in_place) {}
  std::string extra_repr() const override { return inplace ? "inplace=True" : ""; }
};

#define SF_ACTIVATION(Type)                     \
  struct Type : InplaceActivation {             \
    using InplaceActivation::InplaceActivation; \
    SF_MODULE(Type)                             \
    Tensor forward(const Tensor& input) const;  \
  };
SF_ACTIVATION(ReLU)
SF_ACTIVATION(ReLU6)
SF_ACTIVATION(SiLU)
SF_ACTIVATION(Mish)
SF_ACTIVATION(Hardswish)
SF_ACTIVATION(Hardsigmoid)
SF_ACTIVATION(SELU)
#undef SF_ACTIVATION

#define SF_ACTIVATION(Type)                    \
  struct Type : Module {                       \
    SF_MODULE(Type)                            \
    Tensor forward(const Tensor& input) const; \
  };
SF_ACTIVATION(Tanh)
SF_ACTIVATION(Sigmoid)
SF_ACTIVATION(LogSigmoid)
SF_ACTIVATION(Softsign)
SF_ACTIVATION(Tanhshrink)
SF_ACTIVATION(Softmax2d)
#undef SF_ACTIVATION

struct LeakyReLU : InplaceActivation {
  Number negative_slope;
  SF_MODULE(LeakyReLU)
  explicit LeakyReLU(Number slope = 0.01, bool in_place = false) : InplaceActivation(in_place), negative_slope(slope) {}
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct ELU : InplaceActivation {
  Number alpha;
  SF_MODULE(ELU)
  explicit ELU(Number a = 1.0, bool in_place = false) : InplaceActivation(in_place), alpha(a) {}
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct CELU : InplaceActivation {
  Number alpha;
  SF_MODULE(CELU)
  explicit CELU(Number a = 1.0, bool in_place = false) : InplaceActivation(in_place), alpha(a) {}
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct Hardtanh : InplaceActivation {
  Number min_val, max_val;
  SF_MODULE(Hardtanh)
  explicit Hardtanh(Number least = -1.0, Number most = 1.0, bool in_place = false);
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct Hardshrink : Module {
  Number lambd;
  SF_MODULE(Hardshrink)
  explicit Hardshrink(Number l = 0.5) : lambd(l) {}
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct Softshrink : Module {
  Number lambd;
  SF_MODULE(Softshrink)
  explicit Softshrink(Number l = 0.5) : lambd(l) {}
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct Threshold : InplaceActivation {
  Number threshold, value;
  SF_MODULE(Threshold)
  Threshold(Number t, Number v, bool in_place = false) : InplaceActivation(in_place), threshold(t), value(v) {}
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct RReLU : InplaceActivation {
  Number lower, upper;  // of the slope, drawn in training
  SF_MODULE(RReLU)
  explicit RReLU(Number low = 1. / 8, Number high = 1. / 3, bool in_place = false)
      : InplaceActivation(in_place), lower(low), upper(high) {}
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct GELU : Module {
  std::string approximate;  // "none" or "tanh"
  SF_MODULE(GELU)
  explicit GELU(const std::string& approximate = "none");
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct Softplus : Module {
  Number beta, threshold;
  SF_MODULE(Softplus)
  explicit Softplus(Number b = 1.0, Number t = 20.0) : beta(b), threshold(t) {}
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct GLU : Module {
  int64_t dim;
  SF_MODULE(GLU)
  explicit GLU(int64_t d = -1) : dim(d) {}
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct PReLU : Module {
  int64_t num_parameters;
  Tensor weight;  // [num_parameters]
  SF_MODULE(PReLU, weight)
  explicit PReLU(int64_t num_parameters = 1, double init = 0.25, const TensorOptions& options = {});
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};

// Without dim: 0 for 0, 1 and 3 dimensions, else 1.
struct SoftmaxNd : Module {
  std::optional<int64_t> dim;
  SoftmaxNd() = default;
  explicit SoftmaxNd(std::optional<int64_t> d) : dim(d) {}
  int64_t dim_for(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct Softmax : SoftmaxNd {
  using SoftmaxNd::SoftmaxNd;
  SF_MODULE(Softmax)
  Tensor forward(const Tensor& input) const;
};
struct Softmin : SoftmaxNd {
  using SoftmaxNd::SoftmaxNd;
  SF_MODULE(Softmin)
  Tensor forward(const Tensor& input) const;
};
struct LogSoftmax : SoftmaxNd {
  using SoftmaxNd::SoftmaxNd;
  SF_MODULE(LogSoftmax)
  Tensor forward(const Tensor& input) const;
};

}  // namespace sf::nn
