// What the samples of the ops do not reach: conversions between all dtypes, odd alignments, long and strange strides,
// reductions of every shape of the kernel. Needs a GPU; skips without one.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "scaffolding/backend/backend.h"
#include "scaffolding/core/env.h"
#include "scaffolding/ops/adamw/adamw.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/dropout/dropout.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
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
    ASSERT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))
        << what << ": element " << i << " is " << a[i] << ", expected " << b[i];
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
      for (int64_t at : {0, 1, 3, 8})
        expect_same((y.narrow(0, at, n) + y.narrow(0, 16 - at, n)).cpu(), x.narrow(0, at, n) + x.narrow(0, 16 - at, n),
                    "add");
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
      expect_same(y.transpose(0, 2).sum(dim, true, kFloat64).cpu(), x.transpose(0, 2).sum(dim, true, kFloat64),
                  "sum of a transpose over " + str(dim));
    }
    Tensor wide = to_dtype(numbers({40, 20000}), t);
    expect_same(wide.cuda().sum({0}, false, kFloat64).cpu(), wide.sum({0}, false, kFloat64), "many sums side by side");
  }
  expect_same(zeros({3, 0}).cuda().sum({1}).cpu(), zeros({3}), "a sum of nothing");
}

TEST_F(Cuda, steps_of_adamw_equal_those_of_the_cpu) {
  struct Kind {
    DType param, grad;
    bool master;
  };
  for (const Kind& k : {Kind{kFloat32, kFloat32, false}, Kind{kBFloat16, kFloat32, true},
                        Kind{kFloat16, kFloat16, false}, Kind{kFloat64, kFloat64, false}}) {
    DType moment = k.param == kFloat64 ? kFloat64 : kFloat32;
    Tensors results[2];
    for (Device device : {Device(), Device("cuda")}) {
      Tensors params, grads, m, v, masters;
      for (int64_t i = 0; i < 45; ++i) {  // more tensors than one launch takes, the last of more than one block
        Shape size{i == 44 ? 9000 : i};
        Tensor x = numbers(size) / 7.0;
        params.push_back(to_dtype(x, k.param).to(device));
        grads.push_back(to_dtype(x - 1.5, k.grad).to(device));
        m.push_back(zeros(size, moment, device));
        v.push_back(zeros(size, moment, device));
        masters.push_back(k.master ? x.clone().to(device) : Tensor());
      }
      for (int64_t step = 1; step <= 3; ++step)
        adamw_(params, grads, m, v, step, {.lr = 0.1, .grad_scale = 0.5, .maximize = step == 3}, masters);
      for (Tensors* list : {&params, &m, &v, &masters})
        for (auto& t : *list)
          if (t) results[device.is_cuda()].push_back(t.cpu());
    }
    for (size_t i = 0; i < results[0].size(); ++i) {
      auto a = results[0][i].to_vector(), b = results[1][i].to_vector();
      double tolerance = is_reduced(results[0][i].dtype()) ? 8e-3 : 1e-5;
      for (size_t j = 0; j < a.size(); ++j)
        ASSERT_NEAR(a[j], b[j], tolerance * std::max(1.0, std::abs(a[j]))) << name(k.param) << ", tensor " << i;
    }
  }
}

TEST_F(Cuda, dropout_keeps_or_drops) {
  Tensor x = (numbers({5000}) + 100.0).cuda().requires_grad_(), y = dropout(x, 0.25, true);
  y.sum().backward();
  auto from = x.detach().cpu().to_vector(), to = y.detach().cpu().to_vector(), dx = x.grad().cpu().to_vector();
  int kept = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    bool stays = to[i] != 0;
    kept += stays;
    ASSERT_NEAR(to[i], stays ? from[i] / 0.75 : 0, 1e-4);
    ASSERT_NEAR(dx[i], stays ? 1 / 0.75 : 0, 1e-6);
  }
  EXPECT_NEAR(kept, 3750, 200);
}

TEST_F(Cuda, refuses_positions_out_of_range) {
  Tensor x = numbers({5, 3}).cuda(), wrong = tensor({0.0, 5.0}, kInt64).cuda();
  EXPECT_THROW(index_select(x, 0, wrong).cpu(), IndexError);
  EXPECT_THROW(gather(x, 0, wrong.reshape({2, 1})).cpu(), IndexError);
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
