#include "scaffolding/ops/fuse/fuse.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "scaffolding/autograd/engine.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/reduce/reduce.h"

namespace sf {
namespace {

Tensor gate(const Tensor& x, const Tensor& a, const Tensor& b) { return silu(x * a + b) / 3; }

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.strides() == b.strides() && a.dtype() == b.dtype() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

template <class F> std::string refusal(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Fuse, gives_the_bits_of_the_unfused_ops) {
  auto fused = fuse(&gate);
  for (DType t : {kFloat32, kFloat64, kBFloat16, kFloat16}) {
    Tensor x = to_dtype(randn({70, 1030}), t), a = to_dtype(randn({1030}), t), b = to_dtype(randn({70, 1}), t);
    EXPECT_TRUE(same_bits(fused(x, a, b), gate(x, a, b))) << name(t);
    EXPECT_TRUE(same_bits(fused(x.transpose(0, 1), b.transpose(0, 1), a.unsqueeze(1)), gate(x.transpose(0, 1), b.transpose(0, 1), a.unsqueeze(1)))) << name(t);
  }
}

TEST(Fuse, takes_a_lambda_and_keeps_the_gradients_of_its_ops) {
  auto fused = fuse([](const Tensor& x, const Tensor& a) { return tanh(x * a) * x; });
  Tensor x = randn({5, 6}).requires_grad_(), a = randn({6}).requires_grad_();
  Tensors one = autograd::grad({fused(x, a).sum()}, {x, a}), other = autograd::grad({(tanh(x * a) * x).sum()}, {x, a});
  EXPECT_TRUE(same_bits(one[0], other[0]));
  EXPECT_TRUE(same_bits(one[1], other[1]));
}

TEST(Fuse, refuses_what_is_not_pointwise_by_name) {
  auto reduces = fuse([](const Tensor& x) { return x - x.sum(); });
  EXPECT_NE(refusal([&] { reduces(ones({3})); }).find("sub takes the result of sum"), std::string::npos) << refusal([&] { reduces(ones({3})); });
  Tensor other = ones({3});
  auto captures = fuse([other](const Tensor& x) { return x - other; });
  EXPECT_NE(refusal([&] { captures(ones({3})); }).find("pass it as one"), std::string::npos) << refusal([&] { captures(ones({3})); });
}

TEST(Fuse, an_input_written_before_backward_is_an_error) {
  auto fused = fuse([](const Tensor& x) { return x * x; });
  Tensor x = ones({3}).requires_grad_(), z = x * 1, y = fused(z);
  z.mul_(2.0);
  EXPECT_NE(refusal([&] { y.sum().backward(); }).find("in place"), std::string::npos) << refusal([&] { y.sum().backward(); });
}

TEST(Fuse, may_be_called_from_several_threads) {
  auto fused = fuse(&gate);
  Tensor x = randn({4000}), a = randn({1}), b = randn({4000}), y = gate(x, a, b);
  std::vector<std::thread> threads;
  std::vector<int> good(4);
  for (int i = 0; i < 4; ++i) threads.emplace_back([&, i] { good[size_t(i)] = same_bits(fused(x, a, b), y); });
  for (auto& t : threads) t.join();
  EXPECT_EQ(good, (std::vector<int>{1, 1, 1, 1}));
}

}  // namespace
}  // namespace sf
