// Linear layers by the kernels for Hopper's warpgroup instructions, on such a GPU or the emulator of one, against
// float64 on the CPU: every tile, edges that fill no tile, rings that go round, blocks that make several tiles.
#include <gtest/gtest.h>

#include <cmath>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/backend/cuda/test_warpgroups.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/core/provider.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/fused/linear_act/linear_act.h"
#include "scaffolding/ops/fused/linear_add/linear_add.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/quantize/fp8.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
namespace {

constexpr WarpgroupTile kTiles[] = {{128, 256, 1}, {128, 256, 2}, {128, 160, 2}, {64, 160, 1}, {64, 160, 2},
                                    {128, 128, 1}, {128, 80, 1},  {128, 80, 2},  {64, 80, 1},  {64, 80, 2}};

class CudaWarpgroups : public test::OnWarpgroups {
 protected:
  static Tensor there(const Tensor& x, DType t) { return x ? to_dtype(x, t).cuda() : x; }

  // got is `want` rounded to its dtype, and made by these kernels.
  template <class F> static void expect_made(const F& make, const Tensor& want, const std::string& what) {
    std::string providers;
    Tensor got;
    {
      KernelWatcher watcher([&](const KernelCall& call) {
        const std::string table = call.table.name();
        if (table == "gemm" || table == "linear_add" || table == "gated_linear" || table == "scaled_product")
          providers += provider_label(call.entry) + ' ';
      });
      got = make();
    }
    EXPECT_EQ(providers, "wgmma ") << what;
    const auto a = to_dtype(got, kFloat32).cpu().to_vector(), b = to_dtype(want, kFloat32).to_vector();
    ASSERT_EQ(a.size(), b.size()) << what;
    const double ulp = got.dtype() == kBFloat16 ? 1. / 128 : 1. / 1024;
    double largest = 0, worst = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::abs(double(b[i])));
      const double off = std::abs(double(a[i]) - b[i]);
      worst = std::isnan(off) ? INFINITY : std::max(worst, off);
    }
    EXPECT_LE(worst, ulp * largest * 0.6) << what;
  }
};

TEST_F(CudaWarpgroups, make_linear_layers_in_every_tile) {
  for (DType t : {kBFloat16, kFloat16})
    for (WarpgroupTile tile : kTiles) {
      set_warpgroup_tile(tile);
      for (int64_t k : {8, 64, 136, 712}) {  // 712: twelve steps go round every ring
        const Tensor x = numbers({150, k}, t), w = numbers({168, k}, t), b = k == 64 ? Tensor() : numbers({168}, t);
        expect_made([&] { return linear(there(x, t), there(w, t), there(b, t)); }, linear(x, w, b),
                    "k " + std::to_string(k) + ", tile " + std::to_string(tile.columns));
      }
    }
}

TEST_F(CudaWarpgroups, add_residuals) {
  for (WarpgroupTile tile : kTiles) {
    set_warpgroup_tile(tile);
    const Tensor x = numbers({2, 70, 200}, kBFloat16), w = numbers({264, 200}, kBFloat16),
                 r = numbers({2, 70, 264}, kBFloat16), b = numbers({264}, kBFloat16);
    const auto on_gpu = [&](const Tensor& bias) {
      return linear_add(there(x, kBFloat16), there(w, kBFloat16), there(bias, kBFloat16), there(r, kBFloat16));
    };
    expect_made([&] { return on_gpu(b); }, linear(x, w, b) + r, "bias and residual");
    expect_made([&] { return on_gpu({}); }, linear(x, w, {}) + r, "residual");
  }
}

TEST_F(CudaWarpgroups, gate_projections) {
  for (DType t : {kBFloat16, kFloat16})
    for (WarpgroupTile tile : kTiles) {
      set_warpgroup_tile(tile);
      const Tensor x = numbers({140, 72}, t), w = numbers({2 * 136, 72}, t) * 0.2, b = numbers({2 * 136}, t);
      const Tensor rounded = to_dtype(to_dtype(w, t), kFloat64);
      for (bool bias : {false, true}) {
        const Tensor own = bias ? b : Tensor();
        expect_made([&] { return linear_geglu(there(x, t), there(rounded, t), there(own, t)); },
                    linear_geglu(x, rounded, own), "geglu, tile " + std::to_string(tile.columns));
        for (bool first : {false, true})
          expect_made([&] { return linear_swiglu(there(x, t), there(rounded, t), there(own, t), first); },
                      linear_swiglu(x, rounded, own, first), "swiglu, tile " + std::to_string(tile.columns));
      }
    }
}

TEST_F(CudaWarpgroups, blocks_make_several_tiles) {
  for (int cluster : {1, 2}) {
    set_warpgroup_tile({64, 80, cluster});
    const int64_t rows = 64 * (accelerator(Device::CUDA).properties(0).multiprocessors + 3);
    const Tensor x = numbers({rows, 136}, kBFloat16), w = numbers({88, 136}, kBFloat16);
    expect_made([&] { return linear(there(x, kBFloat16), there(w, kBFloat16)); }, linear(x, w), "two rounds");
  }
}

