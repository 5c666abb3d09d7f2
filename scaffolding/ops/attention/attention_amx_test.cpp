// Attention of bfloat16 at sizes where tiles (AMX) begin, end and are padded, against the kernels of float32 on the
// same numbers. Without tiles it checks the other kernels of bfloat16; SF_ISA=amx_emulated has them everywhere.
#include <gtest/gtest.h>

#include <cmath>

#include "scaffolding/core/generator.h"
#include "scaffolding/ops/attention/attention.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
namespace {

struct Case {
  int64_t heads, key_heads, queries, keys, width, value_width;
  enum Mask { None, Causal, Bool, KeyPadding, Float, Turned, Scalar } mask = None;
  double scale = 0;  // 0: the op's own
};

Tensor mask_of(const Case& c) {
  switch (c.mask) {
    case Case::Bool: {
      Tensor x = gt(randn({2, c.heads, c.queries, c.keys}), full({}, -0.5));
      x.slice(2, 1, 3, 1).copy_(zeros({}, kBool));  // rows that see nothing
      return x;
    }
    case Case::KeyPadding:
      return lt(arange(0, c.keys), full({}, int64_t(c.keys - 5), kInt64)).reshape({1, 1, 1, c.keys});
    case Case::Float: return randn({1, c.heads, c.queries, c.keys});
    case Case::Turned: return to_dtype(randn({2, 1, c.keys, c.queries}), kBFloat16).transpose(2, 3);
    case Case::Scalar: return randn({c.queries, 1});
    default: return Tensor();
  }
}

struct Results {
  Tensor y, dq, dk, dv, dmask;
};
Results attend(const Case& c, DType t, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
               const Tensor& dy) {
  auto leaf = [&](const Tensor& x) { return to_dtype(x, t).detach().requires_grad_(); };
  Tensor a = leaf(q), b = leaf(k), d = leaf(v), m = mask;
  if (m && is_floating(m.dtype()) && c.mask != Case::Scalar) m = m.detach().requires_grad_();
  // [B, L, H, D] in memory, as the projections of a model leave it.
  Tensor y = scaled_dot_product_attention(
      a.transpose(1, 2), b.transpose(1, 2), d.transpose(1, 2), m, 0, c.mask == Case::Causal,
      c.scale == 0 ? std::optional<double>() : std::optional<double>(c.scale), c.heads != c.key_heads);
  sum(y * to_dtype(dy, t)).backward();
  return {y.detach(), a.grad(), b.grad(), d.grad(), m && m.requires_grad() ? m.grad() : Tensor()};
}

// Weights, gradients of scores and results are rounded to 8 bits, each by up to 2^-9; an element that is the difference
// of larger terms carries theirs. `least`: what the terms of a sum are like whose result may be zero.
void expect_close(const char* what, const Tensor& got, const Tensor& want, double least = 0) {
  ASSERT_TRUE(bool(got));
  auto a = got.to_vector(), b = want.to_vector();
  ASSERT_EQ(a.size(), b.size());
  double error = 0, square = 1e-30, worst = 0;
  for (size_t i = 0; i < a.size(); ++i) error += (a[i] - b[i]) * (a[i] - b[i]), square += b[i] * b[i];
  const double typical = std::max(std::sqrt(square / double(a.size())), least);
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]) / (typical + std::abs(b[i])));
  EXPECT_LT(std::sqrt(error / double(a.size())) / typical, 6e-3) << what;
  EXPECT_LT(worst, 0.05) << what;
}

void check(const Case& c) {
  SCOPED_TRACE(::testing::Message() << "heads " << c.heads << ":" << c.key_heads << " queries " << c.queries << " keys "
                                    << c.keys << " width " << c.width << ", " << c.value_width << " mask " << c.mask);
  auto draw = [](const Shape& shape) { return to_dtype(randn(shape), kBFloat16); };
  const Tensor q = draw({2, c.queries, c.heads, c.width}), k = draw({2, c.keys, c.key_heads, c.width}),
               v = draw({2, c.keys, c.key_heads, c.value_width}), dy = draw({2, c.heads, c.queries, c.value_width}),
               mask = mask_of(c);
  const Results want = attend(c, kFloat32, q, k, v, mask, dy), got = attend(c, kBFloat16, q, k, v, mask, dy);
  const double least = c.keys == 1 || c.mask == Case::Scalar ? 0.1 : 0;  // the weights do not change at all
  expect_close("y", got.y, want.y);
  expect_close("dv", got.dv, want.dv);
  expect_close("dq", got.dq, want.dq, least);
  expect_close("dk", got.dk, want.dk, least);
  if (want.dmask) expect_close("dmask", got.dmask, want.dmask, least);
}

