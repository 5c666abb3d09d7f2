// Ops whose kernels work in pieces, on rows longer than a piece: the samples of the ops end before.
// Needs a GPU or the emulator.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "scaffolding/backend/backend.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/embedding/embedding.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/sort/sort.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
namespace {

class CudaLongRows : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
    manual_seed(4);
  }
};

TEST_F(CudaLongRows, running_sums_carry_from_piece_to_piece) {
  for (int64_t n : {33, 256, 257, 1000}) {
    Tensor whole = randint(-9, 9, {3, n}), x = randn({3, n});
    EXPECT_EQ(cumsum(whole.cuda(), 1).cpu().to_vector(), cumsum(whole, 1).to_vector()) << n;
    EXPECT_EQ(cumsum(whole.t().cuda(), 0).cpu().to_vector(), cumsum(whole.t(), 0).to_vector()) << n;
    auto got = cumsum(x.cuda(), 1).cpu().to_vector(), want = cumsum(x, 1).to_vector();
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5) << n;
    Tensor near_one = 1.0 + x * 0.01, a = near_one.cuda().requires_grad_(), b = near_one.clone().requires_grad_();
    sum(cumprod(a, 1)).backward();
    sum(cumprod(b, 1)).backward();
    got = a.grad().cpu().to_vector(), want = b.grad().to_vector();
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5 * (1 + std::fabs(want[i]))) << n;
  }
}

TEST_F(CudaLongRows, sorts_rows_beyond_a_tile_and_keeps_equals_in_order) {
  for (int64_t n : {1, 2, 1000, 1024, 1025, 4500})
    for (bool descending : {false, true}) {
      Tensor few = randint(-40, 40, {3, n}), x = randn({3, n}, {}, kFloat64);
      x.select(0, 1).fill_(std::nan(""));
      auto [v, at] = sort(few.cuda(), 1, descending);
      auto [v0, at0] = sort(few, 1, descending);
      EXPECT_EQ(v.cpu().to_vector(), v0.to_vector()) << n;
      EXPECT_EQ(at.cpu().to_vector(), at0.to_vector()) << n;
      EXPECT_EQ(argsort(x.cuda(), 1, descending).cpu().to_vector(), argsort(x, 1, descending).to_vector()) << n;
      auto [t, t_at] = topk(few.t().cuda(), std::min<int64_t>(n, 7), 0, descending);
      auto [t0, t0_at] = topk(few.t(), std::min<int64_t>(n, 7), 0, descending);
      EXPECT_EQ(t.cpu().to_vector(), t0.to_vector()) << n;
      EXPECT_EQ(t_at.cpu().to_vector(), t0_at.to_vector()) << n;
    }
}

TEST_F(CudaLongRows, sorts_every_dtype_by_the_bits_of_its_own) {
  // many rows at once, one, and few long ones in turn
  for (auto [rows, n] : {std::pair<int64_t, int64_t>{3, 1500}, {1, 9000}, {2, 70000}})
    for (DType t : {kUInt8, kInt8, kInt16, kInt32, kInt64, kBool, kFloat16, kBFloat16, kFloat32, kFloat64}) {
      Tensor x = to_dtype(randint(-120, 120, {n, rows}), t).t();
      if (is_floating(t)) {
        x.select(1, 3).fill_(-0.0);
        x.select(1, 5).fill_(std::nan(""));
        x.select(1, 6).fill_(-std::nan(""));
        x.select(1, 7).fill_(std::numeric_limits<double>::infinity());
        x.select(1, 8).fill_(-std::numeric_limits<double>::infinity());
      }
      for (bool descending : {false, true}) {
        auto [v, at] = sort(x.cuda(), 1, descending);
        auto [v0, at0] = sort(x, 1, descending);
        EXPECT_EQ(at.cpu().to_vector(), at0.to_vector()) << name(t) << " " << rows << " x " << n;
        auto got = v.cpu().to_vector(), want = v0.to_vector();
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) << name(t) << " at " << i;
      }
    }
}

