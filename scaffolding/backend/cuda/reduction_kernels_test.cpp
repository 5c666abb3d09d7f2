// Reductions along and across memory, at the sizes where their kernels change: few and many results, short and long,
// pieces, odd widths, addresses that are not aligned, memory with gaps. Against the same numbers in float64 on the CPU.
// Needs a GPU or the emulator.
#include <gtest/gtest.h>

#include <cmath>

#include "scaffolding/backend/backend.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_check.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
namespace {

class CudaReductions : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
    manual_seed(4);
  }
};

using View = std::function<Tensor(const Tensor&)>;
struct Case {
  const char* what;
  Shape shape;
  View view;  // of a dense tensor of that shape
  Shape dim;
};
Shape every_dim(const Tensor& x) {
  Shape d;
  for (int64_t i = 0; i < x.ndim(); ++i) d.push_back(i);
  return d;
}
Tensor itself(const Tensor& x) { return x; }

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"short rows", {300, 24}, itself, {1}},
      {"rows of one vector", {40, 16}, itself, {1}},
      {"odd rows", {70, 77}, itself, {1}},
      {"rows of a few", {500, 3}, itself, {1}},
      {"long rows", {3, 9000}, itself, {1}},
      {"one very long row", {70001}, itself, {0}},
      {"rows in pieces", {2, 40000}, itself, {1}},
      {"all", {5, 77, 130}, itself, {}},
      {"rows that are not aligned", {9, 1201}, [](const Tensor& x) { return x.slice(1, 1); }, {1}},
      {"all of rows that are not aligned", {9, 1201}, [](const Tensor& x) { return x.slice(1, 1); }, {}},
      {"every other element", {9, 700}, [](const Tensor& x) { return x.slice(1, 0, 700, 2); }, {1}},
      {"one element for all",
       {9, 1},
       [](const Tensor& x) {
         return x.expand({9, 300});
       },
       {1}},
      {"columns", {900, 40}, itself, {0}},
      {"odd columns", {333, 37}, itself, {0}},
      {"few columns", {4000, 3}, itself, {0}},
      {"many columns", {5, 3000}, itself, {0}},
      {"columns that are not aligned", {300, 41}, [](const Tensor& x) { return x.slice(1, 1); }, {0}},
      {"transposed rows", {64, 320}, [](const Tensor& x) { return x.transpose(0, 1); }, {1}},
      {"transposed columns", {64, 320}, [](const Tensor& x) { return x.transpose(0, 1); }, {0}},
      {"the middle", {6, 50, 88}, itself, {1}},
      {"the middle of short rows", {300, 9, 2}, itself, {1}},
      {"the ends", {6, 50, 88}, itself, {0, 2}},
      {"pictures", {4, 24, 8, 8}, itself, {0, 2, 3}},
      {"large pictures", {3, 2, 72, 72}, itself, {0, 2, 3}},
      {"pictures, channels last",
       {4, 9, 9, 24},
       [](const Tensor& x) {
         return x.permute({0, 3, 1, 2});
       },
       {0, 2, 3}},
      {"pixels, channels last",
       {4, 9, 9, 24},
       [](const Tensor& x) {
         return x.permute({0, 3, 1, 2});
       },
       {2, 3}},
      {"two dimensions that do not join", {6, 7, 5, 64}, itself, {0, 2}},
      {"results in another order than memory",
       {20, 12, 16},
       [](const Tensor& x) {
         return x.permute({2, 1, 0});
       },
       {2}},
  };
  return all;
}

void compare(const Case& c, const char* op, DType t, const Tensor& dense,
             const std::function<Tensor(const Tensor&)>& f) {
  SCOPED_TRACE(std::string(op) + " over " + c.what + " in " + std::string(name(t)));
  Tensor x = to_dtype(dense, t), exact = f(c.view(to_dtype(x, kFloat64))), got = f(c.view(x.cuda()));
  const double length = double(exact.numel() > 0 ? c.view(x).numel() / exact.numel() : 1);
  if (is_floating(got.dtype())) test::expect_close(got.cpu(), exact, test::tolerance(t, length), "value");
  else EXPECT_EQ(got.cpu().to_vector(), f(c.view(x)).to_vector());
  Tensor again = f(c.view(x.cuda())), both = eq(again, got), nan = ne(got, got);
  EXPECT_TRUE(all(logical_or(both, nan)).item() != 0) << "not the same bits twice";
}

TEST_F(CudaReductions, sums_and_extrema_of_floats) {
  for (DType t : {kFloat32, kBFloat16, kFloat16, kFloat64})
    for (auto& c : cases()) {
      Tensor x = randn(c.shape);
      compare(c, "sum", t, x, [&](const Tensor& v) { return sum(v, c.dim); });
      compare(c, "mean", t, x + 3.0, [&](const Tensor& v) { return mean(v, c.dim, true); });
      compare(c, "amax", t, x, [&](const Tensor& v) { return amax(v, c.dim); });
      compare(c, "amin", t, x, [&](const Tensor& v) { return amin(v, c.dim); });
    }
}

