#include "scaffolding/autograd/autocast.h"

#include "scaffolding/autograd/checkpoint.h"
#include "scaffolding/autograd/engine.h"
#include "scaffolding/autograd/hooks.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/ops.h"

namespace sf::test {

using autocast::Autocast;
using autocast::Policy;

TEST(autocast, runs_products_in_sixteen_bits_and_losses_in_float32) {
  Tensor x = randn({3, 4}), w = randn({5, 4}), y = randn({3, 5});
  w.requires_grad_();
  Tensor loss;
  {
    Autocast on(Device::CPU);
    Tensor out = linear(x, w);
    EXPECT_EQ(out.dtype(), kBFloat16);
    EXPECT_EQ(x.matmul(w.t()).dtype(), kBFloat16);
    EXPECT_EQ(add(x, x).dtype(), kFloat32);
    EXPECT_EQ(softmax(out, -1).dtype(), kBFloat16);
    EXPECT_EQ(cat({out, y}, 0).dtype(), kFloat32);
    EXPECT_EQ(linear(to_dtype(x, kFloat64), to_dtype(w, kFloat64)).dtype(), kFloat64);
    loss = mse_loss(out, y);
  }
  EXPECT_EQ(loss.dtype(), kFloat32);
  EXPECT_EQ(linear(x, w).dtype(), kFloat32);
  loss.backward();
  EXPECT_EQ(w.grad().dtype(), kFloat32);
}

TEST(autocast, scopes_nest_and_end_with_exceptions) {
  Tensor x = randn({2, 2});
  Autocast outer(Device::CPU);
  {
    Autocast off(Device::CPU, {.enabled = false});
    EXPECT_EQ(mm(x, x).dtype(), kFloat32);
    EXPECT_FALSE(autocast::active());
  }
  try {
    Autocast half(Device::CPU, {.dtype = kFloat16});
    EXPECT_EQ(mm(x, x).dtype(), kFloat16);
    mm(x, randn({3, 3}));
  } catch (const ValueError&) {}
  EXPECT_EQ(mm(x, x).dtype(), kBFloat16);
  EXPECT_THROW(Autocast(Device::CPU, {.dtype = kFloat32}), TypeError);
}

TEST(autocast, each_device_has_its_policy) {
  auto policy = [](std::string_view op, Device device) {
    for (auto& e : autocast::kTable)
      if (e.op == op) return device.is_cuda() ? e.cuda : e.cpu;
    return Policy::Own;
  };
  EXPECT_EQ(policy("matmul", Device::CPU), Policy::Lower);
  EXPECT_EQ(policy("softmax", Device::CPU), Policy::Own);
  EXPECT_EQ(policy("softmax", Device(Device::CUDA)), Policy::Float32);
  Tensor half = randn({2, 3}).to(kFloat16), single = randn({2, 3}), ids = arange(0, 3);
  // What an op does under each policy, whatever the device.
  auto run = [&](Policy p, const Tensor& a, const Tensor& b) {
    Autocast on(Device::CPU, {.dtype = kFloat16});
    std::pair<DType, DType> seen;
    autocast::run(
        autocast::detail::Plan{p, Device::CPU, p == Policy::Float32 ? kFloat32 : kFloat16},
        [&](const Tensor& x, const Tensor& y) {
          EXPECT_FALSE(autocast::active());
          seen = {x.dtype(), y.dtype()};
          return 0;
        },
        a, b);
    EXPECT_TRUE(autocast::active());
    return seen;
  };
  EXPECT_EQ(run(Policy::Lower, half, single), std::pair(kFloat16, kFloat16));
  EXPECT_EQ(run(Policy::Float32, half, single), std::pair(kFloat32, kFloat32));
  EXPECT_EQ(run(Policy::Widest, half, half), std::pair(kFloat16, kFloat16));
  EXPECT_EQ(run(Policy::Widest, half, single), std::pair(kFloat32, kFloat32));
  EXPECT_EQ(run(Policy::Lower, single, ids), std::pair(kFloat16, kInt64));
}

TEST(autocast, every_entry_names_an_op) {
  for (auto& e : autocast::kTable) EXPECT_TRUE(find_op(e.op)) << e.op;
}

TEST(autocast, backward_runs_without_and_a_checkpoint_runs_again_with_it) {
  Tensor x = randn({2, 3}), w = randn({3, 3});
  x.requires_grad_();
  w.requires_grad_();
  std::vector<DType> seen;
  Autocast on(Device::CPU);
  Tensor y = autograd::checkpoint(
      [&](const Tensors& in) -> Tensors {
        Tensor h = linear(in[0], w);
        seen.push_back(h.dtype());
        return {silu(h)};
      },
      {x})[0];
  autograd::register_hook(y, [](const Tensor&) {
    EXPECT_FALSE(autocast::active());
    return Tensor();
  });
  y.sum().backward();
  EXPECT_EQ(seen, (std::vector{kBFloat16, kBFloat16}));
  EXPECT_EQ(x.grad().dtype(), kFloat32);
  EXPECT_TRUE(autocast::active());
}

TEST(autocast, casts_of_parameters_are_shared_until_they_change) {
  Tensor w = ones({2, 2}), x = ones({1, 2});
  w.requires_grad_();
  Autocast on(Device::CPU);
  auto weight_node = [&] { return linear(x, w).impl()->grad_fn->edges[1].node; };
  auto first = weight_node();
  EXPECT_TRUE(first);
  EXPECT_TRUE(first == weight_node());
  {
    autograd::NoGrad off;
    w.mul_(2);
    EXPECT_FALSE(linear(x, w).impl()->grad_fn);
  }
  EXPECT_FALSE(first == weight_node());
  EXPECT_EQ(linear(x, w).to_vector()[0], 4);
}

}  // namespace sf::test
