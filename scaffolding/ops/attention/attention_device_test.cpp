// Attention on a CUDA device (or the emulator) against the CPU, gradients too: every head size of the models, lengths
// around the tiles, masks, grouped queries. The samples of the op are small; a tile of the kernel has 32 or 64 rows.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "scaffolding/backend/backend.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/core/provider.h"
#include "scaffolding/ops/attention/attention.h"
#include "scaffolding/ops/attention/kernel.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/kernel_cost.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
namespace {

struct Case {
  int64_t heads, key_heads, queries, keys, width, value_width;
  enum { None, Causal, Bool, Float } mask;
  DType dtype = kFloat32;
};

double distance(const Tensor& got, const Tensor& want) {
  auto a = got.cpu().to_vector(), b = want.to_vector();
  EXPECT_EQ(a.size(), b.size());
  double err = 0, scale = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) err += (a[i] - b[i]) * (a[i] - b[i]), scale += b[i] * b[i];
  return std::sqrt(err / scale);
}

struct Results {
  Tensor y, dq, dk, dv, dmask;
};
Results attend(const Case& c, Tensor q, Tensor k, Tensor v, Tensor mask, const Tensor& dy) {
  for (Tensor* t : {&q, &k, &v}) t->requires_grad_();
  if (mask && is_floating(mask.dtype())) mask.requires_grad_();
  // [B, L, H, D] in memory, as the projections of a model leave it.
  Tensor y = scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask, 0,
                                          c.mask == Case::Causal, {}, c.heads != c.key_heads);
  sum(y * dy).backward();
  return {y.detach(), q.grad(), k.grad(), v.grad(), mask && is_floating(mask.dtype()) ? mask.grad() : Tensor()};
}

// The kernels of our own, whatever else is there.
struct Ours {
  explicit Ours(DType t) {
    for (const char* table : {"attention", "attention_backward"}) pin_provider(table, t == kFloat32 ? "native" : "mma");
  }
  ~Ours() { unpin_providers(); }
};

TEST(CudaAttention, equals_the_cpu_at_every_head_size_and_mask) {
  std::string why;
  if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  manual_seed(3);
  for (const Case& c :
       {Case{2, 2, 65, 77, 64, 64, Case::None}, Case{1, 1, 33, 70, 40, 40, Case::None},
        Case{1, 1, 20, 64, 80, 80, Case::Bool}, Case{1, 1, 70, 130, 160, 160, Case::Float},
        Case{1, 1, 40, 33, 512, 512, Case::None}, Case{1, 1, 66, 66, 256, 256, Case::Causal},
        Case{4, 2, 67, 65, 48, 24, Case::Causal}, Case{4, 1, 5, 100, 128, 130, Case::Float},
        Case{1, 1, 64, 64, 64, 64, Case::Bool, kBFloat16}, Case{2, 1, 17, 90, 300, 16, Case::Causal, kFloat16},
        // Tensor cores: blocks that are full, several and not full; keys split among blocks (5 queries);
        // rows that 16 bytes do not divide.
        Case{2, 2, 130, 77, 40, 40, Case::None, kBFloat16}, Case{2, 2, 65, 97, 80, 80, Case::Causal, kFloat16},
        Case{2, 1, 33, 130, 160, 160, Case::Float, kBFloat16}, Case{1, 1, 5, 700, 64, 64, Case::None, kFloat16},
        Case{2, 1, 5, 400, 32, 48, Case::Bool, kBFloat16}, Case{1, 1, 40, 300, 64, 64, Case::Causal, kBFloat16},
        Case{1, 1, 70, 40, 128, 128, Case::None, kBFloat16}, Case{1, 1, 40, 70, 256, 192, Case::Bool, kFloat16},
        Case{1, 1, 40, 70, 512, 512, Case::None, kBFloat16}, Case{2, 2, 33, 20, 37, 21, Case::Float, kFloat16},
        Case{1, 1, 200, 200, 96, 96, Case::Causal, kBFloat16}}) {
    Tensor q = to_dtype(randn({2, c.queries, c.heads, c.width}), c.dtype),
           k = to_dtype(randn({2, c.keys, c.key_heads, c.width}), c.dtype);
    Tensor v = to_dtype(randn({2, c.keys, c.key_heads, c.value_width}), c.dtype),
           dy = to_dtype(randn({2, c.heads, c.queries, c.value_width}), c.dtype), mask;
    if (c.mask == Case::Bool) {
      mask = gt(randn({2, 1, c.queries, c.keys}), wrapped(0.0));
      mask.select(2, 0).fill_(false);  // a query that sees nothing
    }
    if (c.mask == Case::Float) mask = randn({c.heads, c.queries, c.keys});
    auto wide = [](const Tensor& t) { return t && is_floating(t.dtype()) ? to_dtype(t, kFloat64) : t; };
    auto there = [](const Tensor& t) { return t ? t.cuda() : t; };
    Results want = attend(c, wide(q), wide(k), wide(v), wide(mask), wide(dy));
    Ours ours(c.dtype);
    Results got = attend(c, there(q), there(k), there(v), there(mask), there(dy));
    std::string what = "heads of " + std::to_string(c.width) + ", " + std::to_string(c.queries) + " queries, " +
                       std::to_string(c.keys) + " keys: ";
    double most = c.dtype == kFloat32 ? 3e-6 : c.dtype == kFloat16 ? 3e-3 : 2e-2;
    EXPECT_LE(distance(got.y, want.y), most) << what << "y";
    EXPECT_LE(distance(got.dq, want.dq), most) << what << "dq";
    EXPECT_LE(distance(got.dk, want.dk), most) << what << "dk";
    EXPECT_LE(distance(got.dv, want.dv), most) << what << "dv";
    if (want.dmask) {
      EXPECT_LE(distance(got.dmask, want.dmask), most) << what << "dmask";
    }
  }
}

