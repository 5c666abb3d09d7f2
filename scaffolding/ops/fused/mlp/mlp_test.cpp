#include "scaffolding/ops/fused/mlp/mlp.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/fused/linear_act/linear_act.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/reduce/reduce.h"

namespace sf::test {

SF_OP_TEST(mlp) {
  sample(randn({2, 3, 9}), randn({16, 9}), randn({16}), randn({5, 16}), randn({5}));
  sample(randn({4, 9}), randn({8, 9}), randn({8}), randn({6, 8}), none, "gelu");
  sample(distinct({3, 8}), distinct({128, 8}), distinct({128}), randn({4, 128}), randn({4}), "relu");
  sample(distinct({3, 8}), distinct({20, 8}), none, randn({4, 20}), none, "relu");
  sample(randn({4, 9}), randn({7, 9}), none, randn({6, 7}), randn({6}), "silu");
  sample(randn({4, 9}), randn({7, 9}), randn({7}), randn({6, 7}), randn({6}), "quick_gelu");
  sample(randn({4, 9}), randn({7, 9}), none, randn({6, 7}), randn({6}), "gelu_tanh");
  sample(randn({9, 4}).transpose(0, 1), randn({24, 9}), randn({24}), randn({24, 3}).transpose(0, 1), randn({3}),
         "gelu_tanh");
  // memory that the kernel cannot read as rows: copies, which must outlive it
  sample(randn({2, 24, 30}).transpose(1, 2), randn({32, 24}), randn({32}), randn({8, 32}), randn({8}), "gelu_tanh");
  sample(randn({9}), randn({8, 9}), randn({8}), randn({2, 8}), randn({2}));
  sample(randn({0, 9}), randn({8, 9}), randn({8}), randn({2, 8}), randn({2}));
  rejects("activation must be", randn({4, 5}), randn({3, 5}), none, randn({2, 3}), none, "tanh");
  rejects("must be weight's second", randn({4, 5}), randn({3, 6}), none, randn({2, 3}));
  rejects("must be weight's second", randn({4, 5}), randn({3, 5}), none, randn({2, 4}));
  rejects("bias must have shape", randn({4, 5}), randn({3, 5}), randn({5}), randn({2, 3}));
}

namespace {

// y and the gradients of input, weight_1, bias_1, weight_2 and bias_2 for sum(y * y);
// empty ones where `trained` says no.
std::vector<std::vector<double>> results(const Tensors& values, Device where, DType dtype,
                                         const std::string& activation, const std::vector<bool>& trained, bool fused) {
  Tensors in;
  for (size_t i = 0; i < values.size(); ++i)
    in.push_back(values[i] ? clone(values[i].to(dtype).to(where)).requires_grad_(trained[i]) : Tensor());
  Tensor y = fused ? mlp(in[0], in[1], in[2], in[3], in[4], activation)
                   : linear(linear_act(in[0], in[1], in[2], activation), in[3], in[4]);
  sum(y * y).backward();
  std::vector<std::vector<double>> all{y.detach().cpu().to_vector()};
  for (auto& x : in) all.push_back(x && x.grad() ? x.grad().cpu().to_vector() : std::vector<double>());
  return all;
}

void expect_near(const std::vector<std::vector<double>>& got, const std::vector<std::vector<double>>& want,
                 double tolerance, const std::string& what) {
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(got[i].size(), want[i].size()) << what << " " << i;
    double largest = 0;
    for (double w : want[i]) largest = std::max(largest, std::abs(w));
    for (size_t j = 0; j < want[i].size(); ++j)
      ASSERT_NEAR(got[i][j], want[i][j], tolerance * (largest + 1e-3)) << what << " " << i;
  }
}

constexpr double kFloat32Tolerance = 1e-5, kBFloat16Tolerance = 0.05, kFloat16Tolerance = 0.01;  // of the largest value

TEST(CudaMlp, gradients_are_the_cpus_whatever_is_trained_and_without_biases) {
  std::string why;
  if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  for (int64_t hidden : {128, 20, 3}) {  // whole rows of the mask; rows that are padded; no multiple of eight
    const Tensors values{randn({6, 24}), randn({hidden, 24}) * 0.2, randn({hidden}), randn({10, hidden}) * 0.1,
                         randn({10})};
    for (const char* activation : {"gelu_tanh", "relu", "gelu"})
      for (int which : {0b00001, 0b00100, 0b00101, 0b00110, 0b01000, 0b11111})
        for (bool biases : {true, false}) {
          Tensors in = values;
          if (!biases) in[2] = in[4] = Tensor();
          std::vector<bool> trained;
          bool any = false;
          for (int i = 0; i < 5; ++i) trained.push_back(which >> i & 1), any = any || (trained.back() && in[size_t(i)]);
          if (!any) continue;
          expect_near(results(in, Device("cuda"), kFloat32, activation, trained, true),
                      results(in, Device(), kFloat32, activation, trained, false), kFloat32Tolerance,
                      std::string(activation) + " " + std::to_string(hidden) + " " + std::to_string(which));
        }
  }
}

TEST(CudaMlp, short_floats_are_near_float32) {
  std::string why;
  if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  const Tensors values{randn({5, 2, 24}), randn({40, 24}) * 0.2, randn({40}), randn({16, 40}) * 0.1, randn({16})};
  const std::vector<bool> all(5, true);
  for (auto [dtype, tolerance] : {std::pair{kBFloat16, kBFloat16Tolerance}, {kFloat16, kFloat16Tolerance}}) {
    Tensors rounded;
    for (auto& v : values) rounded.push_back(v.to(dtype).to(kFloat32));
    expect_near(results(rounded, Device("cuda"), dtype, "gelu_tanh", all, true),
                results(rounded, Device(), kFloat32, "gelu_tanh", all, false), tolerance, "");
  }
}

TEST(CudaMlp, autocast_computes_it_in_the_lower_type) {
  std::string why;
  if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  const Tensors values{randn({6, 24}), randn({40, 24}) * 0.2, randn({40}), randn({16, 40}) * 0.1, randn({16})};
  const std::vector<bool> all(5, true);
  std::vector<std::vector<double>> got;
  {
    autocast::Autocast on(Device::CUDA, {.dtype = kBFloat16});
    EXPECT_EQ(mlp(values[0].cuda(), values[1].cuda(), values[2].cuda(), values[3].cuda()).dtype(), kBFloat16);
    // Not ReLU: rounded inputs may lie on the other side of its kink.
    got = results(values, Device("cuda"), kFloat32, "gelu_tanh", all, true);
  }
  expect_near(got, results(values, Device(), kFloat32, "gelu_tanh", all, false), kBFloat16Tolerance, "");
}

TEST(CudaMlp, operands_may_lie_anywhere) {
  std::string why;
  if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  // Views that begin at odd places, a transposed weight, an incoming gradient that is a part of a larger one.
  const Tensor x = randn({7, 25}), w1 = randn({24, 41}), b1 = randn({42}), w2 = randn({16, 43}), b2 = randn({17});
  auto gradients = [&](Device where) {
    Tensors leaf;
    for (auto& t : {x, w1, b1, w2, b2}) leaf.push_back(clone(t.to(where)).requires_grad_());
    Tensor y = mlp(leaf[0].narrow(1, 1, 24), leaf[1].narrow(1, 1, 40).t(), leaf[2].narrow(0, 1, 40),
                   leaf[3].narrow(1, 3, 40), leaf[4].narrow(0, 1, 16), "relu");
    sum(y.narrow(0, 1, 5) * y.narrow(0, 2, 5)).backward();
    std::vector<std::vector<double>> all{y.detach().cpu().to_vector()};
    for (auto& t : leaf) all.push_back(t.grad().cpu().to_vector());
    return all;
  };
  expect_near(gradients(Device("cuda")), gradients(Device()), kFloat32Tolerance, "");
}

TEST(CudaMlp, exact_gelu_stays_exact) {  // its epilogue would be the one by tanh
  std::string why;
  if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  Tensor x = full({1, 1}, 1.0, kFloat32), twos = full({8, 1}, 2.0, kFloat32), zero = zeros({8}, kFloat32),
         pick = full({1, 8}, 0.125, kFloat32);
  auto at = [&](const char* activation) {
    return mlp(x.cuda(), twos.cuda().requires_grad_(), zero.cuda(), pick.cuda(), {}, activation).item();
  };
  EXPECT_NEAR(at("gelu"), 1.9544997, 1e-6);       // 2 Phi(2)
  EXPECT_NEAR(at("gelu_tanh"), 1.9545977, 1e-6);  // by tanh
}

}  // namespace
}  // namespace sf::test
