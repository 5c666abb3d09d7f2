#include "scaffolding/ops/reduce/running.h"

#include <cmath>

#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::test {

SF_OP_TEST(cummax) {
  sample(distinct({2, 5}), 1);
  sample(distinct({2, 3, 2}).transpose(0, 2), 1);
  sample(randint(0, 3, {6, 2}), 0);
  sample(tensor({1, kNan, 3, kNan, 5}, kFloat64), 0).no_grad();  // NaN
  sample(boolean({6}), 0);
  sample(randn({}), 0);
  sample(randn({3, 0}), 1);
  rejects("dim must be in", randn({3}), 1);
}
SF_OP_TEST(cummin) {
  sample(distinct({2, 5}), -1);
  sample(randint(0, 3, {6, 2}, kUInt8), 0);
  sample(tensor({1, kNan, 3, kNan, 0}, kFloat64), 0).no_grad();  // NaN
  rejects("dim must be in", randn({3}), 1);
}
SF_OP_TEST(logcumsumexp) {
  sample(randn({2, 5}), 1);
  sample(randn({2, 3, 2}).transpose(0, 2), 1);
  sample(tensor({-kInf, -1000, 3, 1000, 999, kInf, 2}, kFloat64), 0).no_grad();  // infinities
  sample(tensor({2, kNan, 3}, kFloat64), 0).no_grad();
  sample(randn({}), 0);
  sample(randn({3, 0}), 1);
  rejects("floating-point", randint(0, 4, {3}), 0);
  rejects("dim must be in", randn({3}), 1);
}

}  // namespace sf::test
