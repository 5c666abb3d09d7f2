#include "scaffolding/ops/activation/activation.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/softmax/softmax.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

namespace {

void check_input(const char* op, const Tensor& input) {
  check_defined(op, "input", input);
  check_floating(op, "input", input);
}

Tensor hard_tanh(const char* op, const Tensor& x, double low, double high) {
  check_input(op, x);
  Tensor outside = logical_or(le(x, wrapped(low)), ge(x, wrapped(high)));
  return where(outside, clamp(x, low, high).detach(), x);
}

}  // namespace

Tensor hardtanh(const Tensor& input, double min_val, double max_val) {
  SF_CHECK(min_val <= max_val, "hardtanh: min_val must not be above max_val, got ", min_val, " and ", max_val);
  return hard_tanh("hardtanh", input, min_val, max_val);
}
Tensor relu6(const Tensor& input) { return hard_tanh("relu6", input, 0, 6); }
Tensor hardsigmoid(const Tensor& input) {
  check_input("hardsigmoid", input);
  return hard_tanh("hardsigmoid", input + 3, 0, 6) / 6;
}

Tensor celu(const Tensor& input, double alpha) {
  check_input("celu", input);
  SF_CHECK(alpha > 0, "celu: alpha must be positive, got ", alpha);
  return alpha == 1 ? elu(input) : elu(input / alpha) * alpha;
}
Tensor selu(const Tensor& input) {
  check_input("selu", input);
  return elu(input, 1.6732632423543772848170429916717) * 1.0507009873554804934193349852946;
}

Tensor prelu(const Tensor& input, const Tensor& weight) {
  check_input("prelu", input);
  check_defined("prelu", "weight", weight);
  SF_CHECK_AS(TypeError, weight.dtype() == input.dtype(), "prelu: weight must have input's dtype ", input.dtype(),
              ", got ", weight.dtype());
  check_same_device("prelu", input, weight);
  int64_t channels = input.ndim() > 1 ? input.shape()[1] : 1;
  SF_CHECK(weight.ndim() <= 1 && (weight.numel() == 1 || weight.numel() == channels),
           "prelu: weight must hold one number, or one for each of ", channels, " channels of input ", input.shape(),
           ", got ", weight.shape());
  Tensor slope = weight;
  if (weight.numel() != 1) {
    Shape size = input.shape();
    for (int64_t i = 0; i < size.size(); ++i) size[i] = i == 1 ? channels : 1;
    slope = weight.reshape(size);
  }
  return where(gt(input, wrapped(0)), input, slope * input);
}

Tensor logsigmoid(const Tensor& input) {
  check_input("logsigmoid", input);
  return -softplus(-input, 1, __builtin_inf());
}
Tensor softsign(const Tensor& input) {
  check_input("softsign", input);
  return input / (abs(input) + 1);
}
Tensor tanhshrink(const Tensor& input) {
  check_input("tanhshrink", input);
  return input - tanh(input);
}

Tensor softshrink(const Tensor& input, double lambd) {
  check_input("softshrink", input);
  SF_CHECK(lambd >= 0, "softshrink: lambd must not be negative, got ", lambd);
  return input - clamp(input, -lambd, lambd);
}
Tensor hardshrink(const Tensor& input, double lambd) {
  check_input("hardshrink", input);
  return where(le(abs(input.detach()), wrapped(lambd)), wrapped(0.0), input);
}
Tensor threshold(const Tensor& input, double threshold, double value) {
  check_defined("threshold", "input", input);
  return where(le(input, wrapped(threshold)),
               wrapped(is_floating(input.dtype()) ? Scalar(value) : Scalar(int64_t(value))), input);
}

Tensor rrelu(const Tensor& input, double lower, double upper, bool training, const Generator& generator) {
  check_input("rrelu", input);
  SF_CHECK(lower <= upper, "rrelu: lower must not be above upper, got ", lower, " and ", upper);
  if (!training) return leaky_relu(input, (lower + upper) / 2);
  return where(gt(input, wrapped(0)), input, input * uniform_(empty_like(input), lower, upper, generator));
}

Tensor softmin(const Tensor& input, int64_t dim, std::optional<DType> dtype) {
  check_input("softmin", input);
  return softmax(-input, dim, dtype);
}

Tensor gumbel_softmax(const Tensor& logits, double tau, bool hard, double, int64_t dim, const Generator& generator) {
  check_defined("gumbel_softmax", "logits", logits);
  check_floating("gumbel_softmax", "logits", logits);
  SF_CHECK(tau > 0, "gumbel_softmax: tau must be positive, got ", tau);
  Tensor gumbel = -log(exponential_(empty_like(logits), 1, generator));
  Tensor soft = softmax((logits + gumbel) / tau, dim);
  if (!hard) return soft;
  Tensor one_hot;
  {
    autograd::NoGrad off;
    Tensor index = argmax(soft, dim, true);
    one_hot =
        scatter(zeros_like(soft), dim, index, scalar_tensor(1.0, soft.dtype(), soft.device()).expand(index.shape()));
  }
  return one_hot - soft.detach() + soft;
}

SF_OP(hardtanh, "input, min_val=-1.0, max_val=1.0")
    .doc("input limited to [min_val, max_val].")
    .like("torch.nn.functional.hardtanh")
    .inplace();
SF_OP(relu6, "input").doc("input limited to [0, 6].").like("torch.nn.functional.relu6").inplace();
SF_OP(hardsigmoid, "input").doc("relu6(input + 3) / 6.").like("torch.nn.functional.relu6(input + 3) / 6").inplace();
SF_OP(celu, "input, alpha=1.0")
    .doc("max(0, input) + min(0, alpha * (exp(input / alpha) - 1)).")
    .like("torch.where(input > 0, input, alpha * torch.expm1(input / alpha))")
    .inplace();
SF_OP(selu, "input")
    .doc("Scaled elu, whose outputs keep mean 0 and variance 1.")
    .like("torch.nn.functional.selu")
    .inplace();
SF_OP(prelu, "input, weight")
    .doc("input where positive, weight * input elsewhere; one weight, or one per channel of input[N, C, ...].")
    .like("torch.nn.functional.prelu");
SF_OP(logsigmoid, "input").doc("log(sigmoid(input)), without overflow.").like("torch.nn.functional.logsigmoid(input)");
SF_OP(softsign, "input").doc("input / (1 + |input|).").like("torch.nn.functional.softsign");
SF_OP(tanhshrink, "input").doc("input - tanh(input).").like("torch.nn.functional.tanhshrink");
SF_OP(softshrink, "input, lambd=0.5")
    .doc("input moved towards 0 by lambd; 0 within it.")
    .like("torch.nn.functional.softshrink(input, lambd)");
SF_OP(hardshrink, "input, lambd=0.5")
    .doc("input, but 0 where |input| <= lambd.")
    .like("torch.nn.functional.hardshrink(input, lambd)");
SF_OP(threshold, "input, threshold, value")
    .doc("input, but value where input <= threshold.")
    .like("torch.nn.functional.threshold")
    .inplace();
SF_OP(rrelu, "input, lower=0.125, upper=0.3333333333333333, training=False, generator=None")
    .doc("input where positive, elsewhere times a slope drawn from [lower, upper) in training, else their mean.")
    .inplace()
    .random();
SF_OP(softmin, "input, dim, dtype=None").doc("softmax of -input.").like("torch.nn.functional.softmin");
SF_OP(gumbel_softmax, "logits, tau=1.0, hard=False, eps=1e-10, dim=-1, generator=None")
    .doc("A differentiable sample from the distribution with these logits over dim; eps is not used.")
    .random();

}  // namespace sf
