#include "scaffolding/ops/index/index.h"

#include <limits>

#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf::test {

static Tensor at(std::initializer_list<double> values, DType dtype = kInt64) { return tensor(values, dtype); }

SF_OP_TEST(index) {
  sample(randn({4, 3, 5}), Tensors{at({0, -1, 2, 0})});
  sample(randn({4, 3, 5}), Tensors{Tensor(), at({0, 2}, kInt32), at({-1, 1})});
  // torch takes int32 and int64 only
  sample(randn({4, 3}), Tensors{at({0, -2}, kInt8), at({1, 2}, kInt16)}).no_golden();
  sample(randn({4, 3, 5}), Tensors{at({0, 2}), Tensor(), at({-1, 1})});       // not neighbours: in front
  sample(randn({4, 3}), Tensors{randint(0, 4, {2, 1}), randint(0, 3, {3})});  // broadcast
  sample(randn({3, 4}).transpose(0, 1), Tensors{Tensor(), randint(-3, 3, {2, 2})});
  sample(randn({4, 3}), Tensors{boolean({4, 3})}).no_meta();  // masks: the shape depends on values
  sample(randn({4, 3, 2}), Tensors{boolean({4}), Tensor(), at({1})}).no_meta();
  // torch warns: uint8 masks are old
  sample(randn({4, 3}), Tensors{Tensor(), at({1, 0, 1}, kUInt8)}).no_meta().no_golden();
  sample(randn({4, 3}), Tensors{at({})});
  sample(randn({0, 3}), Tensors{Tensor(), at({1})});
  rejects("index 4 is out of range for dimension 0 of size 4", randn({4, 3}), Tensors{at({0, 4})});
  rejects("index -4 is out of range for dimension 1 of size 3", randn({4, 3}), Tensors{Tensor(), at({-4})});
  rejects("too many indices", randn({4}), Tensors{at({0}), at({0})});
  rejects("too many indices", randn({4}), Tensors{boolean({4, 1})});
  rejects("does not match", randn({4, 3}), Tensors{boolean({3})});
  rejects("do not broadcast", randn({4, 3}), Tensors{at({0, 1}), at({0, 1, 2})});
  rejects("must be an integer tensor", randn({4}), Tensors{randn({1})});
  rejects("at least one index", randn({4}), Tensors{Tensor()});
  rejects("at least one index", randn({4}), Tensors{});
  rejects("must be a tensor", Tensor(), Tensors{at({0})});
}
SF_OP_TEST(index_put) {
  sample(randn({4, 3, 5}), Tensors{at({0, -1, 2})}, randn({3, 3, 5}));
  sample(randn({4, 3, 5}), Tensors{at({0, -1, 0, 3})}, randn({4, 3, 5}), true);
  sample(randn({4, 3, 5}), Tensors{at({0, 2}), Tensor(), at({-1, 1})}, randn({3}));
  sample(randn({4, 3}), Tensors{Tensor(), at({1, 1, 0})}, randn({4, 1}), true);
  sample(randn({3, 4}).transpose(0, 1), Tensors{at({1, 3}), at({0, 2})}, randn({2}));
  sample(randn({4, 3}), Tensors{boolean({4, 3})}, randn({})).no_meta();
  sample(randn({4, 3}), Tensors{randint(0, 4, {2, 2})}, randn({1, 2, 2, 1}).squeeze(0), true);
  sample(randn({4, 3}), Tensors{at({})}, randn({0, 3}));
  sample(randint(0, 9, {4}), Tensors{at({1, 1})}, at({5, 6}), true);
  rejects("out of range", randn({4}), Tensors{at({4})}, randn({}));
  rejects("do not broadcast", randn({4, 3}), Tensors{at({0, 1})}, randn({4}));
  rejects("must have the tensor's dtype", randn({4}), Tensors{at({1})}, at({1}));
}
SF_OP_TEST(gather) {
  sample(randn({4, 3}), 0, randint(0, 4, {2, 3}));
  sample(randn({3, 4}).transpose(0, 1), 1, randint(0, 3, {4, 5}));
  sample(randn({4, 3, 2}), -2, randint(0, 3, {3, 7, 1}, kInt32));
  sample(randn({4, 3}), 0, randint(0, 1, {0, 3}));
  sample(randn({}), 0, randint(0, 1, {2}));
  sample(randn({4}), 0, randint(0, 4, {}));
  rejects("out of range for dimension 0 of size 4", randn({4}), 0, at({4}));
  rejects("out of range", randn({4}), 0, at({-1}));
  rejects("as many dimensions", randn({4, 2}), 0, at({0}));
  rejects("must not be larger", randn({4, 2}), 0, randint(0, 2, {1, 3}));
  rejects("must be an integer tensor", randn({4}), 0, randn({1}));
  rejects("dim must be in", randn({4}), 1, at({0}));
}
SF_OP_TEST(scatter) {
  sample(randn({4, 3}), 0, at({0, 3, 2, 3, 0, 1}).view({2, 3}), randn({2, 3}));
  // torch has no gradient for a larger src
  sample(randn({3, 4}).transpose(0, 1), 1, at({2, 0, 1}).unsqueeze(0), randn({4, 5})).no_golden();
  sample(randn({4, 3}), 0, randint(0, 4, {2, 3}), 1.5).no_golden();  // torch calls a number `value`
  sample(randn({4}), 0, randint(0, 1, {0}), randn({0}));
  rejects("out of range", randn({4}), 0, at({4}), randn({1}));
  rejects("must have the dtype", randn({4}), 0, at({1}), at({1}));
  rejects("must not be larger than src", randn({4}), 0, at({1, 2}), randn({1}));
}
SF_OP_TEST(scatter_add) {
  sample(randn({4, 3}), 0, randint(0, 4, {6, 3}), randn({6, 3}));
  sample(randn({3, 4}).transpose(0, 1), 1, randint(0, 3, {4, 8}), randn({8, 4}).transpose(0, 1));
  sample(randn({3}), 0, randint(0, 3, {50}), randn({60})).no_golden();  // torch has no gradient for a larger src
  sample(randint(0, 9, {4}), 0, randint(0, 4, {9}), randint(0, 9, {9}));
  rejects("out of range", randn({4}), 0, at({-1}), randn({1}));
}
SF_OP_TEST(take_along_dim) {
  sample(randn({4, 3}), randint(0, 4, {2, 3}), 0);
  sample(randn({4, 1}), randint(0, 4, {2, 3}), 0);
  sample(randn({4, 3}), randint(0, 3, {1, 2}), 1);
  sample(randn({4, 3}), randint(0, 12, {5}));
  rejects("as many dimensions", randn({4, 3}), at({0}), 0);
}
SF_OP_TEST(index_select) {
  sample(randn({4, 3, 2}), 1, at({2, 0, 2, 1}));
  sample(randn({3, 4}).transpose(0, 1), 0, randint(0, 4, {6}, kInt32));
  sample(randn({4, 3}), -1, at({}));
  sample(randn({}), 0, at({0}));
  rejects("index 3 is out of range for dimension 1 of size 3", randn({4, 3}), 1, at({3}));
  rejects("must be 1-D", randn({4}), 0, randint(0, 2, {1, 1}));
}
SF_OP_TEST(index_add) {
  sample(randn({4, 3}), 0, at({2, 0, 2}), randn({3, 3}));
  sample(randn({3, 4}).transpose(0, 1), 1, at({1, 1, 0, 1}), randn({4, 4}), 0.5);
  sample(randn({2, 5, 3}), 1, randint(0, 5, {20}), randn({2, 20, 3}));
  rejects("source must have shape", randn({4, 3}), 0, at({0}), randn({2, 3}));
  rejects("out of range", randn({4, 3}), 0, at({-1}), randn({1, 3}));
}
SF_OP_TEST(index_copy) {
  sample(randn({4, 3}), 0, at({2, 0}), randn({2, 3}));
  sample(randn({4, 3}), 1, at({2}), randn({4, 1}));
  rejects("must have the dtype", randn({4}), 0, at({0}), at({0}));
}
SF_OP_TEST(index_fill) {
  sample(randn({4, 3}), 1, at({2, 0}), 1.5);
  sample(randint(0, 5, {4}), 0, at({1}), 7);
  rejects("cannot hold", randint(0, 5, {4}), 0, at({1}), 0.5);
}
SF_OP_TEST(nonzero) {
  sample(boolean({3, 4})).no_meta();
  sample(randint(0, 2, {4, 3}).transpose(0, 1)).no_meta();
  sample(tensor({0., -0., 1.})).no_meta();
  sample(randn({0, 3})).no_meta();
  sample(randn({})).no_meta();
}
SF_OP_TEST(masked_select) {
  sample(randn({3, 4}), boolean({3, 4})).no_meta();
  sample(randn({4}), boolean({3, 1})).no_meta();
  rejects("must be a bool tensor", randn({3}), at({1, 0, 1}));
  rejects("do not broadcast", randn({3}), boolean({2}));
}

