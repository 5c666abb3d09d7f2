// softmax, norms and losses over rows of every length at which their kernels change: part of a warp, a warp, a block,
// rows that registers do not hold; whole and odd widths, aligned and not. Values and gradients against the same numbers
// in float64 on the CPU. Needs a GPU or the emulator.
#include <cmath>

#include <gtest/gtest.h>

#include "scaffolding/backend/backend.h"
#include "scaffolding/ops/batch_norm/batch_norm.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/layer_norm/layer_norm.h"
#include "scaffolding/ops/loss/loss.h"
#include "scaffolding/ops/op_check.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/rms_norm/rms_norm.h"
#include "scaffolding/ops/softmax/softmax.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
namespace {

class CudaRowKernels : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
    manual_seed(4);
  }
};

using Function = std::function<Tensor(const Tensors&)>;

// f and its gradients at x, there and in float64 here. offset:
// the first input there begins so many elements behind an aligned address.
void compare(const std::string& what, const Function& f, const Tensors& inputs, DType dtype, int64_t offset = 0) {
  SCOPED_TRACE(what + " of " + str(inputs[0].shape()) + " " + std::string(name(dtype)) + " from " +
               std::to_string(offset));
  Tensors here, there;
  for (auto& x : inputs) {
    // float64: a parameter that keeps its dtype
    Tensor rounded = is_floating(x.dtype()) && x.dtype() != kFloat64 ? to_dtype(x, dtype) : x;
    here.push_back(is_floating(x.dtype()) ? to_dtype(rounded, kFloat64).requires_grad_() : x);
    Tensor moved = rounded.cuda();
    if (there.empty() && offset > 0) {
      moved = zeros({x.numel() + offset}, dtype, moved.device()).slice(0, offset).reshape(x.shape());
      moved.copy_(rounded.cuda());
    }
    there.push_back(is_floating(x.dtype()) ? moved.detach().requires_grad_() : moved);
  }
  Tensor want = f(here), got = f(there), dy = to_dtype(to_dtype(randn(want.shape()), got.dtype()), kFloat64);
  want.backward(dy);
  got.backward(to_dtype(dy, got.dtype()).cuda());
  const double length = double(inputs[0].size(-1)), tol = test::tolerance(dtype, length);
  test::expect_close(got.cpu(), want, tol, "value");
  for (size_t i = 0; i < here.size(); ++i)
    if (is_floating(here[i].dtype()))
      test::expect_close(there[i].grad().cpu(), here[i].grad(), 4 * tol, "gradient of input " + std::to_string(i));
}

constexpr int64_t kWidths[] = {1, 3, 8, 24, 64, 77, 320, 1032, 1111, 2056, 16392};

template <class F> void for_each_case(const F& f) {
  for (DType t : {kFloat32, kBFloat16, kFloat16, kFloat64})
    for (int64_t cols : kWidths) {
      f(t, cols > 2000 ? 2 : 9, cols, 0);
      if (cols == 64 || cols == 1032) f(t, 5, cols, 1);
    }
}

TEST_F(CudaRowKernels, softmax_of_every_length) {
  for_each_case([](DType t, int64_t rows, int64_t cols, int64_t offset) {
    Tensor x = randn({rows, cols}) * 3.0;
    compare(
        "softmax", [](const Tensors& in) { return softmax(in[0], -1); }, {x}, t, offset);
    compare(
        "log_softmax", [](const Tensors& in) { return log_softmax(in[0], -1); }, {x}, t, offset);
  });
}

TEST_F(CudaRowKernels, rows_of_minus_infinity_and_nan_are_as_on_the_cpu) {
  const double inf = std::numeric_limits<double>::infinity();
  for (DType t : {kFloat32, kBFloat16})
    for (int64_t cols : {5, 64, 2056, 16392, 20001}) {
      Tensor x = randn({4, cols}, {}, kFloat32);
      x.select(0, 1).fill_(-inf);
      x.select(0, 2).slice(0, 0, cols - 1).fill_(-inf);
      x.select(0, 3).slice(0, 1, 2).fill_(std::nan(""));
      x = to_dtype(x, t);
      for (bool log : {false, true}) {
        auto f = [&](const Tensor& in) { return log ? log_softmax(in, -1) : softmax(in, -1); };
        auto got = f(x.cuda()).cpu().to_vector(), want = f(x).to_vector();
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])) ||
                      std::fabs(got[i] - want[i]) <= 0.02 * std::fabs(want[i]) + 1e-3)
              << log << " " << name(t) << " " << cols << " " << i << ": " << got[i] << " for " << want[i];
      }
    }
}

