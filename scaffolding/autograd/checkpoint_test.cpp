#include "scaffolding/autograd/checkpoint.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/engine.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/view/view.h"

namespace sf::autograd {
namespace {

using Numbers = std::vector<double>;
Tensor leaf(const Shape& size, uint64_t seed) {
  Generator g = make_generator();
  g->manual_seed(seed);
  return randn(size, g, kFloat64).requires_grad_();
}

// Several ops with saved inputs and outputs, a view, a parameter of its own and random numbers.
struct Block {
  Tensor w = leaf({64}, 1);
  int runs = 0;
  Tensors operator()(const Tensors& in) {
    ++runs;
    Tensor h = tanh(in[0] * w), mask = bernoulli_(empty_like(h), wrapped(0.5));
    h = exp(h * mask) + silu(in[1]);
    return {h.view({64}) * h, h.sum()};
  }
};

struct CheckpointTest : testing::Test {
  Tensor x = leaf({64}, 2), y = leaf({64}, 3);
  Block block;
  CheckpointFunction fn = [this](const Tensors& in) { return block(in); };
  Numbers plain() {  // gradients of x, y and w without checkpointing
    manual_seed(9);
    Tensors z = fn({x * 1.0, y});
    return gradients(z);
  }
  Numbers gradients(const Tensors& z, BackwardOptions o = {}) {
    Numbers all;
    for (auto& g : grad({(z[0] * z[0]).sum() * z[1]}, {x, y, block.w}, {}, o))
      for (double v : g.to_vector()) all.push_back(v);
    return all;
  }
};

TEST_F(CheckpointTest, runs_twice_and_gives_the_same_gradients) {
  Numbers want = plain();
  block.runs = 0;
  manual_seed(9);
  Tensors z = checkpoint(fn, {x * 1.0, y});
  EXPECT_EQ(block.runs, 1);
  Numbers drawn = rand({3}).to_vector();
  auto state = default_generator()->get_state();
  EXPECT_EQ(gradients(z), want);
  EXPECT_EQ(block.runs, 2);
  EXPECT_EQ(default_generator()->get_state(), state) << "the second run puts the generator back";
}

TEST_F(CheckpointTest, without_the_rng_state_the_mask_is_another) {
  Numbers want = plain();
  manual_seed(9);
  EXPECT_NE(gradients(checkpoint(fn, {x * 1.0, y}, {.preserve_rng_state = false})), want);
}

TEST_F(CheckpointTest, fills_grad_of_parameters_inside) {
  manual_seed(9);
  Tensors z = checkpoint(fn, {x, y});
  backward({z[0].sum(), z[1]});
  Numbers got = block.w.grad().to_vector();
  block.w.set_grad({});
  manual_seed(9);
  z = fn({x, y});
  backward({z[0].sum(), z[1]});
  EXPECT_EQ(block.w.grad().to_vector(), got);
}

TEST_F(CheckpointTest, nests) {
  Numbers want = plain();
  block.runs = 0;
  manual_seed(9);
  int outer = 0;
  Tensors z = checkpoint(
      [&](const Tensors& in) {
        ++outer;
        return checkpoint(fn, {in[0] * 1.0, in[1]});
      },
      {x, y});
  EXPECT_EQ(gradients(z), want);
  EXPECT_EQ(outer, 2);
  EXPECT_GE(block.runs, 2);
}

TEST_F(CheckpointTest, a_retained_graph_and_second_derivatives_work) {
  auto second = [&](Tensors z) {
    Tensor g = grad({z[0].sum()}, {x}, {}, {.create_graph = true})[0];
    return grad({(g * g).sum()}, {x})[0].to_vector();
  };
  manual_seed(9);
  Numbers want = second(fn({x * 1.0, y}));
  manual_seed(9);
  EXPECT_EQ(second(checkpoint(fn, {x * 1.0, y})), want);
  manual_seed(9);
  Tensors z = checkpoint(fn, {x * 1.0, y});
  Numbers first = gradients(z, {.retain_graph = true});
  EXPECT_EQ(gradients(z), first);
}

TEST_F(CheckpointTest, records_nothing_without_gradients) {
  block.w = block.w.detach();
  Tensors z = checkpoint(fn, {x.detach(), y.detach()});
  EXPECT_FALSE(z[0].requires_grad());
  NoGrad off;
  EXPECT_FALSE(checkpoint(fn, {x, y})[0].requires_grad());
}

TEST_F(CheckpointTest, a_function_that_changes_is_an_error) {
  int run = 0;
  auto changing = [&](const Tensors& in) -> Tensors { return {run++ ? exp(in[0]) : exp(in[0]) * in[0] * in[0]}; };
  Tensors z = checkpoint(changing, {x * 1.0});
  try {
    z[0].sum().backward();
    ADD_FAILURE();
  } catch (const RuntimeError& e) {
    EXPECT_NE(std::string(e.what()).find("fn must do the same each time"), std::string::npos) << e.what();
  }
  Tensor input = x * 1.0;
  z = checkpoint(fn, {input, y});
  input.add_(1);
  EXPECT_THROW(z[1].backward(), RuntimeError) << "the input was overwritten meanwhile";
}

// Peak bytes of a chain of 16 segments of 8 ops each over `n` floats, forward and backward.
template <class Segment> size_t peak_of_chain(const Segment& segment, Numbers& result) {
  constexpr int64_t n = 1 << 18;
  Tensor x = full({n}, 0.25).requires_grad_();
  size_t before = cpu::allocated_bytes();
  cpu::reset_peak();
  Tensor h = x;
  for (int i = 0; i < 16; ++i) h = segment(h);
  h.sum().backward();
  size_t peak = cpu::max_allocated_bytes() - before;
  result = {x.grad().data<float>()[0], x.grad().data<float>()[n - 1]};
  return peak / (n * 4);
}
Tensor eight_ops(Tensor h) {
  for (int i = 0; i < 8; ++i) h = tanh(h);
  return h;
}

TEST(checkpoint, needs_less_memory) {
  Numbers want, got;
  size_t plain = peak_of_chain(eight_ops, want);
  size_t less = peak_of_chain(
      [](const Tensor& h) {
        return checkpoint([](const Tensors& in) -> Tensors { return {eight_ops(in[0])}; }, {h})[0];
      },
      got);
  EXPECT_EQ(want, got);
  EXPECT_GE(plain, 128u) << "tensors";
  EXPECT_LE(less, 40u) << "16 inputs and the 8 of one segment, and what is being computed";
}

TEST(checkpoint_offload, keeps_saved_tensors_in_a_smaller_dtype) {
  Numbers want, got;
  size_t plain = peak_of_chain(eight_ops, want);
  size_t less = peak_of_chain(
      [](const Tensor& h) {
        return checkpoint_offload([](const Tensors& in) -> Tensors { return {eight_ops(in[0])}; }, {h},
                                  {.dtype = kBFloat16})[0];
      },
      got);
  EXPECT_NEAR(got[0], want[0], 0.05 * want[0]);
  EXPECT_LE(less, plain * 6 / 10);
}

TEST(checkpoint_offload, without_loss_gives_equal_gradients) {
  Tensor x = leaf({2000}, 4), w = leaf({2000}, 5);
  auto run = [&](const CheckpointFunction& f, OffloadOptions o) {
    Tensor z = checkpoint_offload(f, {x}, o)[0];
    return grad({z.sum()}, {x, w});
  };
  CheckpointFunction f = [&](const Tensors& in) -> Tensors { return {exp(tanh(in[0] * w)) * w}; };
  Tensors kept = run(f, {}), want = grad({f({x})[0].sum()}, {x, w});
  EXPECT_EQ(kept[0].to_vector(), want[0].to_vector());
  EXPECT_EQ(kept[1].to_vector(), want[1].to_vector());
  Tensors packed = run(f, {.dtype = kFloat32});
  EXPECT_NEAR(packed[1].to_vector()[7], want[1].to_vector()[7], 1e-5);
  EXPECT_NE(packed[1].to_vector(), want[1].to_vector()) << "packing took place";
  Tensors small = run(f, {.dtype = kFloat32, .min_bytes = 1 << 20});
  EXPECT_EQ(small[1].to_vector(), want[1].to_vector());
}

}  // namespace
}  // namespace sf::autograd