TEST_F(CudaLongRows, sorts_in_a_captured_graph) {
  Tensor x = randn({2, 3000}).cuda(), at;
  auto graph = cuda::capture([&] { at = argsort(x, 1); });
  for (int time = 0; time < 2; ++time) {
    Tensor fresh = randn({2, 3000});
    x.copy_(fresh);
    graph->replay();
    EXPECT_EQ(at.cpu().to_vector(), argsort(fresh, 1).to_vector());
  }
}

TEST_F(CudaLongRows, finds_what_is_not_zero_in_order) {
  for (int64_t n : {1, 31, 256, 4096, 4097, 9001})
    for (int64_t range : {2, 50, 1}) {
      Tensor x = randint(0, range, {n});  // every second, most, none
      EXPECT_EQ(nonzero(x.cuda()).cpu().to_vector(), nonzero(x).to_vector()) << n;
      Tensor f = to_dtype(x, kBFloat16).reshape({1, n}).expand({3, n});
      EXPECT_EQ(nonzero(f.cuda()).cpu().to_vector(), nonzero(f).to_vector()) << n;
      EXPECT_EQ(masked_select(x.cuda(), ne(x, wrapped(0.0)).cuda()).cpu().to_vector(),
                masked_select(x, ne(x, wrapped(0.0))).to_vector());
    }
}

TEST_F(CudaLongRows, adds_many_points_in_their_order_and_the_same_bits_twice) {
  constexpr int64_t kPoints = 9000, kPlaces = 37;  // more than one block of a sort takes
  Tensor at = randint(0, kPlaces, {kPoints}), from = randn({kPoints, 3}) * 1e4;
  auto once = [&] {
    return index_add(zeros({kPlaces, 3}, kFloat32, Device("cuda")), 0, at.cuda(), from.cuda()).cpu().to_vector();
  };
  auto got = once(), want = index_add(zeros({kPlaces, 3}), 0, at, from).to_vector();
  EXPECT_EQ(got, once());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 0.5) << i;
  EXPECT_EQ(index_copy(zeros({kPlaces, 3}, kFloat32, Device("cuda")), 0, at.cuda(), from.cuda()).cpu().to_vector(),
            index_copy(zeros({kPlaces, 3}), 0, at, from).to_vector());  // the last one stays
  Tensor weight = randn({kPlaces, 8}), there = weight.cuda().requires_grad_(), here = weight.clone().requires_grad_();
  sum(embedding(at.cuda(), there, 5) * 0.5).backward();
  sum(embedding(at, here, 5) * 0.5).backward();
  EXPECT_EQ(there.grad().cpu().to_vector(), here.grad().to_vector());
}

TEST_F(CudaLongRows, joins_pieces_of_every_alignment) {
  for (DType t : {kUInt8, kFloat16, kFloat32, kFloat64})
    for (int64_t first : {1, 3, 16, 40}) {
      Tensor a = to_dtype(randint(0, 100, {20, first}), t), b = to_dtype(randint(0, 100, {20, 32}), t),
             odd = to_dtype(randint(0, 100, {20 * 16 + 1}), t);
      // not aligned for vectors
      Tensor c = odd.slice(0, 1).reshape({20, 16}), c_there = odd.cuda().slice(0, 1).reshape({20, 16});
      EXPECT_EQ(cat({a.cuda(), b.cuda(), c_there}, 1).cpu().to_vector(), cat({a, b, c}, 1).to_vector())
          << name(t) << " " << first;
    }
  Tensors many, many_there;
  for (int64_t i = 0; i < 70; ++i)
    many.push_back(full({20, 2}, double(i), kFloat32)), many_there.push_back(many.back().cuda());
  EXPECT_EQ(cat(many_there, 1).cpu().to_vector(), cat(many, 1).to_vector());
}

}  // namespace
}  // namespace sf
