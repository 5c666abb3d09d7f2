// Attention by Hopper's warpgroup instructions, on such a GPU or the emulator of one, against float64 on the CPU: every
// width of tiles, lengths that fill none, rings that go round, blocks that make several tiles, masks, grouped queries.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/backend/cuda/test_warpgroups.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/core/provider.h"
#include "scaffolding/ops/attention/attention.h"
#include "scaffolding/ops/attention/kernel.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
namespace {

struct HeadCase {
  int64_t batch, heads, key_heads, queries, keys, width, value_width;
  enum { None, Causal, Bool, Float } mask = None;
  std::string text() const {
    return std::to_string(queries) + " queries, " + std::to_string(keys) + " keys of " + std::to_string(width) +
           ", mask " + std::to_string(int(mask));
  }
};

class CudaWarpgroupAttention : public test::OnWarpgroups {
 protected:
  // [B, L, H, D] in memory, as the projections of a model leave it.
  static Tensor attend(const HeadCase& c, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) {
    const bool causal = c.mask == HeadCase::Causal;
    return scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask, 0, causal, {},
                                        c.heads != c.key_heads);
  }
  // Distance of two tensors relative to the second.
  static double distance(const Tensor& got, const Tensor& want) {
    const Tensor off = to_dtype(got.cpu(), kFloat64) - want;
    return std::sqrt((off * off).sum().item<double>() / std::max(1e-30, (want * want).sum().item<double>()));
  }
  static std::string providers_of(const std::function<void()>& f) {
    std::string providers;
    KernelWatcher watcher([&](const KernelCall& call) {
      if (&call.table == &attention_forward) providers += provider_label(call.entry) + ' ';
    });
    f();
    return providers;
  }

  void expect_equal(const HeadCase& c, DType t, bool gradients) {
    Tensor wide[] = {numbers({c.batch, c.queries, c.heads, c.width}, t),
                     numbers({c.batch, c.keys, c.key_heads, c.width}, t),
                     numbers({c.batch, c.keys, c.key_heads, c.value_width}, t)};
    const Tensor dy = numbers({c.batch, c.heads, c.queries, c.value_width}, t);
    Tensor mask;
    if (c.mask == HeadCase::Bool) {
      mask = gt(randn({c.batch, 1, c.queries, c.keys}), wrapped(0.0));
      if (c.queries > 2) mask.select(2, 2).fill_(false);  // a query that sees nothing
    }
    if (c.mask == HeadCase::Float) mask = numbers({c.heads, 1, c.keys}, t);
    Tensor there[3];
    for (int i = 0; i < 3; ++i) there[i] = to_dtype(wide[i], t).cuda();
    for (Tensor* x : {wide, there})
      for (int i = 0; gradients && i < 3; ++i) x[i].requires_grad_();
    const Tensor want = attend(c, wide[0], wide[1], wide[2], mask);
    const Tensor mask_there = !mask ? mask : c.mask == HeadCase::Float ? to_dtype(mask, t).cuda() : mask.cuda();
    Tensor got;
    EXPECT_EQ(providers_of([&] { got = attend(c, there[0], there[1], there[2], mask_there); }), "wgmma ") << c.text();
    const double most = t == kFloat16 ? 1e-3 : 6e-3;
    EXPECT_LE(distance(got.detach(), want.detach()), most) << c.text();
    if (!gradients) return;
    sum(want * dy).backward();
    sum(got * to_dtype(dy, t).cuda()).backward();
    for (int i = 0; i < 3; ++i) EXPECT_LE(distance(there[i].grad(), wide[i].grad()), 2 * most) << c.text() << ", " << i;
  }
};

TEST_F(CudaWarpgroupAttention, equals_the_cpu_at_every_width) {
  for (DType t : {kBFloat16, kFloat16})
    for (int64_t width : {8, 40, 64, 80, 128, 160, 256}) {
      expect_equal({1, 2, 2, 70, 77, width, width}, t, true);  // keys that fill no tile
      expect_equal({1, 1, 1, 200, 300, width, width}, t, false);
    }
}

