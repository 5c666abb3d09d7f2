// Products of bfloat16 on tiles: every remainder, layout, batch and epilogue, against float64 of the same bfloat16.
#include "scaffolding/ops/matmul/test_tiles.h"

namespace sf::test {
namespace {

constexpr int64_t kSizes[] = {1, 5, 15, 16, 17, 31, 32, 33, 47, 64, 77, 100};
constexpr int64_t kCount = std::size(kSizes);
constexpr Lay kLays[] = {Lay::Rows, Lay::Columns, Lay::Wide, Lay::Strided};

Tensor numbers(const Shape& shape) { return randn(shape).to(kBFloat16); }
Tensor wide(const Tensor& x) { return x.to(kFloat64); }

struct Function {
  Activation act;
  Tensor (*of)(const Tensor&);
};
const Function kFunctions[] = {
    {Activation::None, [](const Tensor& x) { return x; }},
    {Activation::Relu, [](const Tensor& x) { return relu(x); }},
    {Activation::GeluErf, [](const Tensor& x) { return gelu(x); }},
    {Activation::GeluTanh, [](const Tensor& x) { return gelu(x, "tanh"); }},
    {Activation::Silu, [](const Tensor& x) { return silu(x); }},
    {Activation::QuickGelu, [](const Tensor& x) { return quick_gelu(x); }},
};

// How often the error is what it may be: roundings of sums in float32, and that of the result. sizes: what was added
// up, in absolute values.
double excess(const Tensor& got, const Tensor& want, const Tensor& sizes) {
  const DType t = got.dtype();
  const double last = t == kBFloat16 ? 0x1p-8 : t == kFloat16 ? 0x1p-11 : 0x1p-23;
  return amax(abs(wide(got) - want) / (sizes * 1e-6 + abs(want) * last + 1e-6)).item();
}

void multiply(const Gemm& g) { call(tile_kernel(gemm), g); }

double excess_of_product(const Tensor& a, const Tensor& b) {
  const Tensor c = full({a.size(0), a.size(1), b.size(2)}, NAN);
  multiply({.a = a, .b = b, .c = c});
  return excess(c, bmm(wide(a), wide(b)), bmm(abs(wide(a)), abs(wide(b))));
}

class TileProduct : public testing::Test {
  autograd::NoGrad off_;