TEST(attention_of_bfloat16, at_every_head_size) {
  manual_seed(1);
  for (int64_t d : {8, 16, 24, 40, 64, 72, 80, 96, 128, 160, 256}) check({1, 1, 50, 70, d, d});
  check({1, 1, 33, 40, 512, 512});
  check({2, 2, 40, 48, 37, 21});
  check({1, 1, 40, 48, 72, 130});
}

TEST(attention_of_bfloat16, at_odd_lengths) {
  manual_seed(2);
  for (auto [queries, keys] : {std::pair{16, 16},
                               {17, 31},
                               {31, 33},
                               {32, 256},
                               {33, 257},
                               {129, 289},
                               {200, 77},
                               {15, 40},
                               {40, 1},
                               {300, 300}})
    check({2, 2, queries, keys, 40, 40});
}

TEST(attention_of_bfloat16, with_masks) {
  manual_seed(3);
  for (auto mask : {Case::Causal, Case::Bool, Case::KeyPadding, Case::Float, Case::Turned, Case::Scalar}) {
    check({2, 2, 70, 90, 64, 64, mask});
    check({2, 1, 33, 290, 40, 48, mask});
  }
  check({1, 1, 300, 50, 32, 32, Case::Causal});
  check({1, 1, 50, 300, 32, 32, Case::Causal});
  check({1, 1, 600, 600, 16, 16, Case::Causal});
}

TEST(attention_of_bfloat16, of_grouped_queries_and_negative_scale) {
  manual_seed(4);
  check({4, 2, 37, 65, 64, 64});
  check({8, 1, 5, 100, 128, 128, Case::Float});
  check({6, 2, 21, 50, 80, 80, Case::Causal});
  check({2, 2, 40, 40, 64, 64, Case::None, -0.2});
  check({2, 1, 40, 40, 40, 40, Case::Causal, -0.2});
}

// Scores that grow along the keys move the maximum in every tile; one large score leaves the other weights at nothing.
TEST(attention_of_bfloat16, rescales_what_was_summed) {
  manual_seed(5);
  const int64_t keys = 600, queries = 40, width = 32;
  Tensor q = full({1, 1, queries, width}, 1.0), k = randn({1, 1, keys, width}), v = randn({1, 1, keys, width});
  for (int64_t i = 0; i < keys; ++i)
    for (int64_t d = 0; d < width; ++d) k.data<float>()[i * width + d] += float(i) * 0.02f;
  for (Tensor* t : {&q, &k, &v}) *t = to_dtype(*t, kBFloat16);
  const Tensor got = scaled_dot_product_attention(q, k, v, {}, 0, false, 1.0),
               want = scaled_dot_product_attention(q.to(kFloat32), k.to(kFloat32), v.to(kFloat32), {}, 0, false, 1.0);
  expect_close("y", got, want);
}

TEST(attention_of_bfloat16, passes_nan_on_and_hides_what_is_masked) {
  manual_seed(6);
  Tensor q = to_dtype(randn({1, 1, 20, 32}), kBFloat16), k = to_dtype(randn({1, 1, 40, 32}), kBFloat16),
         v = to_dtype(randn({1, 1, 40, 32}), kBFloat16);
  q.data<BFloat16>()[3 * 32] = from_float<BFloat16>(std::nanf(""));
  const auto y = scaled_dot_product_attention(q, k, v).to_vector();
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 32 == 3) << i;
  const Tensor nothing = scaled_dot_product_attention(k, k, v, zeros({40, 40}, kBool));
  for (double x : nothing.to_vector()) EXPECT_EQ(x, 0);
}

}  // namespace
}  // namespace sf