TEST_F(CudaReductions, norms_and_deviations_of_floats) {
  for (DType t : {kFloat32, kBFloat16})
    for (auto& c : cases()) {
      Tensor x = randn(c.shape) + 5.0;
      for (double p : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()})
        compare(c, "norm", t, x, [&](const Tensor& v) { return norm(v, p, c.dim); });
      compare(c, "logsumexp", t, x,
              [&](const Tensor& v) { return logsumexp(v, c.dim.empty() ? every_dim(v) : c.dim); });
      compare(c, "var", t, x, [&](const Tensor& v) { return var(v, c.dim, 0); });
    }
}

TEST_F(CudaReductions, whole_numbers_and_booleans) {
  for (DType t : {kInt64, kInt32, kUInt8, kBool})
    for (auto& c : cases()) {
      SCOPED_TRACE(std::string(c.what) + " in " + std::string(name(t)));
      Tensor x = to_dtype(randint(0, 2, c.shape) * randint(0, 100, c.shape), t), there = c.view(x.cuda()),
             here = c.view(x);
      EXPECT_EQ(sum(there, c.dim).cpu().to_vector(), sum(here, c.dim).to_vector());
      EXPECT_EQ(any(there, c.dim).cpu().to_vector(), any(here, c.dim).to_vector());
      EXPECT_EQ(all(there, c.dim).cpu().to_vector(), all(here, c.dim).to_vector());
      EXPECT_EQ(amax(there, c.dim).cpu().to_vector(), amax(here, c.dim).to_vector());
    }
}

TEST_F(CudaReductions, places_of_extrema) {
  for (DType t : {kFloat32, kBFloat16, kInt32, kUInt8})
    for (auto& c : cases()) {
      if (c.dim.size() > 1) continue;
      SCOPED_TRACE(std::string(c.what) + " in " + std::string(name(t)));
      Tensor x = to_dtype(randint(0, 60, c.shape), t);  // with equals
      if (is_floating(t))
        x.reshape({-1}).slice(0, 0, std::min<int64_t>(x.numel(), 20)).select(0, 7).fill_(std::nan(""));
      Tensor there = c.view(x.cuda()), here = c.view(x);
      std::optional<int64_t> dim = c.dim.empty() ? std::nullopt : std::optional<int64_t>(c.dim[0]);
      EXPECT_EQ(argmax(there, dim).cpu().to_vector(), argmax(here, dim).to_vector());
      EXPECT_EQ(argmin(there, dim).cpu().to_vector(), argmin(here, dim).to_vector());
      if (!dim) continue;
      auto [v, at] = max_dim(there, *dim);
      auto [v0, at0] = max_dim(here, *dim);
      EXPECT_EQ(at.cpu().to_vector(), at0.to_vector());
      EXPECT_TRUE(all(logical_or(eq(v.cpu(), v0), ne(v0, v0))).item() != 0);
    }
}

// What float32 cannot hold on the way, float64 does.
TEST_F(CudaReductions, sums_may_leave_the_range_of_float32_on_the_way) {
  const double inf = std::numeric_limits<double>::infinity();
  for (DType t : {kFloat32, kBFloat16})
    for (Shape shape : {Shape{4, 4096}, Shape{4096, 16}})
      for (int64_t dim : {0, 1}) {
        const double huge = to_dtype(full({1}, 3e38), t).item(), big = to_dtype(full({1}, 1e20), t).item(),
                     tiny = to_dtype(full({1}, 1e-25), t).item();
        const double n = double(shape[dim]);
        auto there = [&](double x) { return full(shape, x, t).cuda(); };
        EXPECT_EQ(mean(there(huge), {dim}).cpu().to_vector()[1], huge);
        EXPECT_NEAR(norm(there(big), 2, {dim}).cpu().to_vector()[1] / big, std::sqrt(n), 0.01 * std::sqrt(n));
        EXPECT_NEAR(norm(there(tiny), 2, {dim}).cpu().to_vector()[1] / tiny, std::sqrt(n), 0.01 * std::sqrt(n));
        EXPECT_EQ(norm(there(0), 2, {dim}).cpu().to_vector()[1], 0);
        Tensor x = there(1);
        x.select(0, 3).fill_(inf);
        EXPECT_EQ(sum(x, {dim}).cpu().to_vector()[3], inf);
        EXPECT_EQ(amax(x, {dim}).cpu().to_vector()[3], inf);
        EXPECT_EQ(amin(x, {dim}).cpu().to_vector()[dim == 0 ? 3 : 2], 1);
        x.select(0, 2).fill_(std::nan(""));
        EXPECT_TRUE(std::isnan(sum(x, {dim}).cpu().to_vector()[2]));
        EXPECT_TRUE(std::isnan(amax(x, {dim}).cpu().to_vector()[2]));
        EXPECT_TRUE(std::isnan(amin(x, {dim}).cpu().to_vector()[2]));
      }
}

TEST_F(CudaReductions, of_nothing) {
  for (Shape shape : {Shape{0, 40}, Shape{40, 0}})
    for (int64_t dim : {0, 1}) {
      Tensor x = zeros(shape).cuda();
      EXPECT_EQ(sum(x, {dim}).cpu().to_vector(), sum(x.cpu(), {dim}).to_vector());
      EXPECT_EQ(prod(x, {dim}).cpu().to_vector(), prod(x.cpu(), {dim}).to_vector());
    }
  EXPECT_EQ(sum(zeros({0, 3}).cuda()).item(), 0);
}

}  // namespace
}  // namespace sf
