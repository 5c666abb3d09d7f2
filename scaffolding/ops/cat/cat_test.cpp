#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/view/view.h"

namespace sf::test {

static Tensor channels_last(const Tensor& t) { return t.contiguous(MemoryFormat::ChannelsLast); }

SF_OP_TEST(cat) {
  sample(Tensors{randn({2, 3}), randn({4, 3})});
  sample(Tensors{randn({20, 2, 3}), randn({20, 4, 3})}, 1);
  sample(Tensors{randn({3, 4}).transpose(0, 1), randn({4, 2})}, -1);
  sample(Tensors{channels_last(randn({2, 3, 4, 5})), channels_last(randn({2, 5, 4, 5}))}, 1);
  sample(Tensors{channels_last(randn({2, 3, 4, 5})), channels_last(randn({2, 3, 2, 5}))}, 2);
  sample(Tensors{randn({0}), randn({2, 3})}, 1);
  sample(Tensors{randn({2, 0}), randn({2, 3})}, 1);
  sample(Tensors{randn({2, 3}), randint(0, 9, {2, 3}, kInt32)});
  sample(Tensors{boolean({3}), randint(0, 9, {3}, kUInt8)});
  rejects("at least one tensor", Tensors{});
  rejects("sizes must match", Tensors{randn({2, 3}), randn({2, 4})});
  rejects("same number of dimensions", Tensors{randn({2, 3}), randn({2})});
  rejects("0-d tensors", Tensors{randn({}), randn({})});
  rejects("dim must be in", Tensors{randn({2}), randn({2})}, 1);
  rejects("must be a tensor", Tensors{randn({2}), Tensor()});
}
SF_OP_TEST(stack) {
  sample(Tensors{randn({2, 3}), randn({2, 3})});
  sample(Tensors{randn({2, 3}), randn({3, 2}).transpose(0, 1)}, -1);
  sample(Tensors{randn({}), randn({})});
  rejects("equal shapes", Tensors{randn({2}), randn({3})});
  rejects("at least one tensor", Tensors{});
}
SF_OP_TEST(repeat) {
  sample(randn({2, 3}), Shape{2, 2});
  sample(randn({3, 2}).transpose(0, 1), Shape{2, 1, 3});
  sample(randn({2, 3}), Shape{0, 2});
  sample(randn({}), Shape{4});
  sample(randn({1, 2, 1, 2, 1, 2, 1}), Shape{2, 1, 2, 1, 2, 1, 2, 2});
  rejects("a count for each dimension", randn({2, 3}), Shape{2});
  rejects("must not be negative", randn({2}), Shape{-1});
  rejects("too large", randn({2}), Shape{int64_t(1) << 62});
}
SF_OP_TEST(tile) {
  sample(randn({2, 3}), Shape{2});
  sample(randn({2}), Shape{2, 3});
}
SF_OP_TEST(repeat_interleave) {
  sample(randn({2, 3}), 2);
  sample(randn({2, 3}), 2, 1);
  sample(randn({3, 2}).transpose(0, 1), 3, 0);
  sample(randn({2, 3}), tensor({2., 0., 3.}, kInt64), 1, 5);
  sample(randn({2, 3}), tensor({2., 1.}, kInt64), 0).no_meta();  // the shape is the sum of repeats
  sample(randn({2, 3}), 0, 1);
  rejects("must not be negative", randn({2}), -1, 0);
  rejects("one number or one for each", randn({3}), tensor({1., 2.}, kInt64), 0);
  rejects("must be integers", randn({3}), tensor({1., 2., 1.}), 0);
  rejects("must be the sum", randn({2}), tensor({1., 2.}, kInt64), 0, 4);
}
SF_OP_TEST(meshgrid) {
  sample(Tensors{randn({2}), randn({3})});
  sample(Tensors{randn({2}), randn({3}), randn({})}, "xy");
  rejects("must be 1-D", Tensors{randn({2, 2})});
  rejects("'ij' or 'xy'", Tensors{randn({2})}, "yx");
}
SF_OP_TEST(roll) {
  sample(randn({3, 4}), 5);
  sample(randn({3, 4}).transpose(0, 1), Shape{1, -1}, Shape{0, 1});
  sample(channels_last(randn({1, 2, 3, 4})), Shape{1, 2}, Shape{2, 3});
  sample(randn({0, 4}), 1, 0);
  rejects("same length", randn({3}), Shape{1, 2}, Shape{0});
  rejects("one shift is needed", randn({3}), Shape{1, 2});
  rejects("dim must be in", randn({3}), 1, 1);
}
SF_OP_TEST(flip) {
  sample(randn({3, 4}), Shape{0});
  sample(randn({3, 4}).transpose(0, 1), Shape{0, 1});
  sample(channels_last(randn({1, 2, 3, 4})), Shape{1, 3});
  sample(randn({0, 4}), Shape{0});
  sample(randn({4}).expand({3, 4}), Shape{0, 1});
  rejects("appears twice", randn({3}), Shape{0, 0});
}
SF_OP_TEST(tril) {
  sample(randn({3, 4}));
  sample(randn({2, 4, 3}).transpose(1, 2), 1);
  sample(randn({2, 3, 3}), int64_t(-9223372036854775807));
  sample(randn({0, 3}));
  rejects("at least 2 dimensions", randn({3}));
}
SF_OP_TEST(triu) {
  sample(randn({3, 4}));
  sample(randn({2, 4, 3}).transpose(1, 2), -1);
  sample(randn({3, 3}), int64_t(9223372036854775807));
  rejects("at least 2 dimensions", randn({3}));
}
SF_OP_TEST(one_hot) {
  sample(randint(0, 4, {2, 3}), 5);
  sample(randint(0, 4, {5})).no_meta();  // the number of classes is read from the values
  sample(randint(0, 4, {0}), 3);
  rejects("out of range", randint(3, 4, {2}), 3);
  rejects("out of range", tensor({-1.}, kInt64), 3);
  rejects("must be integers", randn({2}));
  rejects("num_classes must be given", randint(0, 2, {0}));
}

// Rows that lie alike within a page, rows of a few bytes, elements between each other.
TEST(cat, moves_elements_whatever_their_rows_are) {
  for (DType t : {kUInt8, kBFloat16, kFloat32, kFloat64}) {
    auto counted = [&](Shape shape) { return to_dtype(arange(0, double(numel(shape)), 1, kInt64), t).view(shape); };
    const Tensor x = counted({20, 1500}), rolled = roll(x, {7}, {1});
    const auto from = x.to_vector(), to = rolled.to_vector();
    for (int64_t r = 0; r < 20; ++r)
      for (int64_t c = 0; c < 1500; ++c) ASSERT_EQ(to[size_t(r * 1500 + (c + 7) % 1500)], from[size_t(r * 1500 + c)]);
    const Tensor pixels = counted({3, 11, 40, 3}), mirrored = flip(pixels, {2});
    const auto image = pixels.to_vector(), mirror = mirrored.to_vector();
    for (int64_t row = 0; row < 33; ++row)
      for (int64_t w = 0; w < 40; ++w)
        for (int64_t c = 0; c < 3; ++c)
          ASSERT_EQ(mirror[size_t((row * 40 + 39 - w) * 3 + c)], image[size_t((row * 40 + w) * 3 + c)]);
    for (int64_t cols : {1, 2, 3, 15, 16, 17, 33, 1500}) {
      const Tensor row = x.narrow(1, 0, cols).contiguous(), turned = flip(row, {1});
      const auto a = row.to_vector(), b = turned.to_vector();
      for (int64_t r = 0; r < 20; ++r)
        for (int64_t c = 0; c < cols; ++c) ASSERT_EQ(b[size_t(r * cols + cols - 1 - c)], a[size_t(r * cols + c)]);
    }
    const Tensor y = flip(x, {0}), pairs = stack({x, y}, -1), three = cat({x.unsqueeze(2), pairs}, 2);
    const auto second = y.to_vector(), both = pairs.to_vector(), all = three.to_vector();
    for (size_t i = 0; i < from.size(); ++i) {
      ASSERT_EQ(both[2 * i], from[i]);
      ASSERT_EQ(both[2 * i + 1], second[i]);
      ASSERT_EQ(all[3 * i], from[i]);
      ASSERT_EQ(all[3 * i + 2], second[i]);
    }
  }
}
TEST(copy_, of_overlapping_rows_reads_them_before_they_are_written) {
  Tensor x = arange(0, 6000, 1, kFloat32);
  x.narrow(0, 3, 5997).copy_(x.narrow(0, 0, 5997));
  const auto numbers = x.to_vector();
  for (size_t i = 3; i < 6000; ++i) ASSERT_EQ(numbers[i], double(i) - 3);
}

}  // namespace sf::test
