#include "scaffolding/ops/scatter_reduce/scatter_reduce.h"

#include <cmath>

#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(scatter_reduce) {
  for (const char* how : {"sum", "prod", "mean", "amax", "amin"}) {
    sample(distinct({3, 2}), 0, randint(0, 3, {4, 2}), distinct({4, 2}), how);
    sample(distinct({2, 3}), 1, randint(0, 3, {2, 3}), distinct({2, 3}), how, false);
  }
  sample(distinct({4, 3}).transpose(0, 1), -1, randint(0, 4, {2, 7}), distinct({7, 2}).transpose(0, 1), "prod");
  sample(randint(-4, 5, {6}), 0, randint(0, 6, {9}), randint(-4, 5, {9}), "mean", false);
  sample(randint(-4, 5, {6}), 0, randint(0, 6, {9}), randint(-4, 5, {9}), "amax", false);
  // src larger than index, which torch cannot differentiate
  sample(distinct({4, 3}), 1, randint(0, 3, {3, 4}), distinct({5, 6}), "mean").no_golden();
  // a product with one 0 has a gradient for that 0 alone, one with two has none
  sample(tensor({2., 0, 3}, kFloat64), 0, tensor({0., 0, 1, 2, 2, 2}, kInt64), tensor({4., 0, 5, 0, 0, 7}, kFloat64),
         "prod");
  sample(tensor({1., NAN, 3}, kFloat64), 0, tensor({0., 1, 2, 2}, kInt64), tensor({NAN, 4., 5, 6}, kFloat64), "amax")
      .no_grad();  // NaN
  sample(randn({3}), 0, randint(0, 3, {0}), randn({0}), "amax");
  sample(randn({}), 0, tensor({0}, kInt64).reshape({}), randn({}), "sum");
  rejects("reduce must be", randn({3}), 0, randint(0, 3, {2}), randn({2}), "max");
  rejects("must not be larger than src", randn({3}), 0, randint(0, 3, {4}), randn({2}), "sum");
  rejects("must not be larger than input", randn({3, 2}), 0, randint(0, 3, {4, 3}), randn({4, 3}), "sum");
  rejects("as many dimensions", randn({3, 2}), 0, randint(0, 3, {4}), randn({4}), "sum");
  rejects("must have the dtype of input", randn({3}), 0, randint(0, 3, {4}), randint(0, 3, {4}), "sum");
  rejects("index 3 is out of range", randn({3}), 0, randint(3, 4, {4}), randn({4}), "prod");
  rejects("bool tensors have no prod", boolean({3}), 0, randint(0, 3, {4}), boolean({4}), "prod");
}

}  // namespace sf::test
