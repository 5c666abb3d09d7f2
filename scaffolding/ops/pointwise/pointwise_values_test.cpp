// What pointwise ops mean for dtypes, integers, bools and special values: the answers are torch's.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "scaffolding/backend/backend.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/view/view.h"

namespace sf::test {
namespace {

using Doubles = std::vector<double>;
Tensor whole(std::initializer_list<int64_t> v, DType t = kInt64) {
  return tensor(std::vector<int64_t>(v), {int64_t(v.size())}, t);
}

TEST(pointwise, promotion_is_torchs) {
  // torch.result_type of 1-D tensors, rows and columns u8 i8 i16 i32 i64 f16 f32 f64 bool bf16.
  const DType order[10] = {kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kFloat32, kFloat64, kBool, kBFloat16};
  const char* table[10] = {"uint8 int16 int16 int32 int64 float16 float32 float64 uint8 bfloat16",
                           "int16 int8 int16 int32 int64 float16 float32 float64 int8 bfloat16",
                           "int16 int16 int16 int32 int64 float16 float32 float64 int16 bfloat16",
                           "int32 int32 int32 int32 int64 float16 float32 float64 int32 bfloat16",
                           "int64 int64 int64 int64 int64 float16 float32 float64 int64 bfloat16",
                           "float16 float16 float16 float16 float16 float16 float32 float64 float16 float32",
                           "float32 float32 float32 float32 float32 float32 float32 float64 float32 float32",
                           "float64 float64 float64 float64 float64 float64 float64 float64 float64 float64",
                           "uint8 int8 int16 int32 int64 float16 float32 float64 bool bfloat16",
                           "bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 float32 float32 float64 bfloat16 bfloat16"};
  for (int i = 0; i < 10; ++i) {
    std::string row;
    for (int j = 0; j < 10; ++j)
      row += (j ? " " : "") + std::string(name(add(zeros({2}, order[i]), zeros({2}, order[j])).dtype()));
    EXPECT_EQ(row, table[i]) << name(order[i]);
  }
}

TEST(pointwise, powers_of_common_exponents_are_those_of_the_general_power) {
  const Doubles values{0.25, 1.0, 2.5, 7.0, 0.0078125};
  for (DType t : {kFloat32, kFloat64, kFloat16, kBFloat16})
    for (double p : {2.0, 3.0, 0.5, -0.5, -1.0, 1.0, 0.0, -2.0, 1.5}) {
      Tensor x = to_dtype(tensor(values, {5}), t);
      const Doubles got = pow(x, wrapped(p)).to_vector();
      for (size_t i = 0; i < values.size(); ++i) {
        const double want = std::pow(to_dtype(x, kFloat64).to_vector()[i], p);
        EXPECT_NEAR(got[i], want,
                    (t == kBFloat16  ? 4e-3
                     : t == kFloat16 ? 5e-4
                                     : 1e-6) *
                            want +
                        (t == kFloat16 ? 3e-8 : 0))
            << name(t) << " " << values[i] << " ** " << p;
      }
    }
  EXPECT_EQ(pow(tensor(Doubles{-2, -3}, {2}), wrapped(3.0)).to_vector(), (Doubles{-8, -27}));
  EXPECT_EQ(pow(tensor(Doubles{0}, {1}), wrapped(-1.0)).to_vector(), (Doubles{kInf}));
  Tensor x = tensor(Doubles{-3, 0, 0.5}, {3}).requires_grad_();
  pow(x, wrapped(2.0)).sum().backward();
  EXPECT_EQ(x.grad().to_vector(), (Doubles{-6, 0, 1}));
}

TEST(pointwise, numbers_and_0d_tensors_do_not_widen) {
  EXPECT_EQ((zeros({2}, kFloat16) * 2.0).dtype(), kFloat16);
  EXPECT_EQ((zeros({2}, kBFloat16) + 1e300).dtype(), kBFloat16);
  EXPECT_EQ((zeros({2}, kInt8) + 1000).dtype(), kInt8);
  EXPECT_EQ((zeros({2}, kInt8) + 0.5).dtype(), kFloat32);
  EXPECT_EQ((zeros({2}, kBool) + 1).dtype(), kInt64);
  EXPECT_EQ((zeros({2}, kFloat16) + zeros({}, kFloat64)).dtype(), kFloat16);
  EXPECT_EQ((zeros({2}, kInt64) + zeros({}, kFloat16)).dtype(), kFloat16);
  EXPECT_EQ((zeros({2}, kInt8) + zeros({}, kInt64)).dtype(), kInt8);
  EXPECT_EQ((zeros({}, kFloat16) * zeros({}, kFloat64)).dtype(), kFloat64);
  EXPECT_EQ(clamp(zeros({2}, kInt32), 0.5).dtype(), kFloat32);
}

// A number beside a 16-bit tensor, as torch 2.15 has it on the CPU: products, quotients by it and interpolations keep
// it in 32 bits; sums, powers and the others round it to the tensor's dtype first.
TEST(pointwise, a_number_beside_16_bits_is_rounded_where_torch_rounds_it) {
  const double number = 0.7123456789;
  for (DType t : {kFloat16, kBFloat16}) {
    Tensor x = to_dtype(arange(0.25, 8.25, 0.015625, kFloat32), t).reshape({64, 8});
    const double rounded = full({}, number, t).item();
    EXPECT_NE(rounded, number);
    for (bool strided : {false, true}) {
      Tensor a = strided ? x.transpose(0, 1) : x, b = to_dtype(a, kFloat32), zero_d = scalar_tensor(number, kFloat32);
      auto same = [&](const char* what, const Tensor& got, const Tensor& want) {
        EXPECT_EQ(got.dtype(), t) << what;
        EXPECT_EQ(got.to_vector(), to_dtype(want, t).to_vector())
            << what << " " << name(t) << (strided ? " strided" : "");
      };
      same("mul", a * number, b * number);
      same("mul from the left", number * a, number * b);
      same("mul by a 0-d tensor", a * zero_d, b * number);
      same("a 0-d tensor times", zero_d * a, rounded * b);
      same("div", a / number, b / number);
      same("floor_divide", floor_divide(a, wrapped(number)), floor_divide(b, wrapped(number)));
      same("trunc", div(a, wrapped(number), "trunc"), div(b, wrapped(number), "trunc"));
      same("lerp", lerp(a, neg(a), wrapped(number)), lerp(b, neg(b), wrapped(number)));
      Tensor c = a.clone(), d = a.clone();
      same("mul_", c.mul_(Scalar(number)), b * number);
      same("div_", d.div_(wrapped(number)), b / number);
      same("add", a + number, b + rounded);
      same("sub", a - number, b - rounded);
      same("pow", pow(a, wrapped(number)), pow(b, wrapped(rounded)));
      same("remainder", remainder(a, wrapped(number)), remainder(b, wrapped(rounded)));
    }
  }
}

TEST(pointwise, integers_divide_to_the_default_dtype) {
  Tensor q = whole({7, -7, 1}) / whole({2, 2, 0});
  EXPECT_EQ(q.dtype(), kFloat32);
  EXPECT_EQ(q.to_vector(), (Doubles{3.5, -3.5, kInf}));
  EXPECT_EQ(floor_divide(whole({7, -7, 7, -7}), whole({2, 2, -2, -2})).to_vector(), (Doubles{3, -4, -4, 3}));
  EXPECT_EQ(div(whole({7, -7, 7, -7}), whole({2, 2, -2, -2}), "trunc").to_vector(), (Doubles{3, -3, -3, 3}));
  EXPECT_EQ(remainder(whole({7, -7, 7, -7}), whole({4, 4, -4, -4})).to_vector(), (Doubles{3, 1, -1, -3}));
  Tensor exact = div(whole({(int64_t(1) << 62) + 1}), whole({1}), "trunc");
  EXPECT_EQ(*exact.data<int64_t>(), (int64_t(1) << 62) + 1) << "an integer quotient must not pass through a double";
}

TEST(pointwise, integers_wrap_around) {
  EXPECT_EQ((whole({127, -128}, kInt8) + whole({1, -1}, kInt8)).to_vector(), (Doubles{-128, 127}));
  EXPECT_EQ((whole({200, 3}, kUInt8) * whole({2, 100}, kUInt8)).to_vector(), (Doubles{144, 44}));
  EXPECT_EQ(neg(whole({-128, 5}, kInt8)).to_vector(), (Doubles{-128, -5}));
  EXPECT_EQ(abs(whole({-128, -5}, kInt8)).to_vector(), (Doubles{-128, 5}));
  EXPECT_EQ(floor_divide(whole({INT64_MIN}), whole({-1})).item_int(), INT64_MIN)
      << "the one quotient that overflows must not trap";
  EXPECT_EQ(remainder(whole({INT64_MIN}), whole({-1})).item_int(), 0);
  EXPECT_EQ(div(whole({INT64_MIN}), whole({-1}), "trunc").item_int(), INT64_MIN);
  EXPECT_EQ(pow(whole({3}, kInt8), whole({5}, kInt8)).item_int(), -13);
  EXPECT_EQ(pow(whole({2, 1, -1}), whole({-1, -1, -1})).to_vector(), (Doubles{0, 1, -1}));
}

TEST(pointwise, integer_division_by_zero_is_an_error_and_never_a_trap) {
  for (auto t : {kInt8, kInt16, kInt32, kInt64, kUInt8}) {
    Tensor a = whole({1, 2}, t), b = whole({1, 0}, t);
    EXPECT_THROW(floor_divide(a, b), RuntimeError);
    EXPECT_THROW(remainder(a, b), RuntimeError);
    EXPECT_THROW(div(a, b, "trunc"), RuntimeError);
    EXPECT_THROW(div(a, b, "floor"), RuntimeError);
  }
  EXPECT_EQ(floor_divide(whole({}), whole({0})).numel(), 0) << "nothing is divided";
  EXPECT_EQ(floor_divide(tensor({1, -1, 0}), tensor({0, 0, 1})).to_vector(), (Doubles{kInf, -kInf, 0}));
}

TEST(CudaFloorDivide, quotients_are_the_cpus) {
  std::string why;
  if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  manual_seed(3);
  auto same = [](const Tensor& a, const Tensor& b) {
    const Doubles want = floor_divide(a, b).to_vector();
    const Doubles got = floor_divide(a.cuda(), b.cuda()).cpu().to_vector();
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(std::isnan(want[i]) ? std::isnan(got[i])
                                      : got[i] == want[i] && std::signbit(got[i]) == std::signbit(want[i]))
          << i << ": " << got[i] << " instead of " << want[i];
  };
  // quotients next to whole numbers, some of them beyond 2^24
  Tensor b = randn({20000}), whole_numbers = floor(randn({20000}) * exp(randn({20000}) * 5));
  same(whole_numbers * b, b);
  Tensor some = tensor({0, -0.0, 1e-45, -3e-39, 0.3, -1, 7, -16777215, 16777217, 1e20, 3.3e38, -kInf, kInf, kNan});
  same(reshape(some, {14, 1}), some);
}

TEST(pointwise, bools) {
  Tensor t = tensor(std::vector<bool>{true, true, false}, {3}), f = tensor(std::vector<bool>{true, false, false}, {3});
  EXPECT_EQ((t + f).dtype(), kBool);
  EXPECT_EQ((t + f).to_vector(), (Doubles{1, 1, 0}));
  EXPECT_EQ((t * f).to_vector(), (Doubles{1, 0, 0}));
  EXPECT_EQ(maximum(t, f).dtype(), kBool);
  EXPECT_EQ((t / t).dtype(), kFloat32);
  EXPECT_EQ(exp(t).dtype(), kFloat32);
  EXPECT_EQ(bitwise_not(t).to_vector(), (Doubles{0, 0, 1}));
  EXPECT_EQ(bitwise_xor(t, f).to_vector(), (Doubles{0, 1, 0}));
  EXPECT_THROW(t - f, TypeError);
  EXPECT_THROW(t - whole({1, 1, 1}), TypeError);
  EXPECT_THROW(-t, TypeError);
}

TEST(pointwise, shifts_beyond_the_width_shift_everything_out) {
  EXPECT_EQ(bitwise_left_shift(whole({1, 1, 1, 3}, kInt8), whole({1, 7, 8, -1}, kInt8)).to_vector(),
            (Doubles{2, -128, 0, 0}));
  EXPECT_EQ(bitwise_right_shift(whole({-8, -8, 8, -1}, kInt8), whole({1, 9, 9, -1}, kInt8)).to_vector(),
            (Doubles{-4, -1, 0, -1}));
  EXPECT_EQ(bitwise_right_shift(whole({200, 200}, kUInt8), whole({3, 8}, kUInt8)).to_vector(), (Doubles{25, 0}));
}

TEST(pointwise, nan_and_infinities) {
  Tensor x = tensor({kNan, kInf, -kInf, 0.0, -0.0, 1.0});
  for (auto t : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    Tensor y = to_dtype(x, t);
    EXPECT_EQ(isnan(y).to_vector(), (Doubles{1, 0, 0, 0, 0, 0})) << name(t);
    EXPECT_EQ(isinf(y).to_vector(), (Doubles{0, 1, 1, 0, 0, 0})) << name(t);
    EXPECT_EQ(isfinite(y).to_vector(), (Doubles{0, 0, 0, 1, 1, 1})) << name(t);
    EXPECT_EQ(logical_not(y).to_vector(), (Doubles{0, 0, 0, 1, 1, 0})) << name(t);
    EXPECT_EQ(eq(y, y).to_vector(), (Doubles{0, 1, 1, 1, 1, 1})) << name(t);
    EXPECT_EQ(sign(y).to_vector(), (Doubles{0, 1, -1, 0, 0, 1})) << name(t);
    EXPECT_TRUE(std::isnan(maximum(y, zeros({}, t)).to_vector()[0]) &&
                std::isnan(minimum(zeros({}, t), y).to_vector()[0]))
        << name(t);
    EXPECT_TRUE(std::isnan(clamp(y, 0, 1).to_vector()[0]) && std::isnan(relu(y).to_vector()[0])) << name(t);
  }
  EXPECT_EQ(round(tensor({0.5, 1.5, 2.5, -0.5, -1.5})).to_vector(), (Doubles{0, 2, 2, 0, -2})) << "halves go to even";
  EXPECT_EQ(clamp(tensor({-2, 0, 2}), 1, -1).to_vector(), (Doubles{-1, -1, -1})) << "max wins where min is larger";
}

TEST(pointwise, in_place_ops_write_the_tensor_and_keep_its_dtype) {
  Tensor x = tensor({1, 2, 3}, kFloat16);
  void* bytes = x.data_ptr();
  x.add_(tensor({1, 1, 1}, kFloat64), 2).mul_(2.0);
  EXPECT_EQ(x.to_vector(), (Doubles{6, 8, 10}));
  EXPECT_EQ(x.data_ptr(), bytes);
  EXPECT_EQ(x.dtype(), kFloat16);
  Tensor i = whole({1, 2});
  i.add_(whole({1}), 3);
  EXPECT_EQ(i.to_vector(), (Doubles{4, 5}));
  EXPECT_THROW(i.div_(whole({2, 2})), TypeError);
  EXPECT_THROW(i.add_(Scalar(0.5)), TypeError);
  EXPECT_THROW(i.add_(zeros({3, 2}, kInt64)), ValueError) << "the tensor cannot grow";
  Tensor row = zeros({2, 3});
  row.select(0, 1).add_(Scalar(1));
  EXPECT_EQ(row.to_vector(), (Doubles{0, 0, 0, 1, 1, 1}));
}

// Rows of a few elements go to kernels by the hundred: what is one number, one row or has gaps is staged before.
TEST(pointwise, rows_of_a_few_elements_give_the_same) {
  for (DType t : {kUInt8, kBFloat16, kFloat32, kFloat64})
    for (int64_t n : {1, 3, 4, 33, 48, 49}) {
      const std::string what = std::string(name(t)) + ", rows of " + std::to_string(n);
      auto numbers = [&](Shape shape, int step) {
        return to_dtype(remainder(arange(0, double(numel(shape)), 1, kInt64) * step, wrapped(13.0)), t).view(shape);
      };
      const Tensor wide = numbers({2, 5003, n + 1}, 7), x = wide.contiguous().slice(2, 0, n), row = numbers({n}, 5),
                   column = wide.slice(2, n, n + 1), dense = x.clone();
      auto all = [&](const Tensor& small) { return small.expand(x.shape()).clone(); };
      EXPECT_EQ((dense * row).to_vector(), (dense * all(row)).to_vector()) << what;
      EXPECT_EQ((row - x).to_vector(), (all(row) - dense).to_vector()) << what;
      EXPECT_EQ((x * column).to_vector(), (dense * all(column)).to_vector()) << what;
      EXPECT_EQ(lt(x, row).to_vector(), lt(dense, all(row)).to_vector()) << what;
      EXPECT_EQ(where(lt(x, row), x, row).to_vector(), where(lt(dense, all(row)), dense, all(row)).to_vector()) << what;
      Tensor kept = wide.clone(), changed = kept.slice(2, 0, n);
      changed.add_(row);
      EXPECT_EQ(changed.to_vector(), (dense + all(row)).to_vector()) << what;
      EXPECT_EQ(kept.slice(2, n, n + 1).to_vector(), column.to_vector()) << what;
    }
}

// Operands that lie in different orders: pieces of one are turned before the kernels read them.
TEST(pointwise, operands_of_any_layout_give_the_same) {
  for (DType t : {kUInt8, kBFloat16, kFloat32, kFloat64})
    for (Shape shape : {Shape{2, 8, 9, 11}, Shape{1, 67, 5, 31}, Shape{3, 16, 32, 32}, Shape{2, 300, 3, 3}}) {
      const int64_t n = numel(shape);
      const std::string what = std::string(name(t)) + " of " + std::to_string(n);
      auto numbers = [&](int step) {
        return to_dtype(remainder(arange(0, double(n), 1, kInt64) * step, wrapped(101.0)), t).view(shape);
      };
      const Tensor x = numbers(7), y = numbers(11), mixed = y.contiguous(MemoryFormat::ChannelsLast),
                   one = y.select(1, 3).unsqueeze(1).expand(shape);
      EXPECT_EQ((x + mixed).to_vector(), (x + y).to_vector()) << what;
      EXPECT_EQ((mixed - x).to_vector(), (y - x).to_vector()) << what;
      EXPECT_EQ(lt(x, mixed).to_vector(), lt(x, y).to_vector()) << what;
      EXPECT_EQ((mixed + one).to_vector(), (y + one).to_vector()) << what;
      EXPECT_EQ((mixed * x.select(0, 0)).to_vector(), (y * x.select(0, 0)).to_vector()) << what;
      Tensor z = mixed.clone();
      z.add_(x);
      EXPECT_EQ(z.to_vector(), (y + x).to_vector()) << what;
      if (t == kFloat32) {
        EXPECT_EQ(neg(x.permute({0, 2, 3, 1})).contiguous().to_vector(), (-x).permute({0, 2, 3, 1}).to_vector());
      }
    }
}

// What is left of a division has every digit, however large the quotient; numbers that are no plain case stand beside
// plain ones in a vector.
TEST(pointwise, remainders_are_exact) {
  std::vector<float> a, b;
  const float inf = INFINITY, nan = NAN;
  for (float x : {0.f, -0.f, 1.f, -1.f, 5.5f, -7.25f, 1e7f, -1e7f, 3e38f, 1e-40f, 0.1f, 16777215.f, inf, nan})
    for (float y : {1.f, -1.f, 0.3f, -0.7f, 3.f, 1e-3f, 7e30f, 1e-39f, inf, -inf, nan, 0.f, 2.9999998f})
      a.push_back(x), b.push_back(y);
  uint32_t state = 1;
  for (int i = 0; i < 20000; ++i) {
    auto number = [&] { return float(int32_t(state = state * 1664525 + 1013904223)) * 0x1p-20f; };
    a.push_back(number()), b.push_back(number() * 0.01f);
  }
  const Tensor x = tensor(a, {int64_t(a.size())}), y = tensor(b, {int64_t(b.size())});
  const auto whole = fmod(x, y).to_vector(), floored = remainder(x, y).to_vector();
  for (size_t i = 0; i < a.size(); ++i) {
    const double want = std::fmod(double(a[i]), double(b[i])),
                 up = want != 0 && (b[i] < 0) != (want < 0) ? double(float(want) + b[i]) : want;
    EXPECT_TRUE(whole[i] == want || (std::isnan(whole[i]) && std::isnan(want))) << a[i] << " % " << b[i];
    EXPECT_TRUE(floored[i] == up || (std::isnan(floored[i]) && std::isnan(up))) << a[i] << " % " << b[i];
  }
}
TEST(pointwise, whole_numbers_are_divided_exactly) {
  const int64_t far = int64_t(1) << 51, least = std::numeric_limits<int64_t>::min();
  std::vector<int64_t> a, b;
  for (int64_t x : {int64_t(0), int64_t(1), int64_t(-7), int64_t(6), far - 1, -far, far, least, far - 2, 1 - far})
    for (int64_t y : {int64_t(1), int64_t(-1), int64_t(3), int64_t(-3), int64_t(7), far - 1, -far, far, least, far - 2})
      a.push_back(x), b.push_back(y);
  uint64_t state = 1;
  for (int i = 0; i < 20000; ++i) {
    auto number = [&](int bits) {
      return int64_t((state = state * 6364136223846793005 + 1442695040888963407)) >> bits;
    };
    a.push_back(number(13 + i % 40)), b.push_back(number(13 + i % 47) | 1);
  }
  const Tensor x = tensor(a, {int64_t(a.size())}), z = tensor(b, {int64_t(b.size())});
  auto numbers = [](const Tensor& t) {
    auto* p = static_cast<const int64_t*>(t.data_ptr());
    return std::vector<int64_t>(p, p + t.numel());
  };
  const auto down = numbers(floor_divide(x, z)), cut = numbers(div(x, z, "trunc")), modulo = numbers(remainder(x, z)),
             rest = numbers(fmod(x, z));
  for (size_t i = 0; i < a.size(); ++i) {
    if (b[i] == -1 && a[i] == least) continue;  // overflows
    const int64_t q = a[i] / b[i], m = a[i] % b[i];
    const bool below = m != 0 && (m < 0) != (b[i] < 0);
    ASSERT_EQ(cut[i], q) << a[i] << " / " << b[i];
    ASSERT_EQ(down[i], q - below) << a[i] << " / " << b[i];
    ASSERT_EQ(rest[i], m) << a[i] << " % " << b[i];
    ASSERT_EQ(modulo[i], below ? m + b[i] : m) << a[i] << " % " << b[i];
  }
}
TEST(pointwise, ranges_are_their_formulas_at_every_place) {
  const int64_t n = 100003;  // several threads' parts
  const auto whole = arange(5, 5 + 3 * double(n), 3, kInt64).to_vector(),
             reals = linspace(-1, 2, n, kFloat64).to_vector();
  ASSERT_EQ(whole.size(), size_t(n));
  for (int64_t i = 0; i < n; ++i) {
    ASSERT_EQ(whole[size_t(i)], double(5 + 3 * i));
    const double step = 3 / double(n - 1), want = i < n / 2 ? -1 + double(i) * step : 2 - step * double(n - 1 - i);
    ASSERT_EQ(reals[size_t(i)], want);
  }
}
TEST(pointwise, rows_beside_one_number_of_any_length) {
  for (DType t : {kFloat32, kFloat64, kUInt8, kBool})
    for (int64_t cols : {5, 2048, 2100, 8193, 9000}) {
      const Tensor x = to_dtype(arange(0, double(3 * cols), 1, kInt64), t).view({3, cols}),
                   y = to_dtype(arange(1, 4, 1, kInt64), t).view({3, 1});
      const Tensor z = t == kBool ? bitwise_and(x, y) : x + y;
      const auto a = x.to_vector(), b = y.to_vector(), c = z.to_vector();
      for (size_t i = 0; i < c.size(); ++i) {
        const double sum = a[i] + b[i / size_t(cols)];
        ASSERT_EQ(c[i], t == kBool    ? double(a[i] != 0 && b[i / size_t(cols)] != 0)
                        : t == kUInt8 ? std::fmod(sum, 256)
                                      : sum);
      }
    }
}

}  // namespace
}  // namespace sf::test
