// What the samples of the ops do not reach: conversions between all dtypes, odd alignments, long and strange strides,
// reductions of every shape of the kernel. Needs a GPU; skips without one.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "scaffolding/backend/backend.h"
#include "scaffolding/core/env.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf {

namespace {

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  }
};

// Equal, or both NaN.
void expect_same(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(str(got.shape()), str(want.shape())) << what;
  auto a = got.to_vector(), b = want.to_vector();
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) << what << ": element " << i << " is " << a[i] << ", expected " << b[i];
}

// Whole numbers from -50 to 50: exact in every dtype that computes, and so are their sums.
Tensor numbers(const Shape& size) {
  Tensor x = empty(size, kFloat32);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = float(i * 7919 % 101 - 50);
  return x;
}

}  // namespace

TEST_F(Cuda, converts_between_all_dtypes_as_the_cpu_does) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  std::vector<double> values = {0,     -0.0,  1,     -1,   0.5,  2.5,  -3.75, 127,  200,  -200,  448,  470,  481,
                                57344, 65504, 70000, 1e-3, 1e-6, 1e-8, 3e9,   -3e9, 1e19, -1e19, 1e39, kInf, -kInf};
  values.push_back(std::nan(""));
  Tensor x = tensor(values, {int64_t(values.size())});
  for (int s = 0; s < kNumDTypes; ++s)
    for (int d = 0; d < kNumDTypes; ++d) {
      Tensor from = to_dtype(x, DType(s));
      std::string what = std::string(name(DType(s))) + " to " + std::string(name(DType(d)));
      expect_same(to_dtype(from.cuda(), DType(d)).cpu(), to_dtype(from, DType(d)), what);
    }
}

TEST_F(Cuda, handles_every_length_and_alignment) {
  for (DType t : {kFloat64, kFloat32, kBFloat16, kInt8}) {
    Tensor x = to_dtype(numbers({3000}), t), y = x.cuda();
    for (int64_t n : {1, 7, 8, 9, 255, 256, 257, 2047, 2048, 2049, 2900})
      for (int64_t at : {0, 1, 3, 8}) expect_same((y.narrow(0, at, n) + y.narrow(0, 16 - at, n)).cpu(), x.narrow(0, at, n) + x.narrow(0, 16 - at, n), "add");
  }
}

TEST_F(Cuda, follows_any_strides_and_broadcasts) {
  Tensor x = numbers({3, 5, 7, 4, 11}), y = x.cuda();
  auto views = [](const Tensor& t) -> Tensors {
    return {t.transpose(0, 4), t.permute({3, 1, 4, 0, 2}), t.slice(4, 1, 11, 3), t.slice(1, 0, 5, 2).transpose(1, 2),
            t.select(2, 3),    t.select(4, 0).select(0, 1)};
  };
  Tensors here = views(x), there = views(y);
  for (size_t i = 0; i < here.size(); ++i) {
    expect_same(there[i].contiguous().cpu(), here[i].contiguous(), "contiguous");
    expect_same((there[i] * 2.0 + there[i].select(0, 0)).cpu(), here[i] * 2.0 + here[i].select(0, 0), "broadcast");
    Tensor written = x.cuda(), wanted = x.clone();
    views(written)[i].fill_(77);
    views(wanted)[i].fill_(77);
    expect_same(written.cpu(), wanted, "fill of a view");
    views(written)[i].copy_(there[i]);
    views(wanted)[i].copy_(here[i]);
    expect_same(written.cpu(), wanted, "copy into a view");
  }
}

TEST_F(Cuda, sums_few_and_many_terms_near_and_far) {
  for (DType t : {kFloat64, kFloat32, kBFloat16, kInt32, kBool}) {
    Tensor x = to_dtype(numbers({70, 3, 500}), t), y = x.cuda();
    for (const Shape& dim : {Shape{}, Shape{0}, Shape{1}, Shape{2}, Shape{0, 2}, Shape{1, 2}}) {
      expect_same(y.sum(dim, false, kFloat64).cpu(), x.sum(dim, false, kFloat64), "sum over " + str(dim));
      expect_same(y.transpose(0, 2).sum(dim, true, kFloat64).cpu(), x.transpose(0, 2).sum(dim, true, kFloat64), "sum of a transpose over " + str(dim));
    }
    Tensor wide = to_dtype(numbers({40, 20000}), t);
    expect_same(wide.cuda().sum({0}, false, kFloat64).cpu(), wide.sum({0}, false, kFloat64), "many sums side by side");
  }
  expect_same(zeros({3, 0}).cuda().sum({1}).cpu(), zeros({3}), "a sum of nothing");
}

TEST_F(Cuda, reuses_memory_that_was_freed) {
  if (!env::flag("SF_CUDA_CACHE")) GTEST_SKIP() << "SF_CUDA_CACHE=0 keeps nothing";
  Tensor x = empty({1000}, kFloat32, Device("cuda"));
  void* first = x.data_ptr();
  x = Tensor();
  EXPECT_EQ(empty({1000}, kFloat32, Device("cuda")).data_ptr(), first);
}

TEST_F(Cuda, refuses_what_cannot_fit_and_goes_on) {
  EXPECT_THROW(empty({int64_t(1) << 50}, kFloat32, Device("cuda")), RuntimeError);
  expect_same(ones({4}, kFloat32, Device("cuda")).cpu(), ones({4}), "after running out of memory");
}

}  // namespace sf