TEST_F(CudaWarpgroupAttention, hides_keys) {
  for (auto mask : {HeadCase::Causal, HeadCase::Bool, HeadCase::Float})
    for (int64_t width : {40, 128, 160}) expect_equal({2, 2, 2, 150, 170, width, width, mask}, kBFloat16, true);
  expect_equal({1, 1, 1, 30, 400, 64, 64, HeadCase::Causal}, kFloat16, false);  // keys that no query sees
}

TEST_F(CudaWarpgroupAttention, rings_go_round_and_blocks_make_several_tiles) {
  expect_equal({1, 1, 1, 200, 1400, 64, 64}, kBFloat16, false);
  expect_equal({1, 1, 1, 129, 500, 256, 256}, kFloat16, false);
  const int64_t processors = accelerator(Device::CUDA).properties(0).multiprocessors;
  expect_equal({1, processors + 3, 1, 20, 140, 16, 16}, kBFloat16, false);
}

TEST_F(CudaWarpgroupAttention, shares_keys_among_heads_and_takes_values_of_another_width) {
  expect_equal({2, 4, 2, 67, 65, 48, 24, HeadCase::Causal}, kFloat16, true);
  expect_equal({1, 3, 1, 5, 130, 64, 136}, kBFloat16, true);
  expect_equal({1, 2, 2, 1, 1, 200, 8}, kBFloat16, false);
}

TEST_F(CudaWarpgroupAttention, takes_a_negative_scale) {
  const Tensor x = numbers({1, 2, 40, 64}, kFloat16), y = to_dtype(x, kFloat16).cuda();
  auto attend = [](const Tensor& x) { return scaled_dot_product_attention(x, x, x, {}, 0, false, -0.2); };
  EXPECT_LE(distance(attend(y), attend(x)), 1e-3);
}

// Whichever way measuring chooses, the result is right and stays the same.
TEST_F(CudaWarpgroupAttention, is_measured_beside_the_others) {
  set_warpgroup_products(WarpgroupProducts::Timed);
  const HeadCase c{1, 2, 2, 80, 96, 64, 64};
  const Tensor q = numbers({1, 80, 2, 64}, kBFloat16), k = numbers({1, 96, 2, 64}, kBFloat16);
  auto there = [](const Tensor& x) { return to_dtype(x, kBFloat16).cuda(); };
  const Tensor on_gpu[] = {there(q), there(k)};
  auto run = [&] { return attend(c, on_gpu[0], on_gpu[1], on_gpu[1], {}); };
  EXPECT_EQ(providers_of([&] { run(); }).find("wgmma"), std::string::npos) << "nothing is measured unasked";
  set_matmul_benchmark(true);
  const Tensor first = run(), second = run();
  set_matmul_benchmark(false);
  EXPECT_LE(distance(first, attend(c, q, k, k, {})), 6e-3);
  EXPECT_EQ(to_dtype(first, kFloat32).cpu().to_vector(), to_dtype(second, kFloat32).cpu().to_vector());
}

// What the kernels do not take goes to the others.
TEST_F(CudaWarpgroupAttention, leaves_the_rest) {
  auto provider = [&](Shape shape, DType t) {
    const Tensor x = to_dtype(randn(shape), t).cuda();
    return providers_of([&] { scaled_dot_product_attention(x, x, x); });
  };
  EXPECT_EQ(provider({1, 2, 40, 64}, kFloat32).find("wgmma"), std::string::npos) << "float32";
  EXPECT_EQ(provider({1, 2, 40, 36}, kBFloat16).find("wgmma"), std::string::npos) << "rows of 72 bytes";
  EXPECT_EQ(provider({1, 2, 40, 264}, kBFloat16).find("wgmma"), std::string::npos) << "wide heads";
  EXPECT_EQ(provider({1, 2, 40, 64}, kBFloat16), "wgmma ");
}

}  // namespace
}  // namespace sf