TEST_F(CudaRowKernels, norms_of_every_length) {
  for_each_case([](DType t, int64_t rows, int64_t cols, int64_t offset) {
    if (cols == 1) return;  // the gradient of what does not vary is rounding
    Tensor x = randn({rows, cols}) + 0.5, w = randn({cols}), b = randn({cols});
    compare(
        "layer_norm", [=](const Tensors& in) { return layer_norm(in[0], {cols}, in[1], in[2]); }, {x, w, b}, t, offset);
    compare(
        "rms_norm", [=](const Tensors& in) { return rms_norm(in[0], {cols}, in[1], 1e-5); }, {x, w}, t, offset);
    if (cols > 64 && cols != 1032) return;
    compare(
        "bare layer_norm", [=](const Tensors& in) { return layer_norm(in[0], {cols}); }, {x}, t, offset);
    compare(
        "layer_norm with parameters in float64",
        [=](const Tensors& in) { return layer_norm(in[0], {cols}, in[1], in[2]); },
        {x, to_dtype(w, kFloat64), to_dtype(b, kFloat64)}, t, offset);
    auto both = [](const std::tuple<Tensor, Tensor>& y) { return std::get<0>(y) + std::get<1>(y); };
    compare(
        "add_layer_norm", [=](const Tensors& in) { return both(add_layer_norm(in[0], in[1], in[2], in[3])); },
        {x, randn({rows, cols}), w, b}, t, offset);
    compare(
        "add_rms_norm", [=](const Tensors& in) { return both(add_rms_norm(in[0], in[1], in[2])); },
        {x, randn({rows, cols}), w}, t, offset);
    Tensor batches = randn({2, rows, cols});
    compare(
        "modulate", [=](const Tensors& in) { return layer_norm_modulate(in[0], in[1], in[2], in[3], in[4]); },
        {batches, randn({2, cols}), randn({2, cols}), w, b}, t, offset);
  });
}

TEST_F(CudaRowKernels, gradients_of_norms_over_many_rows) {
  for (DType t : {kFloat32, kBFloat16})
    for (Shape shape : {Shape{3000, 24}, Shape{700, 320}, Shape{1111, 7}}) {
      Tensor x = randn(shape), w = randn({shape[1]}), b = randn({shape[1]});
      compare(
          "layer_norm", [=](const Tensors& in) { return layer_norm(in[0], {shape[1]}, in[1], in[2]); }, {x, w, b}, t);
    }
  Tensor x = randn({3, 300, 40}), one = randn({3, 40});
  compare(
      "modulate", [=](const Tensors& in) { return layer_norm_modulate(in[0], in[1], in[2]); }, {x, one, randn({3, 40})},
      kFloat32);
  // more rows than the blocks that stay can take at once, each row by several warps
  Tensor wide = randn({1100, 1032}), w = randn({1032}), b = randn({1032});
  for (DType t : {kFloat32, kBFloat16})
    compare(
        "layer_norm", [](const Tensors& in) { return layer_norm(in[0], {1032}, in[1], in[2]); }, {wide, w, b}, t);
  Tensor wider = randn({2, 270, 2600}), two = randn({2, 2600});
  compare(
      "modulate", [](const Tensors& in) { return layer_norm_modulate(in[0], in[1], in[2], in[3], in[4]); },
      {wider, two, randn({2, 2600}), randn({2600}), randn({2600})}, kFloat32);
}

TEST_F(CudaRowKernels, scale_and_shift_may_be_parts_of_one_tensor) {
  for (int64_t cols : {40, 41})
    compare(
        "modulate",
        [=](const Tensors& in) {
          return layer_norm_modulate(in[0], in[1].slice(1, 0, cols), in[1].slice(1, cols, 2 * cols));
        },
        {randn({2, 5, cols}), randn({2, 2 * cols})}, kBFloat16);
}

TEST_F(CudaRowKernels, cross_entropy_of_every_length) {
  for_each_case([](DType t, int64_t rows, int64_t cols, int64_t offset) {
    Tensor x = randn({rows, cols}) * 3.0, target = randint(0, cols, {rows});
    target.select(0, 0).fill_(-100);
    for (double smoothing : {0.0, 0.1})
      compare(
          "cross_entropy", [=](const Tensors& in) { return cross_entropy(in[0], in[1], {}, -100, "none", smoothing); },
          {x, target}, t, offset);
  });
}

TEST_F(CudaRowKernels, batch_norm_in_both_layouts) {
  for (DType t : {kFloat32, kBFloat16, kFloat64})
    for (Shape shape : {Shape{3, 5, 5, 16}, Shape{2, 8, 8, 24}, Shape{5, 3, 3, 7}, Shape{2, 70, 70, 8},
                        Shape{3, 16, 4, 9}, Shape{700, 1, 1, 40}}) {
      const int64_t c = shape[3];
      Tensor x = randn(shape) * 2.0 + 1.0, w = randn({c}), b = randn({c});
      compare(
          "batch_norm of channels last",
          [](const Tensors& in) {
            return batch_norm(in[0].permute({0, 3, 1, 2}), {}, {}, in[1], in[2], true);
          },
          {x, w, b}, t);
      Tensor plane = x.permute({0, 3, 1, 2}).contiguous();
      compare(
          "batch_norm", [](const Tensors& in) { return batch_norm(in[0], {}, {}, in[1], in[2], true); }, {plane, w, b},
          t);
      auto known = [](const Tensors& in) {
        Device d = in[0].device();
        int64_t n = in[0].size(1);
        return batch_norm(in[0], full({n}, 0.5, kFloat64, d), full({n}, 2.0, kFloat64, d), in[1], in[2], false);
      };
      compare("batch_norm with known statistics", known, {plane, w, b}, t);
    }
}

}  // namespace
}  // namespace sf