TEST(index, assignment_through_a_mask_reaches_the_tensor_and_its_gradient) {
  Tensor x = tensor({1., 2., 3., 4.}, kFloat64).requires_grad_();
  Tensor v = tensor({10., 20.}, kFloat64).requires_grad_();
  Tensor y = x.clone();
  index_put_(y, {tensor({0., 1., 0., 1.}, kBool)}, v);
  EXPECT_EQ(y.to_vector(), (std::vector<double>{1, 10, 3, 20}));
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{1, 0, 1, 0}));
  EXPECT_EQ(v.grad().to_vector(), (std::vector<double>{1, 1}));
}

TEST(index, in_place_write_without_gradient_counts_as_a_version) {
  Tensor x = zeros({4});
  auto before = x.version();
  index_put_(x, {tensor({1., -1.}, kInt64)}, ones({2}));
  EXPECT_EQ(x.version(), before + 1);
  EXPECT_EQ(x.to_vector(), (std::vector<double>{0, 1, 0, 1}));
}

TEST(index, the_last_of_equal_positions_wins_and_sums_do_not_depend_on_threads) {
  int64_t n = 40000;
  std::vector<int64_t> positions;
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) {
    positions.push_back((i * 7919) % 97);
    values.push_back(1.f / float(i + 1));
  }
  Tensor p = tensor(positions, {n}), v = tensor(values, {n});
  int threads = num_threads();
  Tensor sums = index_put(zeros({97}), {p}, v, true), last = index_put(zeros({97}), {p}, v);
  set_num_threads(1);
  Tensor sums1 = index_put(zeros({97}), {p}, v, true), scattered = scatter(zeros({97}), 0, p, v);
  set_num_threads(threads);
  EXPECT_EQ(sums.to_vector(), sums1.to_vector());
  EXPECT_EQ(last.to_vector(), scattered.to_vector());
}