TEST(CudaAttention, rounds_float32_to_tf32_where_allowed) {
  std::string why;
  if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  manual_seed(4);
  for (auto [queries, keys, width] :
       {std::tuple{70, 50, 64}, {33, 80, 40}, {40, 40, 128}, {20, 40, 160}, {17, 33, 256}, {5, 300, 30}}) {
    Tensor q = randn({1, 2, queries, width}), k = randn({1, 2, keys, width}), v = randn({1, 2, keys, width});
    auto wide = [](const Tensor& t) { return to_dtype(t, kFloat64); };
    Tensor want = scaled_dot_product_attention(wide(q), wide(k), wide(v));
    auto here = [&] { return distance(scaled_dot_product_attention(q.cuda(), k.cuda(), v.cuda()), want); };
    EXPECT_LE(here(), 3e-6) << width;
    set_matmul_allow_tf32(true);
    double rounded = here();
    set_matmul_allow_tf32(false);
    EXPECT_LE(rounded, 3e-3) << width;
    EXPECT_GE(rounded, 3e-5) << width << ": operands were not rounded";
  }
}

TEST(CudaAttention, wide_heads_go_through_products) {
  std::string why;
  if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  manual_seed(5);
  // two runs of queries; odd rows
  for (auto [batch, heads, queries, keys, dtype] :
       {std::tuple{1, 1, 4200, 256, kBFloat16}, {1, 2, 1030, 1019, kFloat16}}) {
    Tensor q = to_dtype(randn({batch, queries, heads, 264}), dtype),
           k = to_dtype(randn({batch, keys, heads, 264}), dtype), v = to_dtype(randn({batch, keys, heads, 272}), dtype);
    auto attend = [](const Tensor& a, const Tensor& b, const Tensor& c) {
      return scaled_dot_product_attention(a.transpose(1, 2), b.transpose(1, 2), c.transpose(1, 2), {}, 0, false,
                                          3.0 / 16);
    };
    auto wide = [](const Tensor& t) { return to_dtype(t, kFloat32); };
    pin_provider("attention", "products");
    Tensor got;
    double flop = 0;
    {
      KernelWatcher watcher([&](const KernelCall& call) {
        flop += cost_of(call).flop;
        EXPECT_EQ(call.composed, &call.table == &attention_forward) << call.table.name();
      });
      got = attend(q.cuda(), k.cuda(), v.cuda());
    }
    unpin_providers();
    EXPECT_EQ(flop, 2.0 * batch * heads * queries * keys * (264 + 272)) << "counted once";
    EXPECT_LE(distance(got, to_dtype(attend(wide(q), wide(k), wide(v)), kFloat64)), dtype == kFloat16 ? 3e-3 : 2e-2);
  }
}

// ldmatrix reads eight rows at a time; where two of them share banks it takes twice as long.
TEST(CudaAttention, rows_of_tiles_share_no_banks) {
  std::string why;
  if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  auto conflicts = reinterpret_cast<int64_t (*)()>(dlsym(RTLD_DEFAULT, "sf_cuda_emulator_bank_conflicts"));
  if (!conflicts) GTEST_SKIP() << "a GPU is here, not the emulator, which counts them";
  Ours ours(kBFloat16);
  for (int64_t width : {16, 40, 64, 80, 96, 128, 160, 192, 256, 512}) {
    int64_t before = conflicts();
    Tensor q = to_dtype(randn({1, 1, 24, width}), kBFloat16).cuda().requires_grad_();
    scaled_dot_product_attention(q, q, q).sum().backward();
    (void)q.grad().cpu();
    EXPECT_EQ(conflicts(), before) << "heads of " << width;
  }
}

}  // namespace
}  // namespace sf