 protected:
  void SetUp() override { manual_seed(11); }
};

TEST_F(TileProduct, has_every_remainder_in_every_layout) {
  for (int64_t i = 0; i < kCount; ++i)
    for (int64_t j = 0; j < kCount; ++j)
      for (int64_t step : {5, 7}) {
        const int64_t m = kSizes[i], n = kSizes[j], k = kSizes[(i * step + j * 7 + step) % kCount];
        const Lay of_a = kLays[(i + j + step) % 4], of_b = kLays[(i / 2 + j + step / 7) % 4];
        EXPECT_LE(excess_of_product(laid(numbers({1, m, k}), of_a), laid(numbers({1, k, n}), of_b)), 1)
            << m << " x " << k << " x " << n << ", layouts " << int(of_a) << " and " << int(of_b);
      }
}

TEST_F(TileProduct, goes_on_over_blocks_of_k_rows_and_columns) {
  for (auto [m, n, k] : {std::array<int64_t, 3>{70, 410, 2100}, {410, 70, 1333}, {33, 1030, 650}, {700, 34, 641}})
    for (Lay lay : {Lay::Rows, Lay::Columns})
      EXPECT_LE(excess_of_product(laid(numbers({1, m, k}), lay), laid(numbers({1, k, n}), lay)), 1)
          << m << " x " << k << " x " << n;
}

TEST_F(TileProduct, of_batches_that_are_tall_apart_or_share_an_operand) {
  for (int64_t batch : {2, 3, 40}) {
    const Tensor a = numbers({batch, 21, 37}), b = numbers({batch, 37, 45});
    const Tensor one_a = numbers({1, 21, 37}).expand({batch, 21, 37}),
                 one_b = numbers({1, 37, 45}).expand({batch, 37, 45});
    EXPECT_LE(excess_of_product(a, b), 1) << batch;
    EXPECT_LE(excess_of_product(a, one_b), 1) << batch;
    EXPECT_LE(excess_of_product(laid(a, Lay::Wide), one_b), 1) << batch;
    EXPECT_LE(excess_of_product(one_a, b), 1) << batch;
    EXPECT_LE(excess_of_product(laid(a, Lay::Columns), laid(b, Lay::Columns)), 1) << batch;
  }
  EXPECT_LE(excess_of_product(numbers({3, 300, 100}), numbers({3, 100, 200})), 1) << "each by all threads";
}

// A batch of matrices with something around them that nobody may touch.
struct Framed {
  Tensor whole, before, matrix;
  Framed(int64_t batch, int64_t m, int64_t n, DType t) : whole(randn({batch, m + 2, n + 5}).to(t)) {
    before = whole.clone();
    matrix = whole.slice(1, 1, m + 1).slice(2, 2, n + 2);
  }
  bool is_intact() const {
    const Tensor now = whole.clone();
    now.slice(1, 1, whole.size(1) - 1).slice(2, 2, whole.size(2) - 3).zero_();
    const Tensor was = before.clone();
    was.slice(1, 1, whole.size(1) - 1).slice(2, 2, whole.size(2) - 3).zero_();
    return same_bits(now, was);
  }
};

TEST_F(TileProduct, ends_in_every_epilogue_and_dtype) {
  constexpr int64_t kBatch = 2, kM = 37, kN = 45, kK = 70;
  const Tensor a = numbers({kBatch, kM, kK}), b = numbers({kBatch, kK, kN}), bias = randn({kN});
  const Tensor product = bmm(wide(a), wide(b)), sizes = bmm(abs(wide(a)), abs(wide(b)));
  for (DType t : {kFloat32, kBFloat16, kFloat16})
    for (const Tensor& added : {Tensor(), bias, bias.to(kBFloat16)})
      for (auto [alpha, beta] : {std::pair{1.0, 0.0}, {0.5, -2.0}, {-1.5, 1.0}})
        for (bool with_pre : {false, true})
          for (const Function& f : kFunctions) {
            Framed c(kBatch, kM, kN, t), pre(kBatch, kM, kN, t);
            Tensor argument = product * alpha, most = sizes * std::abs(alpha);
            if (added) argument = argument + wide(added), most = most + abs(wide(added));
            Tensor want = f.of(argument);
            if (beta != 0) want = want + wide(c.matrix) * beta, most = most + abs(wide(c.matrix)) * std::abs(beta);
            Gemm g{.a = a, .b = b, .c = c.matrix, .alpha = alpha, .beta = beta, .act = f.act};
            if (added) g.bias = added;
            if (with_pre) g.pre = pre.matrix;
            multiply(g);
            const auto where = [&] {
              return testing::Message() << "c of " << name(t) << ", act " << int(f.act) << ", alpha " << alpha
                                        << ", beta " << beta << ", bias " << added.defined() << ", pre " << with_pre;
            };
            ASSERT_LE(excess(c.matrix, want, most), 1) << where();
            if (with_pre) {
              ASSERT_LE(excess(pre.matrix, argument, most), 1) << where();
            }
            ASSERT_TRUE(c.is_intact() && pre.is_intact()) << where();
          }
}

TEST_F(TileProduct, of_nothing_along_k_is_the_epilogue_alone) {
  const Tensor a = numbers({1, 20, 0}), b = numbers({1, 0, 33}), bias = randn({33}), c = full({1, 20, 33}, NAN);
  multiply({.a = a, .b = b, .bias = bias, .c = c});
  EXPECT_TRUE(same_bits(c, bias.expand({1, 20, 33})));
}

TEST_F(TileProduct, keeps_what_is_not_finite) {
  for (double special : {double(INFINITY), double(-INFINITY), double(NAN)}) {
    Tensor a = numbers({1, 40, 70}), b = abs(numbers({1, 70, 50})) + 1;
    a.slice(1, 33, 34).slice(2, 65, 66).fill_(special);
    const Tensor c = full({1, 40, 50}, 7.);
    multiply({.a = a, .b = b, .c = c});
    const std::vector<double> values = c.to_vector();
    for (int64_t i = 0; i < int64_t(values.size()); ++i) {
      if (i / 50 != 33) ASSERT_TRUE(std::isfinite(values[i])) << i;
      else if (std::isnan(special)) ASSERT_TRUE(std::isnan(values[i])) << i;
      else ASSERT_EQ(values[i], special) << i;
    }
  }
}

// A kept packed copy is of the bytes and of their version.
TEST_F(TileProduct, finds_a_weight_packed_until_it_changes) {
  for (Lay lay : {Lay::Rows, Lay::Columns}) {
    const Tensor a = numbers({1, 64, 96}), c = empty({1, 64, 80});
    Tensor b = laid(numbers({1, 96, 80}), lay);
    b.storage()->packed = true;
    for (int round = 0; round < 4; ++round) {
      if (round == 2) b.fill_(0.5);
      multiply({.a = a, .b = b, .c = c, .b_version = uint64_t(b.version()) + 1});
      EXPECT_LE(excess(c, bmm(wide(a), wide(b)), bmm(abs(wide(a)), abs(wide(b)))), 1) << round;
    }
  }
}

}  // namespace
}  // namespace sf::test
