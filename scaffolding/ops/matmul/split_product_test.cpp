// Products of float32 in parts: their errors beside those of multiply-adds, and what does not split without a rest.
#include "scaffolding/ops/conv/kernel.h"
#include "scaffolding/ops/fused/linear_act/kernel.h"
#include "scaffolding/ops/matmul/test_tiles.h"

namespace sf::test {
namespace {

class SplitProduct : public testing::Test {
  autograd::NoGrad off_;

 protected:
  void SetUp() override { manual_seed(12); }
};

Tensor product(const KernelEntry& kernel, const Tensor& a, const Tensor& b) {
  const Tensor c = full({a.size(0), a.size(1), b.size(2)}, NAN);
  call(kernel, Gemm{.a = a, .b = b, .c = c});
  return c;
}
const KernelEntry& tiles() { return tile_kernel(gemm); }
const KernelEntry& plain() { return plain_kernel(gemm); }

// Of terms |a| |b|.
struct Errors {
  double rms, most;
};
Errors errors(const Tensor& c, const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(kFloat64), y = b.to(kFloat64);
  const Tensor e = (c.to(kFloat64) - bmm(x, y)) / bmm(abs(x), abs(y));
  return {std::sqrt(mean(e * e).item()), amax(abs(e)).item()};
}

// From 1e-10 to 1e10, each row another.
Tensor magnitudes(int64_t n) { return exp(rand({1, n, 1}) * 46 - 23); }
struct Data {
  const char* name;
  Tensor a, b;
  Errors of_one_term = {0, 0};  // where sums have little else: multiply-adds round it once
};
std::vector<Data> data(int64_t m, int64_t n, int64_t k) {
  auto a = [&] { return randn({1, m, k}); };
  auto b = [&] { return randn({1, n, k}).transpose(1, 2); };
  return {{"normal", a(), b()},
          {"b by rows", a(), contiguous(b())},
          {"rows of all sizes", a() * magnitudes(m), b() * magnitudes(n).transpose(1, 2)},
          {"all sizes along k", a() * magnitudes(k).transpose(1, 2), b() / (magnitudes(k) + 1), {0x1p-24, 0x1p-22}},
          {"positive", rand({1, m, k}), rand({1, n, k}).transpose(1, 2)},
          {"a narrow range", rand({1, m, k}) * 1e-3 + 1, rand({1, n, k}).transpose(1, 2) * 1e-3 + 1}};
}

TEST_F(SplitProduct, errs_less_than_multiply_adds) {
  for (int64_t k : {16, 50, 192, 700, 5000})
    for (const Data& d : data(70, 90, k)) {
      const Errors ours = errors(product(tiles(), d.a, d.b), d.a, d.b),
                   theirs = errors(product(plain(), d.a, d.b), d.a, d.b);
      EXPECT_LE(ours.rms, std::max(theirs.rms, d.of_one_term.rms)) << d.name << ", k " << k;
      EXPECT_LE(ours.most, std::max(theirs.most, d.of_one_term.most)) << d.name << ", k " << k;
    }
}

TEST_F(SplitProduct, errs_as_its_precision_allows) {
  const bool on_tiles = is_on_tiles(tiles());
  for (int64_t k : {16, 77, 1000})
    for (const Data& d : data(50, 70, k)) {
      const auto at = [&](Float32Precision precision) {
        PrecisionScope scope(precision);
        return errors(product(tiles(), d.a, d.b), d.a, d.b);
      };
      const Errors high = at(Float32Precision::High), medium = at(Float32Precision::Medium);
      EXPECT_LE(high.most, 0x1p-15) << d.name << ", k " << k;
      EXPECT_LE(medium.most, 0x1.01p-7) << d.name << ", k " << k;
      if (on_tiles) {
        EXPECT_GT(medium.most, 0x1p-14) << d.name << ", k " << k << ": this would be bfloat16";
      }
    }
}

TEST_F(SplitProduct, has_every_remainder_in_every_layout) {
  constexpr int64_t kSizes[] = {1, 15, 16, 17, 31, 33, 47, 64, 100};
  constexpr Lay kLays[] = {Lay::Rows, Lay::Columns, Lay::Wide, Lay::Strided};
  constexpr double kMost[] = {1e-6, 0x1p-15, 0x1.01p-7};
  int turn = 0;
  for (int64_t m : kSizes)
    for (int64_t n : kSizes) {
      const int64_t k = kSizes[(turn * 5 + 2) % 9];
      const Tensor a = laid(randn({1, m, k}), kLays[turn % 4]), b = laid(randn({1, k, n}), kLays[turn / 4 % 4]);
      for (int i = 0; i < 3; ++i) {
        PrecisionScope scope(kEveryPrecision[i]);
        EXPECT_LE(errors(product(tiles(), a, b), a, b).most, kMost[i]) << m << " x " << k << " x " << n;
      }
      ++turn;
    }
}

TEST_F(SplitProduct, of_batches_and_with_what_follows) {
  const Tensor a = randn({3, 40, 64}), b = randn({3, 64, 48}), bias = randn({48}), pre = full({3, 40, 48}, NAN),
               c = full({3, 40, 48}, NAN);
  call(tiles(), Gemm{.a = a, .b = b, .bias = bias, .c = c, .alpha = 0.5, .act = Activation::Silu, .pre = pre});
  const Tensor want = bmm(a.to(kFloat64), b.to(kFloat64)) * 0.5 + bias.to(kFloat64);
  EXPECT_LT(amax(abs(pre.to(kFloat64) - want)).item(), 2e-5);
  EXPECT_LT(amax(abs(c.to(kFloat64) - silu(want))).item(), 2e-5);
  const Tensor shared = b.slice(0, 0, 1).expand({3, 64, 48});
  EXPECT_LE(errors(product(tiles(), a, shared), a, shared).most, 1e-6);
}

// ---- what does not split

void expect_as_plain(const Tensor& got, const Tensor& want, const std::string& what) {
  if (falls_back_to_the_same_bits()) {
    EXPECT_TRUE(same_bits(got, want)) << what;
    return;
  }
  const std::vector<double> g = got.to_vector(), w = want.to_vector();
  for (size_t i = 0; i < g.size(); ++i) {
    if (std::isnan(w[i])) ASSERT_TRUE(std::isnan(g[i])) << what << " at " << i;
    else if (std::isinf(w[i])) ASSERT_EQ(g[i], w[i]) << what << " at " << i;
    else ASSERT_NEAR(g[i], w[i], 1e-5 * std::max(1., std::abs(w[i]))) << what << " at " << i;
  }
}
constexpr float kSpecials[] = {1e-40f, -1e-45f, INFINITY, -INFINITY, NAN, 3.4e38f};

void put(const Tensor& x, int64_t row, int64_t column, float value) {
  x.slice(1, row, row + 1).slice(2, column, column + 1).fill_(value);
}

TEST_F(SplitProduct, falls_back_for_what_leaves_a_rest) {
  struct Place {
    int64_t row, along;
  };
  for (Float32Precision precision : kEveryPrecision) {
    PrecisionScope scope(precision);
    for (float special : kSpecials)
      for (Lay lay : {Lay::Rows, Lay::Columns})
        for (auto [row, along] : {Place{0, 0}, {35, 200}, {68, 449}})
          for (bool in_a : {true, false}) {
            const Tensor a = laid(randn({1, 69, 450}) * 1e-3, lay), b = laid(randn({1, 450, 69}) * 1e-3, lay);
            in_a ? put(a, row, along, special) : put(b, along, row, special);
            expect_as_plain(product(tiles(), a, b), product(plain(), a, b),
                            std::to_string(special) + (in_a ? " in a" : " in b"));
          }
  }
  // Three parts of a number as small as this are not all normal.
  const Tensor a = randn({1, 40, 64}), b = full({1, 64, 40}, 1.2345679e-36);
  expect_as_plain(product(tiles(), a, b), product(plain(), a, b), "1.2345679e-36");
}

TEST_F(SplitProduct, of_zeros_is_zero) {
  const Tensor a = randn({1, 40, 64});
  for (float zero : {0.f, -0.f})
    for (const Tensor& b : {full({1, 64, 40}, zero), full({1, 40, 64}, zero).transpose(1, 2)}) {
      EXPECT_TRUE(same_bits(product(tiles(), a, b), product(plain(), a, b)));
      const Tensor c = full({1, 40, 40}, NAN);
      call(tiles(), Gemm{.a = b.transpose(1, 2), .b = a.transpose(1, 2), .c = c});
      EXPECT_EQ(amax(abs(c)).item(), 0);
    }
}

// Of each thread that packs, in batches that threads share and in products that they share.
TEST_F(SplitProduct, falls_back_whichever_thread_packs) {
  for (const Shape& shape : {Shape{40, 24, 32, 24}, {2, 600, 64, 500}})
    for (int64_t at : {int64_t(0), shape[0] - 1}) {
      const Tensor a = randn({shape[0], shape[1], shape[2]}), b = randn({shape[0], shape[2], shape[3]});
      put(b.slice(0, at, at + 1), shape[2] - 1, shape[3] - 1, INFINITY);
      expect_as_plain(product(tiles(), a, b), product(plain(), a, b), "a batch");
    }
}

// Copies of a weight that were packed for one precision, or for the fallback, are not another's.
TEST_F(SplitProduct, of_a_kept_weight_goes_by_its_precision_and_falls_back_each_time) {
  for (float special : {0.f, INFINITY, 1e-40f})
    for (Lay lay : {Lay::Rows, Lay::Columns}) {
      const Tensor a = randn({1, 200, 130}), b = laid(randn({1, 130, 90}), lay);
      Tensor c = full({1, 200, 90}, NAN);
      if (special != 0) put(b, 7, 5, special);
      const Tensor want = product(plain(), a, b);
      b.storage()->packed = true;
      for (int round = 0; round < 3; ++round)
        for (Float32Precision precision : kEveryPrecision)
          for (int time = 0; time < 2; ++time) {
            PrecisionScope scope(precision);
            c.fill_(NAN);
            call(tiles(), Gemm{.a = a, .b = b, .c = c, .b_version = uint64_t(b.version()) + 1});
            if (special != 0) expect_as_plain(c, want, name_of(precision));
            else EXPECT_TRUE(same_bits(c, product(tiles(), a, b))) << name_of(precision);
          }
    }
}

// ---- other kernels that split

TEST_F(SplitProduct, gated_projections_fall_back) {
  for (float special : {0.f, INFINITY, 1e-40f, 3.4e38f}) {
    const Tensor a = randn({1, 70, 96}), weight = randn({1, 2 * 50, 96}) * 1e-3, bias = randn({100}) * 1e-3;
    if (special != 0) put(weight, 77, 30, special);
    weight.storage()->packed = true;
    auto gated = [&](const KernelEntry& kernel, uint64_t version) {
      const Tensor y = full({70, 50}, NAN);
      GatedLinear g{.a = a[0],
                    .hidden = weight[0].slice(0, 0, 50),
                    .gate = weight[0].slice(0, 50),
                    .bias_hidden = bias.slice(0, 0, 50),
                    .bias_gate = bias.slice(0, 50),
                    .act = Activation::Relu,
                    .y = y,
                    .weight_version = version};
      call(kernel, g);
      return y;
    };
    const Tensor want = gated(plain_kernel(gated_linear), 0);
    for (uint64_t version : {0, 1, 1})
      for (Float32Precision precision : kEveryPrecision) {
        PrecisionScope scope(precision);
        const Tensor got = gated(tile_kernel(gated_linear), version);
        if (special != 0) expect_as_plain(got, want, "a gated projection");
        else EXPECT_LT(amax(abs(got - want)).item(), 0.02 * amax(abs(want)).item()) << name_of(precision);
      }
  }
}

TEST_F(SplitProduct, convolutions_of_pixels_fall_back) {
  for (float special : {0.f, INFINITY, 1e-40f, 3.4e38f}) {
    const Tensor x = to_channels_last(randn({2, 128, 14, 13})), bias = randn({144}),
                 dy = to_channels_last(randn({2, 144, 14, 13}));
    const Tensor weight = randn({144, 128, 1, 1}) * 1e-3, edge = x.clone();
    if (special != 0) {
      weight.slice(0, 143).slice(1, 127).fill_(special);
      edge.slice(0, 1).slice(1, 127).slice(2, 13).slice(3, 12).fill_(special);
    }
    weight.storage()->packed = true;
    auto forward = [&](const KernelEntry& kernel) {
      const Tensor y = to_channels_last(full(dy.shape(), NAN));
      call(kernel, ConvForward{.x = x, .weight = weight, .bias = bias, .y = y, .weight_version = 1});
      return y;
    };
    auto backward_data = [&](const KernelEntry& kernel) {
      const Tensor dx = to_channels_last(full(x.shape(), NAN));
      call(kernel, ConvBackwardData{.dy = dy, .weight = weight, .dx = dx, .weight_version = 1});
      return dx;
    };
    auto backward_weights = [&](const KernelEntry& kernel) {
      const Tensor dweight = full(weight.shape(), NAN);
      call(kernel, ConvBackwardWeights{.x = edge, .dy = dy, .dweight = dweight});
      return dweight;
    };
    const auto compare = [&](const char* what, const Tensor& got, const Tensor& want) {
      if (special != 0) expect_as_plain(got, want, what);
      else EXPECT_LT(amax(abs(got - want)).item(), 1e-2 * amax(abs(want)).item()) << what;
    };
    const Tensor y = forward(plain_kernel(conv_forward)), dx = backward_data(plain_kernel(conv_backward_data)),
                 dweight = backward_weights(plain_kernel(conv_backward_weights));
    for (int time = 0; time < 2; ++time)
      for (Float32Precision precision : kEveryPrecision) {
        PrecisionScope scope(precision);
        compare("forward", forward(tile_kernel(conv_forward)), y);
        compare("backward_data", backward_data(tile_kernel(conv_backward_data)), dx);
        compare("backward_weights", backward_weights(tile_kernel(conv_backward_weights)), dweight);
      }
  }
}

}  // namespace
}  // namespace sf::test
