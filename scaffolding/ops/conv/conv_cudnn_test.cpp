// Convolutions by cuDNN, or by its stand-in in the emulator, with what may follow in the same pass, against the CPU.
// The op's samples show the rest.
#include <gtest/gtest.h>

#include <cmath>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/backend/cudnn_settings.h"
#include "scaffolding/core/provider.h"
#include "scaffolding/ops/attention/attention.h"
#include "scaffolding/ops/conv/conv.h"
#include "scaffolding/ops/conv/kernel.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/fused/prepared_conv/prepared_conv.h"
#include "scaffolding/ops/group_norm/group_norm.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
namespace {

class CudaCudnnConv : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
    if (!accelerator(Device("cuda")).cudnn_version(0, &why)) GTEST_SKIP() << "unproven here: " << why;
    manual_seed(5);
    set_cudnn_settings({.allow_tf32 = false});
  }
  void TearDown() override { set_cudnn_settings({}); }
};

double distance(const Tensor& got, const Tensor& want) {
  auto a = got.cpu().to_vector(), b = want.to_vector();
  EXPECT_EQ(a.size(), b.size());
  double err = 0, scale = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) err += (a[i] - b[i]) * (a[i] - b[i]), scale += b[i] * b[i];
  return std::sqrt(err / scale);
}

Tensor activated(const Tensor& x, Activation act) {
  switch (act) {
    case Activation::Relu: return relu(x);
    case Activation::GeluErf: return gelu(x);
    case Activation::GeluTanh: return gelu(x, "tanh");
    case Activation::Silu: return silu(x);
    default: return x;
  }
}

// y = act(conv(x, weight) + residual + bias) of two groups, by cuDNN.
void check_groups(DType t, int64_t channels, int64_t out, bool with_bias, bool with_residual, Activation act) {
  Tensor x = to_dtype(randn({2, channels, 5, 7}), t), w = to_dtype(randn({out, channels / 2, 3, 3}), t),
         bias = with_bias ? to_dtype(randn({out}), t) : Tensor();
  Tensor residual = with_residual ? to_dtype(randn({2, out, 3, 4}), t) : Tensor();
  auto wide = [](const Tensor& v) { return v ? to_dtype(v, kFloat64) : v; };
  Tensor want = conv2d(wide(x), wide(w), wide(bias), {2}, ConvPadding(Shape{1}), {1}, 2);
  want = activated(residual ? want + wide(residual) : want, act);
  auto there = [](const Tensor& v) { return v ? v.cuda() : v; };
  Tensor gx = there(to_channels_last(x)), gw = there(w), gb = there(bias), gr = there(residual),
         y = empty({2, out, 3, 4}, t, Device("cuda"));
  ConvForward f{gx, gw, gb, gr, y, {}, act};
  f.shape.stride[0] = f.shape.stride[1] = 2;
  f.shape.padding[0] = f.shape.padding[1] = 1;
  f.shape.groups = 2;
  SCOPED_TRACE(std::string(name(t)) + ", " + std::to_string(channels) + " to " + std::to_string(out) + " channels" +
               (with_bias ? ", bias" : "") + (with_residual ? ", residual" : "") + ", activation " +
               std::to_string(int(act)));
  auto kernel = conv_forward.find(gx.device(), f);
  ASSERT_TRUE(kernel);
  EXPECT_STREQ(kernel.provider(), "cudnn");
  kernel(f);
  EXPECT_LE(distance(y, want), t == kFloat32 ? 2e-6 : t == kFloat16 ? 2e-3 : 1.2e-2);
}

TEST_F(CudaCudnnConv, adds_residual_and_bias_and_activates_in_the_same_pass) {
  for (DType t : {kFloat32, kBFloat16, kFloat16})
    for (bool with_bias : {false, true})
      for (bool with_residual : {false, true})
        for (Activation act :
             {Activation::None, Activation::Relu, Activation::GeluErf, Activation::GeluTanh, Activation::Silu})
          check_groups(t, 8, 4, with_bias, with_residual, act);
}

// bfloat16 in groups of 3 channels: cuDNN has no engine for more than bias and ReLU.
TEST_F(CudaCudnnConv, is_followed_by_a_pass_where_there_is_no_engine_for_all) {
  for (bool with_bias : {false, true})
    for (bool with_residual : {false, true})
      for (Activation act : {Activation::None, Activation::Relu, Activation::Silu})
        check_groups(kBFloat16, 6, 4, with_bias, with_residual, act);
}

TEST_F(CudaCudnnConv, leaves_to_others_what_it_has_no_words_for) {
  auto provider = [](DType t, Activation act = Activation::None) {
    Tensor x = zeros({1, 2, 4, 4}, t, Device("cuda")), w = zeros({3, 2, 3, 3}, t, Device("cuda")),
           y = empty({1, 3, 2, 2}, t, Device("cuda"));
    return std::string(conv_forward.find(x.device(), {x, w, {}, {}, y, {}, act}).provider());
  };
  EXPECT_EQ(provider(kFloat32), "cudnn");
  EXPECT_EQ(provider(kFloat64), "native");
  EXPECT_EQ(provider(kFloat32, Activation::QuickGelu), "native");
  set_cudnn_settings({.enabled = false});
  EXPECT_EQ(provider(kFloat32), "native");
}

TEST_F(CudaCudnnConv, a_residual_blocks_second_half_is_one_call_after_the_norm) {
  auto there = [](const Shape& sizes) { return to_dtype(randn(sizes), kBFloat16).cuda(); };
  Tensor x = to_channels_last(there({2, 8, 6, 6})), norm = there({8}), w = there({8, 8, 3, 3}), bias = there({8}),
         residual = to_channels_last(there({2, 8, 6, 6}));
  Tensor want = conv2d(group_norm_silu(x, 4, norm, norm, 1e-5), w, bias, {1}, 1) + residual, got;
  std::vector<std::string> calls;
  {
    KernelWatcher watch(
        [&](const KernelCall& c) { calls.push_back(std::string(c.table.name()) + " " + c.entry.provider); });
    got = group_norm_silu_conv2d(x, 4, norm, norm, w, bias, residual, 1e-5, 1);
  }
  EXPECT_EQ(calls.back(), "conv_forward cudnn");
  EXPECT_LE(distance(got, to_dtype(want.cpu(), kFloat64)), 1e-2);
}

TEST_F(CudaCudnnConv, is_captured_with_attention_and_replayed_on_new_numbers) {
  for (bool benchmark : {false, true}) {
    set_cudnn_settings({.benchmark = benchmark, .allow_tf32 = false});
    Tensor x = to_dtype(randn({1, 8, 6, 6}), kBFloat16).cuda(), w = to_dtype(randn({8, 8, 3, 3}), kBFloat16).cuda(), y;
    auto f = [&] {
      Tensor tokens = conv2d(x, w, {}, {1}, 1).reshape({1, 2, 18, 8});
      y = scaled_dot_product_attention(tokens, tokens, tokens);
    };
    auto graph = cuda::capture(f, {.warmup = benchmark ? 1 : 0});  // also where its plans are made while it is captured
    for (int i = 0; i < 2; ++i) {
      x.copy_(to_dtype(randn({1, 8, 6, 6}), kBFloat16));
      graph->replay();
      Tensor captured = y;
      std::vector<double> replayed = y.cpu().to_vector();
      f();
      EXPECT_EQ(replayed, y.cpu().to_vector());
      y = captured;
    }
  }
}

}  // namespace
}  // namespace sf
