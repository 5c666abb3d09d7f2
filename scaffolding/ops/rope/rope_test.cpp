#include <cmath>

#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/rope/rope.h"

namespace sf::test {

// Tables for L positions and D elements; both entries of a pair are equal.
static std::pair<Tensor, Tensor> tables(int64_t length, int64_t dim, bool interleaved) {
  Tensor c = empty({length, dim}, kFloat64), s = empty({length, dim}, kFloat64);
  for (int64_t l = 0; l < length; ++l)
    for (int64_t d = 0; d < dim; ++d) {
      double angle = double(l) / std::pow(100.0, double(interleaved ? d / 2 : d % (dim / 2)) / double(dim / 2));
      c.data<double>()[l * dim + d] = std::cos(angle);
      s.data<double>()[l * dim + d] = std::sin(angle);
    }
  return {c, s};
}

TEST(apply_rotary_emb, rotates_pairs_and_its_gradient_rotates_back) {
  for (bool interleaved : {true, false}) {
    auto [c, s] = tables(5, 6, interleaved);
    Tensor x = arange(0, 2 * 5 * 8, 1, kFloat64).reshape({2, 5, 8}).requires_grad_();
    Tensor y = apply_rotary_emb(x, c, s, interleaved);
    auto a = x.to_vector(), b = y.to_vector();
    int64_t row = 3, i = 1, first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : i + 3;
    double cs = c.to_vector()[size_t(row * 6 + first)], sn = s.to_vector()[size_t(row * 6 + first)];
    EXPECT_NEAR(b[size_t(row * 8 + first)], a[size_t(row * 8 + first)] * cs - a[size_t(row * 8 + second)] * sn, 1e-12);
    EXPECT_NEAR(b[size_t(row * 8 + second)], a[size_t(row * 8 + second)] * cs + a[size_t(row * 8 + first)] * sn, 1e-12);
    EXPECT_EQ(b[size_t(row * 8 + 7)], a[size_t(row * 8 + 7)]);
    y.backward(y.detach());  // a rotation keeps lengths: pulling y back gives x
    for (size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(x.grad().to_vector()[k], a[k], 1e-10);
  }
}

SF_OP_TEST(apply_rotary_emb) {  // the tables are constants: they get no gradient
  sample(randn({2, 5, 8}), randn({5, 6}), randn({5, 6})).no_grad();
  sample(randn({2, 5, 8}), randn({5, 8}), randn({5, 8}), false).no_grad();
  rejects("must be even", randn({2, 5, 8}), randn({5, 5}), randn({5, 5}));
  rejects("sin must have shape", randn({2, 5, 8}), randn({5, 8}), randn({4, 8}));
  rejects("do not broadcast", randn({2, 5, 8}), randn({4, 8}), randn({4, 8}));
}

}  // namespace sf::test
