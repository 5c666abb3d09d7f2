#include "scaffolding/ops/embedding_bag/embedding_bag.h"

#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"

namespace sf::test {

namespace {

Tensor ints(const std::vector<int64_t>& v) { return tensor(v, {int64_t(v.size())}); }

}  // namespace

SF_OP_TEST(embedding_bag) {
  sample(randint(0, 4, {3, 2}), randn({4, 2}));
  sample(randint(0, 4, {9}), randn({4, 2}), ints({0, 4, 4, 7}), false, "sum", randn({9}));
  sample(ints({0, 1, 2, 3, 4, 5, 6}), distinct({7, 2}), ints({0, 2, 2}), false, "max");
  sample(randint(0, 4, {9}, kInt32), randn({2, 4}).transpose(0, 1), ints({0, 5, 9}), false, "mean", none, true);
  sample(randint(0, 3, {3, 4}), randn({3, 2}), none, false, "sum", randn({3, 4}), false, 1);
  sample(randint(0, 3, {2, 6}), randn({3, 2}), none, false, "mean", none, false, -1);
  sample(randint(0, 3, {2, 6}), randn({3, 2}), none, true, "sum").no_grad();  // a mean over equal numbers, on purpose
  sample(randint(0, 3, {0}), randn({3, 2}), ints({0, 0}));
  rejects("needs offsets", randint(0, 3, {4}), randn({3, 2}));
  rejects("offsets are for", randint(0, 3, {2, 2}), randn({3, 2}), ints({0}));
  rejects("must begin with 0", randint(0, 3, {4}), randn({3, 2}), ints({1, 2}));
  rejects("must not decrease", randint(0, 3, {4}), randn({3, 2}), ints({0, 3, 2}));
  rejects("must not be above 4", randint(0, 3, {4}), randn({3, 2}), ints({0, 5}));
  rejects("per_sample_weights are for mode 'sum'", randint(0, 3, {2, 2}), randn({3, 2}), none, false, "mean",
          randn({2, 2}));
  rejects("per_sample_weights must have shape", randint(0, 3, {2, 2}), randn({3, 2}), none, false, "sum", randn({4}));
  rejects("mode must be", randint(0, 3, {2, 2}), randn({3, 2}), none, false, "min");
  rejects("out of range", randint(3, 4, {2, 2}), randn({3, 2}));
  rejects("padding_idx must be in", randint(0, 3, {2, 2}), randn({3, 2}), none, false, "sum", none, false, 3);
  rejects("scale_grad_by_freq is for", randint(0, 3, {2, 2}), randn({3, 2}), none, true, "max");
  rejects("weight must be", randint(0, 3, {2, 2}), randn({3}));
}

}  // namespace sf::test