TEST(index, a_0d_mask_adds_a_dimension) {
  Tensor x = tensor({1., 2., 3.});
  EXPECT_EQ(str(index(x, {scalar_tensor(true)}).shape()), "[1, 3]");
  EXPECT_EQ(str(index(x, {scalar_tensor(false)}).shape()), "[0, 3]");
  EXPECT_EQ(index_put(x, {scalar_tensor(true)}, scalar_tensor(7.f)).to_vector(), (std::vector<double>{7, 7, 7}));
}

TEST(index, sums_of_16_bit_slices_are_those_of_float32_rounded_once) {
  for (auto t : {kFloat16, kBFloat16})
    for (int64_t lanes : {3, 37, 64, 600, 1100}) {
      std::vector<float> v;
      for (int64_t i = 0; i < 2 * 9 * lanes; ++i) v.push_back(float(i * 7919 % 1009) / 64 - 7);
      const Tensor src = to_dtype(tensor(v, {2, 9, lanes}), t), out = to_dtype(src.narrow(1, 2, 5) * 3.0, t);
      for (const Tensor& to :
           {at({4, 0, 3, 1, 2, 4, 4, 3, 0}), at({2, 2, 2, 2, 2, 2, 2, 2, 2}), at({0, 0, 1, 1, 2, 2, 3, 3, 4})}) {
        const Tensor want = to_dtype(index_add(to_dtype(out, kFloat32), 1, to, to_dtype(src, kFloat32)), t);
        EXPECT_EQ(index_add(out, 1, to, src).to_vector(), want.to_vector()) << name(t) << " " << lanes;
        const Tensor across = out.transpose(1, 2).contiguous().transpose(1, 2);
        EXPECT_EQ(index_add(across, 1, to, src).to_vector(), want.to_vector()) << name(t) << " " << lanes;
      }
    }
}

TEST(index, long_lines_are_gathered_and_added_in_the_order_of_the_index) {
  constexpr int64_t n = 300, m = 1000;
  std::vector<int64_t> to;
  std::vector<float> v, line(n), sums(n, 1.f);
  for (int64_t i = 0; i < m; ++i) to.push_back(i * i % n), v.push_back(1.f / float(i + 3));
  for (int64_t i = 0; i < n; ++i) line[size_t(i)] = float(i) * 0.25f;
  for (int64_t i = 0; i < m; ++i) sums[size_t(to[size_t(i)])] += v[size_t(i)];
  const Tensor index = tensor(to, {1, m}).expand({3, m}).contiguous(),
               x = tensor(line, {1, n}).expand({3, n}).contiguous(),
               src = tensor(v, {1, m}).expand({3, m}).contiguous(), want = tensor(sums, {n});
  const Tensor got = gather(x, 1, index), added = scatter_add(ones({3, n}), 1, index, src);
  const Tensor across = scatter_add(ones({n, 3}), 0, index.transpose(0, 1), src.transpose(0, 1));
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t i = 0; i < m; ++i)
      ASSERT_EQ(got.data<float>()[r * m + i], line[size_t(to[size_t(i)])]) << r << " " << i;
    EXPECT_EQ(added.select(0, r).to_vector(), want.to_vector());
    EXPECT_EQ(across.select(1, r).to_vector(), want.to_vector());
  }
}

TEST(index, a_wrong_position_among_many_is_found) {
  for (int64_t wrong :
       {int64_t(5), int64_t(-1), std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    std::vector<int64_t> to(1000, 4);
    to[777] = wrong;
    EXPECT_THROW(gather(ones({1, 5}), 1, tensor(to, {1, 1000})), IndexError) << wrong;
    const Tensor steps = tensor(to, {1, 500, 2}).select(2, 1);  // 777 is in it, and every second one is not
    EXPECT_THROW(gather(ones({1, 5}), 1, steps), IndexError) << wrong;
  }
}

}  // namespace sf::test
