#include "scaffolding/nn/init.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "scaffolding/core/source_dir.h"
#include "scaffolding/io/test_packed.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/matmul/matmul.h"

namespace sf::nn::test {
namespace {

Tensor blank(const std::string& dtype, std::string shape) {  // as in make_golden_init.py
  DType t = kFloat32;
  EXPECT_TRUE(dtype_from_name(dtype, t));
  bool transposed = shape.back() == 't';
  if (transposed) shape.pop_back();
  Shape sizes;
  std::istringstream parts(shape);
  for (std::string n; std::getline(parts, n, 'x');) sizes.push_back(std::stoll(n));
  Tensor x = full(sizes, 3, t);
  return transposed ? x.t() : is_floating(t) ? x.requires_grad_() : x;
}

Tensor call(const std::string& name, const Tensor& x, const std::vector<std::string>& arguments) {
  auto number = [&](size_t i, double otherwise) { return i < arguments.size() ? std::stod(arguments[i]) : otherwise; };
  auto word = [&](size_t i, const char* otherwise) { return i < arguments.size() ? arguments[i] : otherwise; };
  if (name == "uniform_") return init::uniform_(x, number(0, 0), number(1, 1));
  if (name == "normal_") return init::normal_(x, number(0, 0), number(1, 1));
  if (name == "trunc_normal_") return init::trunc_normal_(x, number(0, 0), number(1, 1), number(2, -2), number(3, 2));
  if (name == "constant_") return init::constant_(x, number(0, 0));
  if (name == "ones_") return init::ones_(x);
  if (name == "zeros_") return init::zeros_(x);
  if (name == "eye_") return init::eye_(x);
  if (name == "dirac_") return init::dirac_(x, int64_t(number(0, 1)));
  if (name == "xavier_uniform_") return init::xavier_uniform_(x, number(0, 1));
  if (name == "xavier_normal_") return init::xavier_normal_(x, number(0, 1));
  if (name == "kaiming_uniform_")
    return init::kaiming_uniform_(x, number(0, 0), word(1, "fan_in"), word(2, "leaky_relu"));
  if (name == "kaiming_normal_")
    return init::kaiming_normal_(x, number(0, 0), word(1, "fan_in"), word(2, "leaky_relu"));
  if (name == "orthogonal_") return init::orthogonal_(x, number(0, 1));
  if (name == "sparse_") return init::sparse_(x, number(0, 0), number(1, 0.01));
  ADD_FAILURE() << "unknown function " << name;
  return x;
}

TEST(nn_init, every_call_gives_torchs_numbers) {
  std::istringstream file(sf::test::unpacked(SF_SOURCE_DIR "/tests/golden/init.txt.xz"));
  int calls = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    uint64_t seed;
    std::string name, dtype, shape;
    std::vector<std::string> arguments;
    words >> seed >> name >> dtype >> shape;
    for (std::string w; words >> w && w != "|";) arguments.push_back(w);
    int64_t index;
    words >> index;
    Tensor x = blank(dtype, shape);
    uint32_t version = x.version();
    manual_seed(seed);
    Tensor y = call(name, x, arguments);
    ++calls;
    EXPECT_TRUE(y.is_same(x)) << line;
    EXPECT_TRUE(y.is_leaf()) << line;
    EXPECT_EQ(y.version() > version, y.numel() > 0) << line;
    std::vector<double> got = y.detach().to_vector();
    double step = y.dtype() == kFloat64    ? 1e-15
                  : y.dtype() == kBFloat16 ? 0.008
                  : y.dtype() == kFloat16  ? 0.001
                                           : 1.2e-7;
    for (double want; words >> want; ++index) {
      ASSERT_LT(index, int64_t(got.size())) << line;
      // torch's QR is LAPACK's, in the tensor's dtype
      double tolerance = name == "orthogonal_" ? 1e-5 : step * std::abs(want);
      ASSERT_NEAR(got[size_t(index)], want, tolerance) << line.substr(0, line.find('|')) << "at " << index;
    }
    ASSERT_EQ(index, int64_t(got.size())) << line;
  }
  EXPECT_GT(calls, 50);
}

TEST(nn_init, orthogonal_matrices_are_orthogonal_beyond_one_panel) {
  manual_seed(0);
  Tensor q = init::orthogonal_(empty({200, 150}, kFloat64), 3);
  Tensor product = matmul(q.t(), q);
  for (int64_t i = 0; i < 150; ++i)
    for (int64_t j = 0; j < 150; ++j) ASSERT_NEAR(product[i][j].item(), i == j ? 9.0 : 0.0, 1e-12);
}

TEST(nn_init, a_generator_is_drawn_from_and_the_default_one_left_alone) {
  Generator g = make_generator();
  g->manual_seed(5);
  auto before = default_generator()->get_state();
  Tensor a = init::kaiming_uniform_(empty({4, 4}), 0, "fan_in", "relu", g),
         b = init::kaiming_uniform_(empty({4, 4}), 0, "fan_in", "relu", g);
  EXPECT_NE(a.to_vector(), b.to_vector());
  g->manual_seed(5);
  EXPECT_EQ(init::kaiming_uniform_(empty({4, 4}), 0, "fan_in", "relu", g).to_vector(), a.to_vector());
  EXPECT_EQ(default_generator()->get_state(), before);
}

TEST(nn_init, gains_are_torchs) {
  EXPECT_EQ(init::calculate_gain("conv_transpose2d"), 1);
  EXPECT_EQ(init::calculate_gain("sigmoid"), 1);
  EXPECT_EQ(init::calculate_gain("tanh"), 5.0 / 3);
  EXPECT_EQ(init::calculate_gain("relu"), std::sqrt(2.0));
  EXPECT_EQ(init::calculate_gain("leaky_relu"), std::sqrt(2.0 / (1 + 0.01 * 0.01)));
  EXPECT_EQ(init::calculate_gain("leaky_relu", 2), std::sqrt(2.0 / 5));
  EXPECT_EQ(init::calculate_gain("selu"), 0.75);
  init::Fans fans = init::calculate_fan_in_and_fan_out(empty({6, 5, 3, 2}));
  EXPECT_EQ(fans.in, 30);
  EXPECT_EQ(fans.out, 36);
}

template <class E, class F> void expect_refusal(const char* text, const F& f) {
  try {
    f();
    ADD_FAILURE() << "not refused: " << text;
  } catch (const E& e) {
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
  }
}

TEST(nn_init, impossible_arguments_are_refused_before_anything_is_written) {
  Tensor v = full({3}, 7.0), m = full({3, 3}, 7.0), counts = full({3, 3}, 7, kInt64);
  uint32_t version = m.version();
  expect_refusal<ValueError>(
      "xavier_uniform_: fan in and fan out can not be computed for tensor with fewer than 2 dimensions",
      [&] { init::xavier_uniform_(v); });
  expect_refusal<ValueError>("kaiming_normal_: fan in and fan out", [&] { init::kaiming_normal_(v); });
  expect_refusal<ValueError>("mode 'fan_avg' is not supported, use 'fan_in' or 'fan_out'",
                             [&] { init::kaiming_normal_(m, 0, "fan_avg"); });
  expect_refusal<ValueError>("unsupported nonlinearity 'gelu'",
                             [&] { init::kaiming_uniform_(m, 0, "fan_in", "gelu"); });
  expect_refusal<ValueError>("eye_: only tensors with 2 dimensions", [&] { init::eye_(v); });
  expect_refusal<ValueError>("dirac_: only tensors with 3, 4, or 5 dimensions", [&] { init::dirac_(m); });
  expect_refusal<ValueError>("dim 0 must be divisible by groups", [&] { init::dirac_(empty({4, 2, 3}), 3); });
  expect_refusal<ValueError>("dim 0 must be divisible by groups", [&] { init::dirac_(empty({4, 2, 3}), 0); });
  expect_refusal<ValueError>("orthogonal_: only tensors with 2 or more dimensions", [&] { init::orthogonal_(v); });
  expect_refusal<ValueError>("sparse_: only tensors with 2 dimensions", [&] { init::sparse_(v, 0.5); });
  expect_refusal<ValueError>("sparsity is a fraction", [&] { init::sparse_(m, 1.5); });
  expect_refusal<ValueError>("std must be positive", [&] { init::trunc_normal_(m, 0, 0); });
  expect_refusal<ValueError>("a must be less than b", [&] { init::trunc_normal_(m, 0, 1, 2, -2); });
  expect_refusal<ValueError>("must be finite", [&] { init::trunc_normal_(m, 0, 1, 3, INFINITY); });
  expect_refusal<ValueError>("normal_: std must not be negative", [&] { init::normal_(m, 0, -1); });
  expect_refusal<ValueError>("std must not be negative", [&] { init::xavier_normal_(m, -1); });
  expect_refusal<TypeError>("must be a floating-point tensor", [&] { init::kaiming_uniform_(counts); });
  expect_refusal<TypeError>("ones_: tensor must be a tensor", [&] { init::ones_({}); });
  EXPECT_EQ(m.version(), version);
  EXPECT_EQ(m.to_vector(), std::vector<double>(9, 7.0));
}

TEST(nn_init, the_meta_device_has_shapes_only) {
  Tensor x = empty({3, 3, 3}, {}, Device(Device::Meta));
  for (auto* fill : {&init::ones_, &init::zeros_}) EXPECT_TRUE(fill(x).is_same(x));
  EXPECT_TRUE(init::orthogonal_(x).is_same(x));
  EXPECT_TRUE(init::dirac_(x).is_same(x));
  EXPECT_TRUE(init::trunc_normal_(x).is_same(x));
  EXPECT_TRUE(init::kaiming_normal_(x).is_same(x));
}

}  // namespace
}  // namespace sf::nn::test
