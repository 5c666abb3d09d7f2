// Accuracy, special values, empty reductions and dtypes: the answers are torch's.
#include "scaffolding/ops/reduce/reduce.h"

#include <gtest/gtest.h>

#include <cmath>

#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf::test {
namespace {

using Doubles = std::vector<double>;
// n numbers spread evenly over [0, 1).
Tensor ramp(int64_t n, DType t = kFloat32) {
  Tensor x = empty({n}, kFloat64);
  double v = 0;
  for (int64_t i = 0; i < n; ++i) {
    v += 0.6180339887498949;
    x.data<double>()[i] = v = v >= 1 ? v - 1 : v;
  }
  return to_dtype(x, t);
}

TEST(reduce, float32_sums_are_accurate_to_their_last_bits_in_every_direction) {
  for (Shape size : {Shape{1 << 20, 3}, Shape{3, 1 << 20}, Shape{1000, 1000}, Shape{1 << 16, 16}, Shape{40, 70000}}) {
    Tensor x = ramp(numel(size)).reshape(size), exact = to_dtype(x, kFloat64);
    for (Shape dim : {Shape{0}, Shape{1}, Shape{0, 1}}) {
      Doubles got = sum(x, dim).to_vector(), want = sum(exact, dim).to_vector();
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_LE(std::fabs(got[i] - want[i]), 2e-7 * want[i]) << str(size) << " over " << str(dim);
    }
  }
}

TEST(reduce, rows_of_a_few_elements_fold_as_a_loop_over_them_does) {
  for (DType t : {kFloat32, kFloat16, kBFloat16})
    for (int64_t n : {2, 3, 4})
      for (int64_t rows : {1, 15, 33, 700, 100003}) {
        Tensor x = (ramp((rows + 1) * n, t).reshape({rows + 1, n}) - 0.25).narrow(0, 1, rows);
        const Doubles v = to_dtype(x, kFloat64).to_vector();
        const double share = t == kFloat32 ? 1e-6 : t == kFloat16 ? 1e-3 : 1e-2;  // of the result's own rounding
        const Doubles sums = sum(x, Shape{0}).to_vector(), most = amax(x, Shape{0}).to_vector(),
                      norms = norm(x, 2, Shape{0}).to_vector(),
                      variances = rows > 1 ? var(x, Shape{0}).to_vector() : Doubles(size_t(n));
        for (int64_t j = 0; j < n; ++j) {
          double s = 0, square = 0, highest = -kInf;
          for (int64_t i = 0; i < rows; ++i)
            s += v[size_t(i * n + j)], square += v[size_t(i * n + j)] * v[size_t(i * n + j)],
                highest = std::max(highest, v[size_t(i * n + j)]);
          const double mean = s / double(rows);
          double spread = 0;
          for (int64_t i = 0; i < rows; ++i) spread += (v[size_t(i * n + j)] - mean) * (v[size_t(i * n + j)] - mean);
          if (s < 65504 || t != kFloat16)
            EXPECT_NEAR(sums[size_t(j)], s, share * std::fabs(s) + 1e-6) << name(t) << " " << rows << " x " << n;
          EXPECT_EQ(most[size_t(j)], highest) << name(t) << " " << rows << " x " << n;
          EXPECT_NEAR(norms[size_t(j)], std::sqrt(square), share * std::sqrt(square))
              << name(t) << " " << rows << " x " << n;
          if (rows > 1)
            EXPECT_NEAR(variances[size_t(j)], spread / double(rows - 1), share * spread / double(rows - 1))
                << name(t) << " " << rows << " x " << n;
        }
      }
}

TEST(reduce, sums_do_not_depend_on_the_number_of_threads) {
  Tensor x = ramp(3000000);
  int was = num_threads();
  set_num_threads(1);
  double one = sum(x).item();
  set_num_threads(2);
  double two = sum(x).item();
  set_num_threads(was);
  EXPECT_EQ(one, two);
}

TEST(reduce, variance_of_numbers_far_from_zero) {
  Tensor x = ramp(100000, kFloat64) + 4096.0;
  double exact = var(x).item();
  EXPECT_NEAR(exact, 1.0 / 12, 1e-4);
  EXPECT_NEAR(var(to_dtype(x, kFloat32)).item(), exact, 1e-3 * exact);  // the numbers themselves carry 2.4e-4
  EXPECT_NEAR(var(to_dtype(x, kFloat32).reshape({1000, 100}), {0}).to_vector()[3],
              var(x.reshape({1000, 100}), {0}).to_vector()[3], 2e-4);
}

TEST(reduce, float16_accumulates_in_float32) {
  Tensor x = full({100000}, 1, kFloat16);
  EXPECT_EQ(mean(x).item(), 1);
  EXPECT_EQ(sum(x).item(), kInf);
  EXPECT_EQ(sum(x, {}, false, kFloat32).item(), 100000);
  EXPECT_NEAR(norm(full({100}, 300, kFloat16)).item(), 3000, 2) << "squares overflow float16";
}

TEST(reduce, integers_are_exact) {
  Tensor x = tensor(std::vector<int64_t>{(int64_t(1) << 53) + 1, 1, -1}, {3});
  EXPECT_EQ(sum(x).item_int(), (int64_t(1) << 53) + 1);
  EXPECT_EQ(amax(x).item_int(), (int64_t(1) << 53) + 1);
  EXPECT_EQ(sum(full({300}, 127, kInt8)).item_int(), 38100);
  EXPECT_EQ(sum(full({300}, 127, kInt8), {}, false, kInt8).item_int(), int8_t(38100));
  EXPECT_EQ(prod(full({3}, 200, kUInt8)).item_int(), 8000000);
  EXPECT_EQ(sum(full({5}, 1, kBool)).dtype(), kInt64);
  EXPECT_EQ(amax(full({5}, 1, kBool)).dtype(), kBool);
}

TEST(reduce, nothing_gives_the_neutral_element_or_an_error) {
  Tensor x = zeros({0, 2});
  EXPECT_EQ(sum(x, {0}).to_vector(), (Doubles{0, 0}));
  EXPECT_EQ(prod(x, {0}).to_vector(), (Doubles{1, 1}));
  EXPECT_TRUE(std::isnan(mean(x).item()));
  EXPECT_TRUE(std::isnan(var(x).item()));
  EXPECT_EQ(logsumexp(x, {0}).to_vector(), (Doubles{-kInf, -kInf}));
  EXPECT_EQ(any(x).item(), 0);
  EXPECT_EQ(all(x).item(), 1);
  EXPECT_EQ(norm(x).item(), 0);
  EXPECT_EQ(amax(x, {1}).shape(), (Shape{0}));
  EXPECT_THROW(amax(x, {0}), IndexError);
  EXPECT_THROW(argmax(x), IndexError);
  EXPECT_TRUE(std::isnan(var(ones({1})).item())) << "one number has no sample variance";
  EXPECT_EQ(var(ones({1}), {}, 0).item(), 0);
}

TEST(reduce, nan_wins_and_equals_give_the_first_index) {
  for (auto t : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    Tensor x = tensor({1, 5, kNan, 7, kNan, 5, 7, 0}, t).reshape({2, 4});
    EXPECT_TRUE(std::isnan(amax(x).item()) && std::isnan(amin(x).item()) && std::isnan(sum(x).item())) << name(t);
    EXPECT_EQ(argmax(x, 1).to_vector(), (Doubles{2, 0})) << name(t);
    EXPECT_EQ(argmin(x, 0).to_vector(), (Doubles{1, 0, 0, 1})) << name(t);
  }
  Tensor ties = tensor({3, 7, 7, 1, 1, 7});
  EXPECT_EQ(argmax(ties).item(), 1);
  EXPECT_EQ(argmin(ties).item(), 3);
  Tensor wide = zeros({5000});
  wide.slice(0, 3000, 3001).fill_(1);
  wide.slice(0, 4000, 4001).fill_(1);
  EXPECT_EQ(argmax(wide).item(), 3000);
  EXPECT_EQ(argmax(wide.reshape({1, 5000}).expand({20, 5000}).transpose(0, 1).contiguous(), 0).to_vector(),
            Doubles(20, 3000));
}

TEST(reduce, equal_largest_elements_share_the_gradient) {
  Tensor x = tensor({1, 3, 3, 2}).requires_grad_();
  amax(x).backward();
  EXPECT_EQ(x.grad().to_vector(), (Doubles{0, 0.5, 0.5, 0}));
}

TEST(reduce, std_of_equal_numbers_has_gradient_zero) {
  Tensor x = ones({4}).requires_grad_();
  std(x).backward();
  EXPECT_EQ(x.grad().to_vector(), (Doubles{0, 0, 0, 0}));
  Tensor y = zeros({4}).requires_grad_();
  norm(y).backward();
  EXPECT_EQ(y.grad().to_vector(), (Doubles{0, 0, 0, 0}));
}

TEST(reduce, logsumexp_does_not_overflow) {
  EXPECT_NEAR(logsumexp(tensor({1000, 1000}), {0}).item(), 1000 + std::log(2.0), 1e-4);
  EXPECT_EQ(logsumexp(tensor({-kInf, -kInf}), {0}).item(), -kInf);
  EXPECT_EQ(logsumexp(tensor({kInf, 1}), {0}).item(), kInf);
  EXPECT_TRUE(std::isnan(logsumexp(tensor({kNan, 1}), {0}).item()));
}

TEST(reduce, any_and_all_take_every_dtype) {
  for (auto t : {kUInt8, kInt8, kInt16, kInt32, kInt64, kBool, kFloat16, kBFloat16, kFloat32, kFloat64}) {
    Tensor x = tensor({0, 1, 0, 0, 1, 1}, t).reshape({2, 3});
    EXPECT_EQ(any(x, {0}).to_vector(), (Doubles{0, 1, 1})) << name(t);
    EXPECT_EQ(all(x, {0}).to_vector(), (Doubles{0, 1, 0})) << name(t);
    EXPECT_EQ(any(x).dtype(), t == kUInt8 ? kUInt8 : kBool) << name(t);
  }
  EXPECT_EQ(any(tensor({kNan})).item(), 1) << "NaN is not 0";
  EXPECT_EQ(all(tensor({-0.0})).item(), 0);
}

TEST(reduce, running_sums_accumulate_in_double) {
  Tensor y = cumsum(full({1 << 20}, 0.1, kFloat32), 0);
  EXPECT_NEAR(y.slice(0, (1 << 20) - 1).item(), 0.1 * (1 << 20), 0.01);
}

TEST(reduce, rows_that_run_together_are_those_that_run_alone) {
  for (auto t : {kInt64, kInt32, kUInt8, kFloat16, kBFloat16, kFloat32, kFloat64})
    for (int64_t n : {1, 63, 64, 65, 200}) {
      Tensor x = ramp(7 * n, kFloat64).reshape({7, n});
      x = to_dtype(is_floating(t) ? x + 0.5 : x * 9.0, t);
      const Tensor across = x.transpose(0, 1).contiguous().transpose(0, 1);
      for (auto* scan : {&cumsum, &cumprod}) {
        const Tensor all = scan(x, 1, {}), turned = scan(across, 1, {});
        for (int64_t r = 0; r < 7; ++r) {
          const Doubles alone = scan(x.narrow(0, r, 1), 1, {}).to_vector();
          EXPECT_EQ(all.narrow(0, r, 1).to_vector(), alone) << name(t) << " " << n;
          EXPECT_EQ(turned.narrow(0, r, 1).to_vector(), alone) << name(t) << " " << n;
        }
      }
    }
}

TEST(reduce, gradients_of_rows_that_run_together) {  // a scan from the end
  const Tensor x = ramp(6 * 100, kFloat64).reshape({6, 100}).requires_grad_(),
               w = ramp(6 * 100, kFloat64).reshape({6, 100});
  (cumsum(x, 1) * w).sum().backward();
  for (int64_t r = 0; r < 6; ++r) {
    double tail = 0;
    for (int64_t i = 99; i >= 0; --i) {
      tail += w.data<double>()[r * 100 + i];
      ASSERT_EQ(x.grad().data<double>()[r * 100 + i], tail) << r << " " << i;
    }
  }
}

TEST(reduce, the_first_of_the_best_is_found_wherever_it_is) {
  for (auto t : {kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64})
    for (int64_t n : {1, 63, 127, 128, 129, 511, 512, 513, 1100})
      for (int64_t place : {int64_t(0), n / 3, n - 1}) {
        Tensor x = full({n}, 3, t);
        EXPECT_EQ(argmax(x).item(), 0) << name(t) << " " << n;
        x.narrow(0, place, n - place).fill_(5);  // this one and all after it
        EXPECT_EQ(argmax(x).item(), double(place)) << name(t) << " " << n;
        x.narrow(0, place, n - place).fill_(1);
        EXPECT_EQ(argmin(x).item(), double(place)) << name(t) << " " << n;
        if (!is_floating(t)) continue;
        x.narrow(0, place, 1).fill_(kNan);
        x.narrow(0, n - 1, 1).fill_(place == n - 1 ? kNan : kInf);
        EXPECT_EQ(argmax(x).item(), double(place)) << name(t) << " " << n;
        EXPECT_EQ(argmin(x).item(), double(place)) << name(t) << " " << n;
        x.fill_(-0.0);
        x.narrow(0, place, n - place).fill_(0.0);
        EXPECT_EQ(argmax(x).item(), 0) << name(t) << " " << n;
        EXPECT_EQ(std::signbit(std::get<0>(max_dim(x, 0)).item()), place > 0) << name(t) << " " << n;
        x.fill_(-kInf);
        EXPECT_EQ(argmax(x).item(), 0) << name(t) << " " << n;
      }
}

}  // namespace
}  // namespace sf::test
