// Attention by cuDNN, or by its stand-in in the emulator, against the CPU: values and gradients, strides as projections
// leave them, grouped queries, both ways of adding up the gradient of the queries,
// and what must go to another provider.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cudnn_settings.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/core/provider.h"
#include "scaffolding/ops/attention/attention.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
namespace {

class CudaCudnnAttention : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
    if (!accelerator(Device("cuda")).cudnn_version(0, &why)) GTEST_SKIP() << "unproven here: " << why;
    manual_seed(5);
    before_ = warpgroup_products();
    set_warpgroup_products(WarpgroupProducts::Off);
  }
  void TearDown() override {
    set_cudnn_settings({});
    set_warpgroup_products(before_);
  }
  WarpgroupProducts before_ = WarpgroupProducts::Off;
};

struct Case {
  int64_t heads, key_heads, queries, keys, width, value_width;
  bool causal = false;
  DType dtype = kBFloat16;
};

double distance(const Tensor& got, const Tensor& want) {
  auto a = got.cpu().to_vector(), b = want.to_vector();
  EXPECT_EQ(a.size(), b.size());
  double err = 0, scale = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) err += (a[i] - b[i]) * (a[i] - b[i]), scale += b[i] * b[i];
  return std::sqrt(err / scale);
}

// y and the gradients of q, k, v, which are [B, L, H, D] in memory.
std::vector<Tensor> attend(const Case& c, std::vector<Tensor> in, const Tensor& dy, bool gradients = true) {
  for (Tensor& t : in)
    if (gradients) t.requires_grad_();
  Tensor y = scaled_dot_product_attention(in[0].transpose(1, 2), in[1].transpose(1, 2), in[2].transpose(1, 2), {}, 0,
                                          c.causal, {}, c.heads != c.key_heads);
  if (!gradients) return {y};
  sum(y * dy).backward();
  return {y.detach(), in[0].grad(), in[1].grad(), in[2].grad()};
}

// Calls of attention on the device, by "table provider".
std::map<std::string, int> calls_of(const std::function<void()>& f) {
  std::map<std::string, int> calls;
  KernelWatcher watch([&](const KernelCall& call) {
    if (std::string(call.table.name()).find("attention") == 0)
      ++calls[std::string(call.table.name()) + " " + call.entry.provider];
  });
  f();
  return calls;
}

TEST_F(CudaCudnnAttention, equals_the_cpu) {
  for (bool deterministic : {false, true})
    for (const Case& c : {Case{2, 2, 65, 77, 64, 64}, Case{3, 3, 5, 7, 8, 8}, Case{4, 2, 33, 20, 16, 24, true},
                          Case{6, 2, 9, 9, 40, 40, true, kFloat16}, Case{1, 1, 17, 130, 128, 128, false, kFloat16},
                          Case{2, 1, 1, 12, 160, 8}, Case{1, 1, 4, 3, 256, 256, true}}) {
      set_cudnn_settings({.deterministic = deterministic});
      std::vector<Tensor> in{randn({2, c.queries, c.heads, c.width}), randn({2, c.keys, c.key_heads, c.width}),
                             randn({2, c.keys, c.key_heads, c.value_width})};
      Tensor dy = to_dtype(randn({2, c.heads, c.queries, c.value_width}), c.dtype);
      std::vector<Tensor> wide, there;
      for (Tensor& t : in) {
        Tensor rounded = to_dtype(t, c.dtype);
        wide.push_back(to_dtype(rounded, kFloat64));
        there.push_back(rounded.cuda());
      }
      std::vector<Tensor> want = attend(c, wide, to_dtype(dy, kFloat64)), got;
      auto calls = calls_of([&] { got = attend(c, there, dy.cuda()); });
      std::string what = "heads of " + std::to_string(c.width) + ", " + std::to_string(c.queries) + " queries" +
                         (deterministic ? ", deterministic" : "");
      EXPECT_EQ(calls, (std::map<std::string, int>{{"attention cudnn", 1}, {"attention_backward cudnn", 1}})) << what;
      double most = c.dtype == kFloat16 ? 3e-3 : 2e-2;
      for (size_t i = 0; i < want.size(); ++i) EXPECT_LE(distance(got[i], want[i]), most) << what << ", result " << i;
      EXPECT_LE(distance(attend(c, there, {}, false)[0], want[0]), most) << what << ", without gradients";
    }
}

TEST_F(CudaCudnnAttention, leaves_to_others_what_it_has_no_words_for) {
  auto by_cudnn = [](const Tensor& q, const Tensor& mask = {}) {
    auto calls = calls_of([&] { scaled_dot_product_attention(q, q, q, mask); });
    EXPECT_EQ(calls.size(), 1u);
    return calls.count("attention cudnn") > 0;
  };
  Tensor q = to_dtype(randn({1, 2, 6, 16}), kBFloat16).cuda();
  EXPECT_TRUE(by_cudnn(q));
  EXPECT_FALSE(by_cudnn(q, zeros({6, 6}, kBFloat16, Device("cuda"))));
  EXPECT_FALSE(by_cudnn(to_dtype(q, kFloat32)));
  EXPECT_FALSE(by_cudnn(to_dtype(randn({1, 2, 6, 12}), kBFloat16).cuda()));
  EXPECT_FALSE(by_cudnn(to_dtype(randn({1, 2, 6, 264}), kBFloat16).cuda()));
  // rows not at multiples of 16 bytes
  EXPECT_FALSE(by_cudnn(to_dtype(randn({1, 2, 6, 20}), kBFloat16).cuda().slice(3, 2, 18)));
  set_cudnn_settings({.enabled = false});
  EXPECT_FALSE(by_cudnn(q));
}

}  // namespace
}  // namespace sf
