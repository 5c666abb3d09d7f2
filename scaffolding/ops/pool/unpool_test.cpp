#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/pool/pool.h"

namespace sf::test {

namespace {
Tensor places_of(const std::vector<int64_t>& at, const Shape& size) { return tensor(at, size, kInt64); }
}  // namespace

SF_OP_TEST(lp_pool1d) {
  sample(rand({2, 3, 7}, 0.1, 2), 2.0, Shape{3}, Shape{2});
  sample(rand({3, 7}, 0.1, 2), 3.5, Shape{2}, none, true);
  sample(rand({7, 3}, 0.1, 2).transpose(0, 1), 1.0, Shape{2});
  rejects("norm_type must not be 0", randn({2, 3, 7}), 0.0, Shape{2});
  rejects("does not fit", randn({2, 3, 7}), 2.0, Shape{9});
}
SF_OP_TEST(lp_pool2d) {
  sample(rand({2, 3, 5, 6}, 0.1, 2), 2.0, Shape{2});
  sample(rand({3, 5, 6}, 0.1, 2), 1.5, Shape{3, 2}, Shape{2, 1}, true);
  sample(rand({0, 3, 5, 6}), 2.0, Shape{2});
  rejects("spatial dimensions", randn({6}), 2.0, Shape{2});
}
SF_OP_TEST(lp_pool3d) {
  sample(rand({1, 2, 4, 5, 3}, 0.1, 2), 2.0, Shape{2});
  sample(rand({2, 4, 5, 3}, 0.1, 2), 3.0, Shape{2, 3, 1}, Shape{1}, true);
  rejects("kernel_size must have one entry or 3", randn({1, 2, 4, 5, 3}), 2.0, Shape{2, 2});
}
SF_OP_TEST(max_unpool1d) {
  sample(randn({1, 2, 3}), places_of({1, 2, 5, 0, 3, 4}, {1, 2, 3}), Shape{2});
  sample(randn({3, 2}).transpose(0, 1), places_of({1, 3, 5, 0, 3, 6}, {2, 3}), Shape{3}, Shape{2}, Shape{0}, Shape{8});
  rejects("indices must be int64", randn({1, 2, 3}), randn({1, 2, 3}), Shape{2});
  rejects("must have input's shape", randn({1, 2, 3}), places_of({1, 2, 5}, {1, 1, 3}), Shape{2});
  rejects("output_size must be between", randn({1, 1, 3}), places_of({1, 2, 5}, {1, 1, 3}), Shape{2}, none, Shape{0},
          Shape{9});
  rejects("output_size must have", randn({1, 1, 3}), places_of({1, 2, 5}, {1, 1, 3}), Shape{2}, none, Shape{0},
          Shape{6, 6});
  rejects("out of range", randn({1, 1, 3}), places_of({1, 2, 6}, {1, 1, 3}), Shape{2});
}
SF_OP_TEST(max_unpool2d) {
  sample(randn({1, 1, 2, 2}), places_of({0, 3, 13, 10}, {1, 1, 2, 2}), Shape{2});
  sample(randn({1, 2, 2}), places_of({6, 8, 16, 18}, {1, 2, 2}), Shape{2}, Shape{2}, Shape{0}, Shape{1, 1, 5, 5})
      .no_golden();  // torch wants sizes alone without a batch
  sample(randn({0, 1, 2, 2}), places_of({}, {0, 1, 2, 2}), Shape{2});
  rejects("no place", randn({1, 1, 1, 1}), places_of({0}, {1, 1, 1, 1}), Shape{2}, none, Shape{1});
}
SF_OP_TEST(max_unpool3d) {
  sample(randn({1, 1, 1, 2, 2}), places_of({0, 3, 29, 26}, {1, 1, 1, 2, 2}), Shape{2});
  sample(randn({1, 1, 2, 2}), places_of({0, 3, 29, 26}, {1, 1, 2, 2}), Shape{2}, Shape{2, 2, 2});
  rejects("stride must have one entry or 3", randn({1, 1, 2, 2}), places_of({0, 3, 29, 26}, {1, 1, 2, 2}), Shape{2},
          Shape{1, 2});
}
SF_OP_TEST(fractional_max_pool2d_with_indices) {
  sample(distinct({2, 1, 5, 6}), Shape{2}, Shape{3, 4}, none, rand({2, 1, 2}, 0.05, 0.95)).no_low_precision();
  sample(distinct({2, 7, 6}).transpose(1, 2), Shape{3, 2}, none, Floats{0.5, 0.6}, rand({1, 2, 2}, 0.05, 0.95))
      .no_low_precision();
  sample(distinct({1, 1, 4, 4}), Shape{2}, Shape{1, 1}, none, rand({1, 1, 2})).no_low_precision();
  rejects("got neither", randn({1, 1, 4, 4}), Shape{2});
  rejects("got both", randn({1, 1, 4, 4}), Shape{2}, Shape{2}, Floats{0.5});
  rejects("do not fit", randn({1, 1, 4, 4}), Shape{2}, Shape{4});
  rejects("output_ratio must be between 0 and 1", randn({1, 1, 4, 4}), Shape{2}, none, Floats{1.5});
  rejects("_random_samples must have shape", randn({1, 1, 4, 4}), Shape{2}, Shape{2}, none, rand({1, 2, 2}));
}
SF_OP_TEST(fractional_max_pool3d_with_indices) {
  sample(distinct({1, 2, 3, 4, 4}), Shape{2}, Shape{1, 2, 2}, none, rand({1, 2, 3}, 0.05, 0.95)).no_low_precision();
  sample(distinct({1, 4, 4, 5}), Shape{2, 1, 3}, none, Floats{0.5, 0.4, 0.4}, rand({1, 1, 3}, 0.05, 0.95))
      .no_low_precision();
  rejects("one entry or 3", randn({1, 1, 4, 4, 4}), Shape{2}, none, Floats{0.5, 0.5});
}

TEST(fractional_max_pool, draws_where_no_samples_are_given) {
  Tensor x = arange(0, 4 * 81, 1, kFloat32).reshape({2, 2, 9, 9});
  auto [y, at] = fractional_max_pool2d_with_indices(x, {2}, {5});
  EXPECT_EQ(y.shape(), (Shape{2, 2, 5, 5}));
  Tensor values = x.reshape({2, 2, 81});
  for (int64_t plane = 0; plane < 4; ++plane)
    for (int64_t i = 0; i < 25; ++i)
      EXPECT_EQ(y.data<float>()[plane * 25 + i], values.data<float>()[plane * 81 + at.data<int64_t>()[plane * 25 + i]]);
  EXPECT_EQ(y.data<float>()[99], 4 * 81 - 1) << "the last window ends where the input does";
}

}  // namespace sf::test
