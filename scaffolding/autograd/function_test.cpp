#include "scaffolding/autograd/function.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/engine.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::autograd {
namespace {

using Numbers = std::vector<double>;
Tensor leaf(std::initializer_list<double> v) { return tensor(v, kFloat64).requires_grad_(); }

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

struct Cube : Function<Cube> {
  static constexpr const char* kName = "cube";
  static Tensor forward(FunctionContext& ctx, const Tensor& x, double k) {
    EXPECT_FALSE(grad_enabled());
    ctx.save_for_backward({x});
    ctx.saved_data["k"] = k;
    return x * x * x * k;
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& grads) {
    Tensor x = ctx.saved_tensors()[0];
    return {grads[0] * x * x * (3 * std::get<double>(ctx.saved_data["k"])), {}};
  }
};

TEST(Function, has_the_gradient_that_its_backward_gives) {
  Tensor x = leaf({1, 2});
  Tensor y = Cube::apply(x, 2.0);
  EXPECT_EQ(y.to_vector(), (Numbers{2, 16}));
  EXPECT_STREQ(y.impl()->grad_fn->name(), "cube");
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector(), (Numbers{6, 24}));
  EXPECT_REFUSED("second time", y.sum().backward());
}

TEST(Function, is_differentiable_twice_when_written_with_ops) {
  Tensor x = leaf({1, 2});
  Tensor g = grad({Cube::apply(x, 1.0).sum()}, {x}, {}, {.create_graph = true})[0];
  EXPECT_EQ(grad({g.sum()}, {x})[0].to_vector(), (Numbers{6, 12}));
}

TEST(Function, without_gradients_records_nothing) {
  EXPECT_FALSE(Cube::apply(ones({2}), 1.0).requires_grad());
  NoGrad off;
  EXPECT_FALSE(Cube::apply(leaf({1}), 1.0).requires_grad());
}

struct Exponential : Function<Exponential> {  // saves its output
  static Tensor forward(FunctionContext& ctx, const Tensor& x) {
    Tensor y = exp(x);
    ctx.save_for_backward({y});
    return y;
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& grads) { return {grads[0] * ctx.saved_tensors()[0]}; }
};

TEST(Function, may_save_its_output_without_keeping_itself_alive) {
  Tensor x = leaf({0, 0});
  Ref<Storage> watched;
  {
    Tensor y = Exponential::apply(x);
    watched = y.storage();
    Tensor g = grad({y.sum()}, {x}, {}, {.create_graph = true})[0];
    EXPECT_EQ(grad({g.sum()}, {x}, {}, {.retain_graph = true})[0].to_vector(), (Numbers{1, 1}));
  }
  EXPECT_EQ(watched->refs.load(), 1u);
  Tensor y = Exponential::apply(x);
  y.add_(1);
  EXPECT_REFUSED("modified in place", y.sum().backward());
}

struct SplitSigns : Function<SplitSigns> {  // two inputs in a list, three outputs
  static Tensors forward(FunctionContext& ctx, const Tensors& xs, const Tensor& unused) {
    Tensor sign = gt(xs[0], zeros({})), constant = xs[1] * 0.0;
    ctx.mark_non_differentiable({constant});
    EXPECT_TRUE(ctx.needs_input_grad(0));
    EXPECT_FALSE(ctx.needs_input_grad(1));
    EXPECT_FALSE(ctx.needs_input_grad(7));
    return {xs[0] + xs[1], xs[0] * 2.0, sign, constant};
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& grads) {
    EXPECT_TRUE(grads[1]) << "absent gradients are zeros";
    EXPECT_EQ(grads[1].to_vector(), (Numbers{0, 0}));
    return {grads[0] + grads[1] * 2.0, {}, {}};
  }
};

TEST(Function, several_outputs_and_constants) {
  Tensor a = leaf({1, -1}), b = tensor({5, 5}, kFloat64);
  Tensors ys = SplitSigns::apply(Tensors{a, b}, Tensor());
  EXPECT_TRUE(ys[0].requires_grad() && ys[1].requires_grad());
  EXPECT_FALSE(ys[2].requires_grad()) << "a bool";
  EXPECT_FALSE(ys[3].requires_grad()) << "marked";
  ys[0].sum().backward();
  EXPECT_EQ(a.grad().to_vector(), (Numbers{1, 1}));
}

struct Absent : Function<Absent> {
  static Tensors forward(FunctionContext& ctx, const Tensor& x) {
    ctx.set_materialize_grads(false);
    return {x * 1.0, x * 1.0};
  }
  static Tensors backward(FunctionContext&, const Tensors& grads) {
    EXPECT_FALSE(grads[1]);
    return {grads[0]};
  }
};
TEST(Function, absent_gradients_may_stay_absent) {
  Tensor x = leaf({1});
  Absent::apply(x)[0].sum().backward();
  EXPECT_EQ(x.grad().item(), 1);
}

struct Reverse : Function<Reverse> {  // hands its input through
  static Tensor forward(FunctionContext&, const Tensor& x) { return x; }
  static Tensors backward(FunctionContext&, const Tensors& grads) { return {-grads[0]}; }
};
TEST(Function, an_input_handed_through_becomes_another_tensor) {
  Tensor x = leaf({1, 2}), y = Reverse::apply(x);
  EXPECT_FALSE(y.is_same(x));
  EXPECT_TRUE(x.is_leaf());
  EXPECT_EQ(y.data_ptr(), x.data_ptr());
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector(), (Numbers{-1, -1}));
}

struct TooFew : Function<TooFew> {
  static Tensor forward(FunctionContext&, const Tensor& x, const Tensor& y) { return x + y; }
  static Tensors backward(FunctionContext&, const Tensors& grads) { return {grads[0]}; }
};
struct WrongShape : Function<WrongShape> {
  static Tensor forward(FunctionContext&, const Tensor& x) { return x + 1.0; }
  static Tensors backward(FunctionContext&, const Tensors&) { return {ones({7})}; }
};
TEST(Function, wrong_gradients_are_refused) {
  EXPECT_REFUSED("one gradient per argument of forward, 2, got 1",
                 TooFew::apply(leaf({1}), leaf({2})).sum().backward());
  EXPECT_REFUSED("gradient of shape [7] for input 0 of shape [1]", WrongShape::apply(leaf({1})).sum().backward());
}

TEST(Function, a_closure_is_enough) {
  Tensor x = leaf({1, 2}), y;
  {
    NoGrad off;
    y = x * x;
  }
  y = custom("square", {y}, {x}, [x = x.detach()](const Tensors& grads) -> Tensors { return {grads[0] * x * 2.0}; })[0];
  EXPECT_STREQ(y.impl()->grad_fn->name(), "square");
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector(), (Numbers{2, 4}));
}

struct Inner : Function<Inner> {  // differentiates inside its own backward
  static Tensor forward(FunctionContext& ctx, const Tensor& x) {
    ctx.save_for_backward({x});
    return x * x;
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& grads) {
    Tensor x = ctx.saved_tensors()[0].detach().requires_grad_();
    EnableGrad on;
    return {grads[0] * grad({(x * x).sum()}, {x})[0]};
  }
};
TEST(Function, backward_may_run_a_backward_of_its_own) {
  Tensor x = leaf({1, 2});
  (Inner::apply(x) * 3.0).sum().backward();
  EXPECT_EQ(x.grad().to_vector(), (Numbers{6, 12}));
}

}  // namespace
}  // namespace sf::autograd
