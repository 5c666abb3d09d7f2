#include "scaffolding/autograd/gradcheck.h"

#include <gtest/gtest.h>

#include <cmath>

#include "scaffolding/autograd/anomaly.h"
#include "scaffolding/autograd/engine.h"
#include "scaffolding/autograd/function.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/view/view.h"

namespace sf::autograd {
namespace {

template <class F> std::string refusal(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}
#define EXPECT_REFUSED(text, expression) \
  EXPECT_NE(refusal([&] { expression; }).find(text), std::string::npos) << refusal([&] { expression; })

Tensor leaf(std::initializer_list<double> v, DType t = kFloat64) { return tensor(v, t).requires_grad_(); }

TEST(gradcheck, accepts_right_gradients) {
  Tensor x = leaf({0.3, -1.2, 2}), w = leaf({1.5, 0.2, -0.7});
  auto fn = [](const Tensors& in) -> Tensors { return {tanh(in[0] * in[1]), (in[0] * in[0]).sum(), gt(in[0], in[1])}; };
  EXPECT_TRUE(gradcheck(fn, {x, w}));
  EXPECT_TRUE(gradgradcheck(fn, {x, w}));
  EXPECT_TRUE(gradcheck(fn, {x, w.detach()}));
  Tensor m = randn({3, 4}, {}, kFloat64).t().requires_grad_();
  EXPECT_TRUE(gradcheck([](const Tensors& in) -> Tensors { return {silu(in[0]).sum({0})}; }, {m}));
  EXPECT_TRUE(gradgradcheck([](const Tensors& in) -> Tensors { return {in[0] * 3.0}; }, {x}));
}

struct WrongSquare : Function<WrongSquare> {  // right at 1 alone
  static Tensor forward(FunctionContext& ctx, const Tensor& x) {
    ctx.save_for_backward({x});
    return x * x;
  }
  static Tensors backward(FunctionContext&, const Tensors& grads) { return {grads[0] * 2.0}; }
};
struct WrongSecond : Function<WrongSecond> {  // first derivative right, second cut off
  static Tensor forward(FunctionContext& ctx, const Tensor& x) {
    ctx.save_for_backward({x});
    return x * x * x;
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& grads) {
    Tensor x = ctx.saved_tensors()[0].detach();
    return {grads[0] * x * x * 3.0};
  }
};

TEST(gradcheck, names_the_element_that_is_wrong) {
  auto fn = [](const Tensors& in) -> Tensors { return {in[1] * 2.0, WrongSquare::apply(in[0])}; };
  Tensor x = leaf({1, 5}), y = leaf({1});
  EXPECT_REFUSED("d output 1[1] / d input 0[1]: backward gives 2, finite differences", gradcheck(fn, {x, y}));
  EXPECT_FALSE(gradcheck(fn, {x, y}, {.raise_exception = false}));
  EXPECT_TRUE(gradcheck(fn, {x, y}, {.atol = 100}));
  auto second = [](const Tensors& in) -> Tensors { return {WrongSecond::apply(in[0])}; };
  EXPECT_TRUE(gradcheck(second, {x}));
  EXPECT_FALSE(gradgradcheck(second, {x}, {}, {.raise_exception = false}));
}

TEST(gradcheck, refuses_what_it_cannot_check) {
  auto fn = [](const Tensors& in) -> Tensors { return {in[0] * 2.0}; };
  EXPECT_REFUSED("must be float64", gradcheck(fn, {leaf({1}, kFloat32)}));
  EXPECT_REFUSED("no input requires a gradient", gradcheck(fn, {ones({1}, kFloat64)}));
  EXPECT_REFUSED("must be a leaf", gradcheck(fn, {leaf({1}) * 1.0}));
  EXPECT_REFUSED("no output requires a gradient",
                 gradcheck([](const Tensors& in) -> Tensors { return {in[0].detach()}; }, {leaf({1})}));
}

TEST(gradcheck, in_place_writes_through_views) {
  Tensor x = leaf({0.5, 1.5, 2.5, 3.5}), w = leaf({2, 3});
  auto fn = [](const Tensors& in) -> Tensors {
    Tensor y = in[0] * 1.0, m = y.view({2, 2});
    m[0].copy_(in[1] * m[1].clone());
    m.select(1, 1).mul_(tensor({2, 3}, kFloat64));
    y.narrow(0, 1, 2).add_(in[1], 2);
    return {y, m.t()};
  };
  EXPECT_TRUE(gradcheck(fn, {x, w}));
  EXPECT_TRUE(gradgradcheck(fn, {x, w}));
}

// ---- detect_anomaly

struct BadBackward : Function<BadBackward> {
  static constexpr const char* kName = "bad_backward";
  static Tensor forward(FunctionContext&, const Tensor& x) { return x * 1.0; }
  static Tensors backward(FunctionContext&, const Tensors& grads) { return {grads[0] * NAN}; }
};

TEST(detect_anomaly, names_the_op_whose_result_is_the_first_nan) {
  Tensor x = leaf({-1, 4, 0});
  EXPECT_NO_THROW(sqrt(x) * 2.0) << "off by default";
  AnomalyMode on;
  EXPECT_TRUE(anomaly_detection_enabled());
  EXPECT_REFUSED("detect_anomaly: sqrt: output 0 of shape [3] has 1 NaN and 0 Inf; its inputs (float64[3]) were finite",
                 sqrt(x) * 2.0);
  EXPECT_REFUSED("detect_anomaly: log", log(leaf({0.0})));
  EXPECT_REFUSED("already contained NaN", leaf({NAN}) * 2.0);
  Tensor mask = full({2}, -INFINITY, kFloat64);
  EXPECT_NO_THROW(exp(leaf({1, 2}) + mask)) << "an Inf handed through, as masks do";
}

TEST(detect_anomaly, names_the_op_whose_gradient_is_the_first_nan) {
  AnomalyMode on;
  Tensor x = leaf({0, 4});
  EXPECT_REFUSED("detect_anomaly: sqrt: backward: the gradient of input 0 of shape [2] has 0 NaN and 1 Inf",
                 (sqrt(x * 1.0) * 3.0).sum().backward());
  EXPECT_REFUSED("detect_anomaly: bad_backward: backward", (BadBackward::apply(x) * 2.0).sum().backward());
  {
    AnomalyMode off(false);
    EXPECT_NO_THROW((BadBackward::apply(x) * 2.0).sum().backward());
  }
  EXPECT_TRUE(anomaly_detection_enabled());
}

TEST(detect_anomaly, counts_in_every_floating_dtype) {
  for (DType t : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    NonFinite n = count_non_finite(tensor({1, NAN, INFINITY, -INFINITY, NAN}, t).slice(0, 1));
    EXPECT_EQ(n.nan, 2);
    EXPECT_EQ(n.inf, 2);
  }
  EXPECT_FALSE(count_non_finite(zeros({3}, kInt64)));
  EXPECT_FALSE(count_non_finite({}));
}

}  // namespace
}  // namespace sf::autograd