TEST_F(CudaWarpgroups, add_to_what_is_there_with_a_bias_of_float32) {
  const Tensor a = numbers({1, 100, 64}, kFloat16), b = numbers({1, 48, 64}, kFloat16),
               c = numbers({1, 100, 48}, kFloat16), bias = numbers({48}, kFloat32);
  Tensor want = c.clone();
  gemm_into("test", a, b.transpose(1, 2), want, 0.5, {.bias = bias, .alpha = 0.25});
  expect_made(
      [&] {
        Tensor got = there(c, kFloat16);
        gemm_into("test", there(a, kFloat16), there(b, kFloat16).transpose(1, 2), got, 0.5,
                  {.bias = there(bias, kFloat32), .alpha = 0.25});
        return got;
      },
      want, "alpha and beta");
}

TEST_F(CudaWarpgroups, multiply_float8_by_scales_of_rows_or_of_all) {
  for (DType t : {kBFloat16, kFloat16})
    for (WarpgroupTile tile : kTiles) {
      set_warpgroup_tile(tile);
      const Tensor a = to_dtype(randn({140, 272}), kFloat8E4M3), b = to_dtype(randn({176, 272}), kFloat8E4M3),
                   bias = numbers({176}, t);
      for (bool rows : {false, true}) {
        const Tensor scale_a = rand({rows ? 140 : 1, 1}), scale_b = rand({1, rows ? 176 : 1});
        auto scaled = [&](const Tensor& x, const Tensor& by) { return to_dtype(x, kFloat64) * to_dtype(by, kFloat64); };
        expect_made(
            [&] { return scaled_mm(a.cuda(), b.cuda().t(), scale_a.cuda(), scale_b.cuda(), there(bias, t), t, true); },
            linear(scaled(a, scale_a), scaled(b, scale_b.t()), bias), "float8, tile " + std::to_string(tile.columns));
      }
    }
}

// Whichever way measuring chooses, the result is right; nothing is measured where nobody allows it, nor in a capture.
TEST_F(CudaWarpgroups, are_measured_beside_the_libraries) {
  set_warpgroup_products(WarpgroupProducts::Timed);
  const Tensor x = numbers({136, 72}, kBFloat16), w = numbers({144, 72}, kBFloat16), r = numbers({136, 144}, kBFloat16);
  const Tensor on_gpu[] = {there(x, kBFloat16), there(w, kBFloat16), there(r, kBFloat16)};
  auto [codes, scale] = quantize_fp8(to_dtype(x, kFloat32), kFloat8E4M3, true);
  auto [weights, scales] = quantize_fp8(to_dtype(w, kFloat32), kFloat8E4M3, true);
  auto all = [&] {
    return Tensors{linear(on_gpu[0], on_gpu[1]), linear_add(on_gpu[0], on_gpu[1], {}, on_gpu[2]),
                   linear_geglu(on_gpu[0], on_gpu[1], {}), linear_swiglu(on_gpu[0], on_gpu[1], {}),
                   scaled_mm(codes.cuda(), weights.cuda().t(), scale.cuda(), scales.t().cuda(), {}, kBFloat16, true)};
  };
  const Tensors libraries = all();
  set_matmul_benchmark(true);
  const Tensors measured = all(), again = all();
  set_matmul_benchmark(false);
  for (size_t i = 0; i < libraries.size(); ++i) {
    const auto a = to_dtype(libraries[i], kFloat32).cpu().to_vector(),
               b = to_dtype(measured[i], kFloat32).cpu().to_vector(),
               c = to_dtype(again[i], kFloat32).cpu().to_vector();
    EXPECT_EQ(b, c) << i;
    for (size_t j = 0; j < a.size(); ++j) ASSERT_NEAR(a[j], b[j], 0.02 * std::abs(a[j]) + 0.1) << i;
  }
}

// What the kernels do not take goes to the libraries, right as ever.
TEST_F(CudaWarpgroups, leave_the_rest_to_libraries) {
  auto providers_of = [&](const Tensor& x, const Tensor& w) {
    std::string providers;
    KernelWatcher watcher([&](const KernelCall& call) { providers += provider_label(call.entry) + ' '; });
    linear(x, w);
    return providers;
  };
  const Tensor x = randn({40, 64}).cuda(), w = randn({48, 64}).cuda();
  EXPECT_EQ(providers_of(x, w).find("wgmma"), std::string::npos) << "float32";
  const Tensor odd = to_dtype(randn({40, 60}), kBFloat16).cuda(), of_odd = to_dtype(randn({48, 60}), kBFloat16).cuda();
  EXPECT_EQ(providers_of(odd, of_odd).find("wgmma"), std::string::npos) << "rows of 120 bytes";
  const Tensor half = to_dtype(x, kBFloat16), turned = to_dtype(randn({64, 48}), kBFloat16).cuda().t();
  EXPECT_EQ(providers_of(half, turned).find("wgmma"), std::string::npos) << "weights that lie along n";
  EXPECT_NE(providers_of(half, to_dtype(w, kBFloat16)).find("wgmma"), std::string::npos);
}

}  // namespace
}  // namespace sf
