#include "scaffolding/nn/activation.h"

#include "scaffolding/autograd/take_over.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/nn/format.h"
#include "scaffolding/nn/init.h"
#include "scaffolding/ops/activation/activation.h"
#include "scaffolding/ops/fused/glu/glu.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/softmax/softmax.h"
#include "scaffolding/ops/view/view.h"

namespace sf::nn {

namespace {
// f(x), or x with f(x) written over it.
template <class F> Tensor applied(const char* op, const Tensor& input, bool inplace, const F& f) {
  if (!inplace) return f(input);
  Tensor x = input;
  return autograd::overwrite(op, x, f);
}
}  // namespace

Tensor ReLU::forward(const Tensor& x) const { return applied("relu_", x, inplace, relu); }
Tensor ReLU6::forward(const Tensor& x) const { return applied("relu6_", x, inplace, relu6); }
Tensor SiLU::forward(const Tensor& x) const { return applied("silu_", x, inplace, silu); }
Tensor Mish::forward(const Tensor& x) const { return applied("mish_", x, inplace, mish); }
Tensor Hardswish::forward(const Tensor& x) const { return applied("hardswish_", x, inplace, hardswish); }
Tensor Hardsigmoid::forward(const Tensor& x) const { return applied("hardsigmoid_", x, inplace, hardsigmoid); }
Tensor SELU::forward(const Tensor& x) const { return applied("selu_", x, inplace, selu); }
Tensor LeakyReLU::forward(const Tensor& x) const {
  return applied("leaky_relu_", x, inplace, [&](const Tensor& t) { return leaky_relu(t, negative_slope); });
}
Tensor ELU::forward(const Tensor& x) const {
  return applied("elu_", x, inplace, [&](const Tensor& t) { return elu(t, alpha); });
}
Tensor CELU::forward(const Tensor& x) const {
  return applied("celu_", x, inplace, [&](const Tensor& t) { return celu(t, alpha); });
}
Tensor Hardtanh::forward(const Tensor& x) const {
  return applied("hardtanh_", x, inplace, [&](const Tensor& t) { return hardtanh(t, min_val, max_val); });
}
Tensor Threshold::forward(const Tensor& x) const {
  return applied("threshold_", x, inplace, [&](const Tensor& t) { return sf::threshold(t, threshold, value); });
}
Tensor RReLU::forward(const Tensor& x) const {
  return applied("rrelu_", x, inplace, [&](const Tensor& t) { return rrelu(t, lower, upper, training); });
}

Tensor Hardshrink::forward(const Tensor& x) const { return hardshrink(x, lambd); }
Tensor Softshrink::forward(const Tensor& x) const { return softshrink(x, lambd); }
Tensor Tanh::forward(const Tensor& x) const { return tanh(x); }
Tensor Sigmoid::forward(const Tensor& x) const { return sigmoid(x); }
Tensor LogSigmoid::forward(const Tensor& x) const { return logsigmoid(x); }
Tensor Softsign::forward(const Tensor& x) const { return softsign(x); }
Tensor Tanhshrink::forward(const Tensor& x) const { return tanhshrink(x); }
Tensor Softmax2d::forward(const Tensor& x) const {
  SF_CHECK(x.ndim() == 3 || x.ndim() == 4, "Softmax2d: expected input to be 3D or 4D, got ", x.shape());
  return softmax(x, -3);
}
Tensor GELU::forward(const Tensor& x) const { return gelu(x, approximate); }
Tensor Softplus::forward(const Tensor& x) const { return softplus(x, beta, threshold); }
Tensor GLU::forward(const Tensor& x) const {
  int64_t d = wrap_dim("GLU", dim, x.ndim());
  if (d == x.ndim() - 1) return glu(x);
  return transpose(glu(transpose(x, d, -1)), d, -1);
}
Tensor PReLU::forward(const Tensor& x) const { return prelu(x, weight); }

int64_t SoftmaxNd::dim_for(const Tensor& x) const {
  return dim ? *dim : x.ndim() == 0 || x.ndim() == 1 || x.ndim() == 3 ? 0 : 1;
}
Tensor Softmax::forward(const Tensor& x) const { return softmax(x, dim_for(x)); }
Tensor Softmin::forward(const Tensor& x) const { return softmin(x, dim_for(x)); }
Tensor LogSoftmax::forward(const Tensor& x) const { return log_softmax(x, dim_for(x)); }

Hardtanh::Hardtanh(Number least, Number most, bool in_place)
    : InplaceActivation(in_place), min_val(least), max_val(most) {
  SF_CHECK(max_val > min_val, "Hardtanh: max_val must be larger than min_val, got ", double(max_val), " and ",
           double(min_val));
}
GELU::GELU(const std::string& a) : approximate(a) {
  SF_CHECK(a == "none" || a == "tanh", "GELU: approximate argument must be either none or tanh, got '", a, "'");
}
PReLU::PReLU(int64_t n, double init, const TensorOptions& o) : num_parameters(n) {
  SF_CHECK(n > 0, "PReLU: num_parameters must be positive, got ", n);
  weight = parameter(empty({n}, o.dtype, o.device));
  init::constant_(weight, init);
}

std::string LeakyReLU::extra_repr() const {
  return "negative_slope=" + text(negative_slope) + (inplace ? ", inplace=True" : "");
}
std::string ELU::extra_repr() const { return "alpha=" + text(alpha) + (inplace ? ", inplace=True" : ""); }
std::string CELU::extra_repr() const { return "alpha=" + text(alpha) + (inplace ? ", inplace=True" : ""); }
std::string Hardtanh::extra_repr() const {
  return "min_val=" + text(min_val) + ", max_val=" + text(max_val) + (inplace ? ", inplace=True" : "");
}
std::string Hardshrink::extra_repr() const { return text(lambd); }
std::string Softshrink::extra_repr() const { return text(lambd); }
std::string Threshold::extra_repr() const {
  return "threshold=" + text(threshold) + ", value=" + text(value) + (inplace ? ", inplace=True" : "");
}
std::string RReLU::extra_repr() const {
  return "lower=" + text(lower) + ", upper=" + text(upper) + (inplace ? ", inplace=True" : "");
}
std::string GELU::extra_repr() const { return "approximate=" + quoted(approximate); }
std::string Softplus::extra_repr() const { return "beta=" + text(beta) + ", threshold=" + text(threshold); }
std::string GLU::extra_repr() const { return "dim=" + text(dim); }
std::string PReLU::extra_repr() const { return "num_parameters=" + text(num_parameters); }
std::string SoftmaxNd::extra_repr() const { return "dim=" + text(dim); }

// ---- registration

template <class T> static std::unique_ptr<T> make_inplace(bool inplace) { return std::make_unique<T>(inplace); }
template <class T> static std::unique_ptr<T> make_plain() { return std::make_unique<T>(); }
template <class T> static std::unique_ptr<T> make_dim(std::optional<int64_t> dim) { return std::make_unique<T>(dim); }
template <class T> static LayerEntry& inplace_fields(LayerEntry& e) {
  return e.forward<&T::forward>("input").template field<&InplaceActivation::inplace>("inplace");
}

SF_LAYER(ReLU, "inplace=False", &make_inplace<ReLU>).doc("max(input, 0).").with(inplace_fields<ReLU>);
SF_LAYER(ReLU6, "inplace=False", &make_inplace<ReLU6>).doc("input limited to [0, 6].").with(inplace_fields<ReLU6>);
SF_LAYER(SiLU, "inplace=False", &make_inplace<SiLU>).doc("input * sigmoid(input).").with(inplace_fields<SiLU>);
SF_LAYER(Mish, "inplace=False", &make_inplace<Mish>).doc("input * tanh(softplus(input)).").with(inplace_fields<Mish>);
SF_LAYER(Hardswish, "inplace=False", &make_inplace<Hardswish>)
    .doc("input * relu6(input + 3) / 6.")
    .with(inplace_fields<Hardswish>);
SF_LAYER(Hardsigmoid, "inplace=False", &make_inplace<Hardsigmoid>)
    .doc("relu6(input + 3) / 6.")
    .with(inplace_fields<Hardsigmoid>);
SF_LAYER(SELU, "inplace=False", &make_inplace<SELU>)
    .doc("The self-normalising exponential linear unit.")
    .with(inplace_fields<SELU>);
SF_LAYER(Tanh, "", &make_plain<Tanh>).doc("Hyperbolic tangent.").forward<&Tanh::forward>("input");
SF_LAYER(Sigmoid, "", &make_plain<Sigmoid>).doc("1 / (1 + exp(-input)).").forward<&Sigmoid::forward>("input");
SF_LAYER(LogSigmoid, "", &make_plain<LogSigmoid>).doc("log(sigmoid(input)).").forward<&LogSigmoid::forward>("input");
SF_LAYER(Softsign, "", &make_plain<Softsign>).doc("input / (1 + |input|).").forward<&Softsign::forward>("input");
SF_LAYER(Tanhshrink, "", &make_plain<Tanhshrink>).doc("input - tanh(input).").forward<&Tanhshrink::forward>("input");
SF_LAYER(Softmax2d, "", &make_plain<Softmax2d>)
    .doc("softmax over the channels of input[N, C, H, W].")
    .forward<&Softmax2d::forward>("input");
SF_LAYER(LeakyReLU, "negative_slope=0.01, inplace=False",
         [](Number slope, bool inplace) { return std::make_unique<LeakyReLU>(slope, inplace); })
    .doc("input where positive, else negative_slope * input.")
    .with(inplace_fields<LeakyReLU>)
    .field<&LeakyReLU::negative_slope>("negative_slope");
SF_LAYER(Hardshrink, "lambd=0.5", [](Number lambd) { return std::make_unique<Hardshrink>(lambd); })
    .doc("0 where |input| <= lambd.")
    .forward<&Hardshrink::forward>("input")
    .field<&Hardshrink::lambd>("lambd");
SF_LAYER(Softshrink, "lambd=0.5", [](Number lambd) { return std::make_unique<Softshrink>(lambd); })
    .doc("input moved towards 0 by lambd, 0 within it.")
    .forward<&Softshrink::forward>("input")
    .field<&Softshrink::lambd>("lambd");
SF_LAYER(Threshold, "threshold, value, inplace=False",
         [](Number threshold, Number value, bool inplace) {
           return std::make_unique<Threshold>(threshold, value, inplace);
         })
    .doc("value where input <= threshold.")
    .with(inplace_fields<Threshold>)
    .field<&Threshold::threshold>("threshold")
    .field<&Threshold::value>("value");
SF_LAYER(RReLU, "lower=0.125, upper=0.3333333333333333, inplace=False",
         [](Number lower, Number upper, bool inplace) { return std::make_unique<RReLU>(lower, upper, inplace); })
    .doc("input where positive, else times a slope drawn from [lower, upper) in training, their mean elsewhere.")
    .with(inplace_fields<RReLU>)
    .field<&RReLU::lower>("lower")
    .field<&RReLU::upper>("upper");
SF_LAYER(ELU, "alpha=1.0, inplace=False",
         [](Number alpha, bool inplace) { return std::make_unique<ELU>(alpha, inplace); })
    .doc("input where positive, else alpha * (exp(input) - 1).")
    .with(inplace_fields<ELU>)
    .field<&ELU::alpha>("alpha");
SF_LAYER(CELU, "alpha=1.0, inplace=False",
         [](Number alpha, bool inplace) { return std::make_unique<CELU>(alpha, inplace); })
    .doc("max(0, x) + min(0, alpha * (exp(x / alpha) - 1)).")
    .with(inplace_fields<CELU>)
    .field<&CELU::alpha>("alpha");
SF_LAYER(Hardtanh, "min_val=-1.0, max_val=1.0, inplace=False",
         [](Number min_val, Number max_val, bool inplace) {
           return std::make_unique<Hardtanh>(min_val, max_val, inplace);
         })
    .doc("input limited to [min_val, max_val].")
    .with(inplace_fields<Hardtanh>)
    .field<&Hardtanh::min_val>("min_val")
    .field<&Hardtanh::max_val>("max_val");
SF_LAYER(GELU, "approximate='none'", [](std::string approximate) { return std::make_unique<GELU>(approximate); })
    .doc("input * normal_cdf(input); approximate='tanh' for its approximation.")
    .forward<&GELU::forward>("input")
    .field<&GELU::approximate>("approximate");
SF_LAYER(Softplus, "beta=1.0, threshold=20.0",
         [](Number beta, Number threshold) { return std::make_unique<Softplus>(beta, threshold); })
    .doc("log(1 + exp(beta * input)) / beta.")
    .forward<&Softplus::forward>("input")
    .field<&Softplus::beta>("beta")
    .field<&Softplus::threshold>("threshold");
SF_LAYER(GLU, "dim=-1", [](int64_t dim) { return std::make_unique<GLU>(dim); })
    .doc("The first half of dim times the sigmoid of the second.")
    .forward<&GLU::forward>("input")
    .field<&GLU::dim>("dim");
SF_LAYER(PReLU, "num_parameters=1, init=0.25, device=None, dtype=None",
         [](int64_t num_parameters, double init, std::optional<Device> device, std::optional<DType> dtype) {
           return std::make_unique<PReLU>(num_parameters, init, TensorOptions{device, dtype});
         })
    .doc("LeakyReLU with a trained slope, one or one per channel.")
    .forward<&PReLU::forward>("input")
    .field<&PReLU::num_parameters>("num_parameters");
SF_LAYER(Softmax, "dim=None", &make_dim<Softmax>)
    .doc("softmax along dim.")
    .forward<&Softmax::forward>("input")
    .field<&SoftmaxNd::dim>("dim");
SF_LAYER(Softmin, "dim=None", &make_dim<Softmin>)
    .doc("softmax of -input along dim.")
    .forward<&Softmin::forward>("input")
    .field<&SoftmaxNd::dim>("dim");
SF_LAYER(LogSoftmax, "dim=None", &make_dim<LogSoftmax>)
    .doc("log(softmax(input)) along dim.")
    .forward<&LogSoftmax::forward>("input")
    .field<&SoftmaxNd::dim>("dim");

}  // namespace sf::nn
