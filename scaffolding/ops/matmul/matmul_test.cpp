#include <cmath>
#include <tuple>

#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/view/view.h"

namespace sf::test {

SF_OP_TEST(matmul) {
  sample(randn({5, 7}), randn({7, 3}));
  sample(randn({7}), randn({7}));
  sample(randn({7}), randn({7, 4}));
  sample(randn({2, 5, 7}), randn({7}));
  sample(randn({2, 5, 7}), randn({7, 6}));
  sample(randn({2, 1, 5, 7}), randn({3, 7, 4}));
  sample(randn({7, 33}).transpose(0, 1), randn({20, 7}).transpose(0, 1));
  sample(randn({0, 7}), randn({7, 3}));
  sample(randn({4, 0}), randn({0, 3})).no_golden();
  sample(randint(-5, 5, {4, 6}), randint(-5, 5, {6, 2}));
  rejects("equal inner sizes", randn({2, 3}), randn({4, 2}));
  rejects("one dtype", randn({2, 3}), randint(0, 3, {3, 2}));
  rejects("at least one dimension", randn({}), randn({3}));
  rejects("do not broadcast", randn({2, 3, 4}), randn({3, 4, 5}));
}
SF_OP_TEST(mm) {
  sample(randn({65, 17}), randn({17, 70}));
  rejects("two matrices", randn({3}), randn({3, 2}));
}
SF_OP_TEST(bmm) {
  sample(randn({3, 4, 5}), randn({3, 6, 5}).transpose(1, 2));
  rejects("needs [B, M, K]", randn({3, 4, 5}), randn({2, 5, 6}));
}
SF_OP_TEST(mv) {
  sample(randn({9, 5}), randn({5}));
  rejects("a matrix and a vector", randn({5}), randn({5}));
}
SF_OP_TEST(dot) {
  sample(randn({19}), randn({19}));
  rejects("two vectors", randn({2, 2}), randn({2}));
}
SF_OP_TEST(outer) {
  sample(randn({4}), randn({6}));
  rejects("two vectors", randn({2, 2}), randn({2}));
}
SF_OP_TEST(addmm) {
  sample(randn({5}), randn({4, 3}), randn({3, 5}));
  sample(randn({4, 5}), randn({4, 3}), randn({3, 5}), 0.5, -2.0);
  sample(randn({4, 5}), randn({4, 3}), randn({3, 5}), 0, 1);
  rejects("does not broadcast", randn({3, 4, 5}), randn({4, 3}), randn({3, 5}));
}
SF_OP_TEST(baddbmm) { sample(randn({2, 1, 5}), randn({2, 4, 3}), randn({2, 3, 5}), 2, 0.5); }
SF_OP_TEST(linear) {
  sample(randn({4, 9, 17}), randn({21, 17}), randn({21}));
  sample(randn({17}), randn({21, 17}));
  sample(randn({6, 5}).transpose(0, 1), randn({3, 6}), randn({3}));
  rejects("must be weight's second", randn({4, 5}), randn({3, 6}));
  rejects("bias must have shape", randn({4, 5}), randn({3, 5}), randn({5}));
}

// Products with a vector, or with a few: dot products of rows as they lie, in any size, with whatever is added.
TEST(matmul, a_matrix_and_few_columns_are_the_products_of_their_rows) {
  for (DType t : {kFloat32, kBFloat16, kFloat16})
    for (auto [m, n, k] : {std::tuple{1, 1, 1000}, {1, 1, 7}, {1, 1, 4099}, {37, 1, 70}, {200, 3, 129}, {33, 2, 16}}) {
      auto numbers = [&](Shape shape) { return to_dtype(sf::randn(shape), t); };
      const Tensor a = numbers({m, k}), b = numbers({n, k}), c = numbers({m, n}), bias = numbers({n});
      auto wide = [](const Tensor& x) { return to_dtype(x, kFloat64); };
      const Tensor product = matmul(wide(a), wide(b).t());
      const double digit = t == kFloat32 ? 1e-6 : t == kFloat16 ? 1e-3 : 8e-3;  // and how sums are rounded on the way
      auto expect_near = [&](const Tensor& got, const Tensor& want, const char* what) {
        const auto x = got.to_vector(), y = want.to_vector();
        ASSERT_EQ(x.size(), y.size());
        for (size_t i = 0; i < x.size(); ++i)
          ASSERT_NEAR(x[i], y[i], digit * (std::abs(y[i]) + std::sqrt(double(k))))
              << what << ' ' << m << 'x' << n << 'x' << k << ' ' << name(t);
      };
      expect_near(matmul(a, b.t()), product, "product");
      expect_near(linear(a, b, bias), product + wide(bias), "bias");
      expect_near(addmm(c, a, b.t(), 0.5, 2), wide(c) * 0.5 + product * 2, "added");
      if (n == 1) expect_near(mv(a, b.select(0, 0)), product.select(1, 0), "mv");
      if (m == 1 && n == 1) expect_near(dot(a.select(0, 0), b.select(0, 0)), product.select(0, 0).select(0, 0), "dot");
    }
}

}  // namespace sf::test
