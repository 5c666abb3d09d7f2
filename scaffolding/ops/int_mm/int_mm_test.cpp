// Exact, so compared element by element with sums in 64 bits.
#include "scaffolding/ops/int_mm/int_mm.h"

#include <array>

#include "scaffolding/core/provider.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/int_mm/kernel.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/view/view.h"

namespace sf::test {

SF_OP_TEST(_int_mm) {
  auto bytes = [&](const Shape& size) { return randint(-128, 128, size, kInt8); };
  sample(bytes({33, 70}), bytes({70, 45}));
  sample(bytes({20, 64}), bytes({48, 64}).t());
  sample(bytes({40, 24}).t(), bytes({40, 16}));
  sample(bytes({17, 0}), bytes({0, 5}));
  sample(bytes({0, 5}), bytes({5, 3}));
  sample(bytes({1, 9}), bytes({9, 1}));
  rejects("needs two int8 matrices, got int8 and int32", bytes({2, 3}), randint(0, 9, {3, 2}, kInt32));
  rejects("needs two int8 matrices, got float64", randn({2, 3}), randn({3, 2}));
  rejects("needs input [M, K] and mat2 [K, N], got [2, 2, 3]", bytes({2, 2, 3}), bytes({3, 2}));
  rejects("needs equal inner sizes, got 3 and 4", bytes({2, 3}), bytes({4, 2}));
}

namespace {

std::vector<int32_t> exact(const Tensor& a, const Tensor& b) {
  const auto *x = a.data<int8_t>(), *y = b.data<int8_t>();
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  std::vector<int32_t> c;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      int64_t sum = 0;
      for (int64_t p = 0; p < k; ++p)
        sum += int64_t(x[i * a.strides()[0] + p * a.strides()[1]]) * y[p * b.strides()[0] + j * b.strides()[1]];
      c.push_back(int32_t(uint32_t(uint64_t(sum))));
    }
  return c;
}

// By every kernel that this processor has.
void expect_exact(const Tensor& a, const Tensor& b) {
  const std::vector<int32_t> want = exact(a, b);
  for (int i = 0; i < int_mm_kernel.count(Device::CPU); ++i) {
    const std::string label = provider_label(int_mm_kernel.entry(Device::CPU, i));
    pin_provider("*", label);
    Tensor c = int_mm(a, b);
    unpin_providers();
    ASSERT_EQ(c.dtype(), kInt32);
    int64_t wrong = 0;
    for (int64_t at = 0; at < c.numel(); ++at) wrong += c.data<int32_t>()[at] != want[size_t(at)];
    EXPECT_EQ(wrong, 0) << label << " of " << str(a.shape()) << " @ " << str(b.shape()) << ", strides "
                        << a.strides()[0] << " " << a.strides()[1] << ", " << b.strides()[0] << " " << b.strides()[1];
  }
}

Tensor bytes(const Shape& size) { return to_dtype(randint(-128, 128, size), kInt8); }

// [rows, columns] laid out in four ways.
Tensor laid_out(int64_t rows, int64_t columns, int way) {
  switch (way) {
    case 0: return bytes({rows, columns});
    case 1: return bytes({columns, rows}).t();
    case 2: return bytes({rows, columns + 3}).narrow(1, 2, columns);
    default: return bytes({rows, 2, columns, 3}).select(1, 1).select(2, 2);
  }
}

TEST(IntMm, every_kernel_is_exact_for_every_layout) {
  manual_seed(3);
  const std::array<int64_t, 3> sizes[] = {{1, 1, 1},    {3, 5, 2},     {7, 63, 33},  {16, 64, 16},
                                          {33, 65, 31}, {50, 130, 97}, {129, 7, 66}, {100, 1300, 40}};
  for (auto [m, k, n] : sizes)
    for (int of_a = 0; of_a < 4; ++of_a)
      for (int of_b = 0; of_b < 4; ++of_b) expect_exact(laid_out(m, k, of_a), laid_out(k, n, of_b));
}

TEST(IntMm, many_blocks_and_threads) {
  manual_seed(4);
  expect_exact(bytes({700, 2900}), bytes({2900, 90}));
  expect_exact(bytes({70, 3000}), bytes({800, 3000}).t());
}

TEST(IntMm, extremes) {
  for (double x : {-128, -1, 127})
    for (double y : {-128, 1, 127}) expect_exact(full({37, 201}, x, kInt8), full({201, 50}, y, kInt8));
}

TEST(IntMm, sums_wrap_around) { expect_exact(full({6, 140000}, -128, kInt8), full({140000, 9}, -128, kInt8)); }

TEST(IntMm, integers_have_no_gradient) { EXPECT_THROW(bytes({3, 4}).requires_grad_(), Error); }

}  // namespace
}  // namespace sf::test
