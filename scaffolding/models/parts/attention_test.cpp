#include "scaffolding/models/parts/attention.h"

#include <cmath>

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/models/text_encoders/clip.h"
#include "scaffolding/models/unets/unet_2d_condition.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

float difference(const Tensor& a, const Tensor& b) { return float(amax(abs(a - b)).item()); }

class AttentionTest : public testing::Test {
 protected:
  void SetUp() override { manual_seed(5); }
  autograd::NoGrad no_grad_;
};

TEST_F(AttentionTest, HeadsAreNormalisedTurnedAndAttendAsByHand) {
  const int64_t heads = 2, d = 8;
  const Tensor q = randn({2, 5, heads * d}), k = randn({2, 7, heads * d}), v = randn({2, 7, heads * d});
  nn::RMSNorm norm_q(Shape{d}, 1e-6), norm_k(Shape{d}, 1e-6);
  norm_q.weight.copy_(randn({d}));
  auto split = [&](const Tensor& t) { return t.reshape({2, t.size(1), heads, d}).transpose(1, 2); };
  auto softly = [&](const Tensor& a, const Tensor& b, const Tensor& bias, double scale) {
    Tensor scores = matmul(a, b.transpose(-2, -1)) * scale;
    return matmul(softmax(bias ? scores + bias : scores, -1), split(v)).transpose(1, 2).reshape({2, 5, heads * d});
  };
  const double scale = 1 / std::sqrt(double(d));
  EXPECT_LT(difference(attend(q, k, v, heads), softly(split(q), split(k), {}, scale)), 1e-5);
  EXPECT_LT(difference(attend(q, k, v, heads, {.norm_q = &norm_q, .norm_k = &norm_k}),
                       softly(norm_q(split(q)), norm_k(split(k)), {}, scale)),
            1e-5);
  const Tensor mask = randn({2, 5, 7});  // for all heads
  EXPECT_LT(difference(attend(q, k, v, heads, {.mask = mask, .scale = 1.0}),
                       softly(split(q), split(k), mask.unsqueeze(1), 1)),
            1e-5);

  const Tensor own = k.narrow(1, 0, 5).contiguous(), own_v = v.narrow(1, 0, 5).contiguous();
  const Tensor angles = randn({5, d / 2}), each = stack({angles, angles}, -1).reshape({5, d});
  const RotaryPositions rotary{cos(each), sin(each)};
  auto turned = [&](const Tensor& t) { return apply_rotary_emb(t, rotary.cos, rotary.sin); };
  const Tensor scores = matmul(turned(norm_q(split(q))), turned(norm_k(split(own))).transpose(-2, -1)) * scale;
  const Tensor want = matmul(softmax(scores, -1), split(own_v)).transpose(1, 2).reshape({2, 5, heads * d});
  EXPECT_LT(difference(attend(q, own, own_v, heads, {.norm_q = &norm_q, .norm_k = &norm_k, .rotary = &rotary}), want),
            1e-5);
  const Tensor first = attend(q, own, own_v, heads, {.causal = true}).narrow(1, 0, 1);  // sees itself alone
  EXPECT_LT(difference(first, own_v.narrow(1, 0, 1)), 1e-6);
}

TEST_F(AttentionTest, KeysThatSeveralHeadsShareAreThoseOfEach) {
  const int64_t heads = 6, kv_heads = 2, d = 4;
  const Tensor q = randn({2, 5, heads * d}), k = randn({2, 5, kv_heads * d}), v = randn({2, 5, kv_heads * d});
  nn::RMSNorm norm(Shape{d}, 1e-6);
  const Tensor angles = randn({5, d / 2}), each = cat({angles, angles}, -1);
  const RotaryPositions rotary{cos(each), sin(each), false};
  auto for_each_head = [&](const Tensor& t) {
    return t.reshape({2, 5, kv_heads, 1, d}).expand({2, 5, kv_heads, heads / kv_heads, d}).reshape({2, 5, heads * d});
  };
  AttendOptions o{.causal = true, .norm_q = &norm, .norm_k = &norm, .rotary = &rotary};
  const Tensor want = attend(q, for_each_head(k), for_each_head(v), heads, o);
  o.kv_heads = kv_heads;
  EXPECT_LT(difference(attend(q, k, v, heads, o), want), 1e-5);
}

TEST_F(AttentionTest, AResidualIsAddedAndHooksOnAnyPartSeeTheirCalls) {
  for (bool cross : {false, true}) {
    Attention attention(
        16, {.cross_attention_dim = cross ? std::optional<int64_t>(12) : std::nullopt, .heads = 2, .dim_head = 8});
    const Tensor x = randn({2, 5, 16}), text = cross ? randn({2, 3, 12}) : Tensor(), residual = randn({2, 5, 16});
    const Tensor want = residual + attention(x, text);
    EXPECT_EQ(difference(attention.beside(residual, x, text), want), 0);
    for (nn::Module* part :
         std::initializer_list<nn::Module*>{&attention, &attention.to_q, &attention.to_k, &attention.to_v,
                                            &attention.to_out.get<0>(), &attention.to_out.get<1>()}) {
      int calls = 0;
      const uint64_t hook =
          part->register_forward_hook([&](nn::Module&, const nn::Values&, const Value&) { return ++calls, Value(); });
      EXPECT_EQ(difference(attention.beside(residual, x, text), want), 0) << part->type();
      EXPECT_EQ(calls, 1) << part->type();
      part->remove_hook(hook);
    }
  }
}

TEST_F(AttentionTest, ProjectionsInFloat8ReadRowsThatANormWrote) {
  Attention attention(16, {.heads = 2, .dim_head = 8});
  const Tensor x = randn({2, 5, 16}), residual = randn({2, 5, 16});
  EXPECT_FALSE(attention.takes_float8(false));
  std::vector<std::unique_ptr<nn::LinearFP8>> stand_ins;
  for (nn::Linear* layer : {&attention.to_q, &attention.to_k, &attention.to_v}) {
    stand_ins.push_back(
        std::make_unique<nn::LinearFP8>(16, 16, false, true, true, kFloat8E4M3, nn::TensorOptions{}, layer->weight));
    layer->replace_by([m = stand_ins.back().get()] { return m; });
  }
  EXPECT_TRUE(attention.takes_float8(false));
  const ProjectionInput rows(layer_norm_fp8(x, {}, {}, 1e-5), kFloat32);
  const Tensor apart = attention.beside(residual, rows);
  EXPECT_LT(difference(apart, residual + attention(layer_norm(x, {16}, {}, {}, 1e-5))), 1e-4);
  EXPECT_TRUE(attention.pack());
  EXPECT_LT(difference(attention.beside(residual, rows), apart), 1e-5);
  const uint64_t hook =
      attention.register_forward_hook([](nn::Module&, const nn::Values&, const Value&) { return Value(); });
  EXPECT_FALSE(attention.takes_float8(false));
  attention.remove_hook(hook);
}

// Without a word about the model's class: attentions of the tokens, a UNet's time projections, CLIP's layers.
TEST_F(AttentionTest, AnyModelIsPackedByAskingItsParts) {
  UNet2DConditionConfig c;
  c.block_out_channels = {8, 16};
  c.down_block_types = {"CrossAttnDownBlock2D", "DownBlock2D"};
  c.up_block_types = {"UpBlock2D", "CrossAttnUpBlock2D"};
  c.layers_per_block = int64_t(1);
  c.cross_attention_dim = int64_t(12);
  c.norm_num_groups = 4;
  c.attention_head_dim = int64_t(2);
  UNet2DConditionModel unet(c);
  const Tensor x = randn({1, 4, 8, 8}), text = randn({1, 5, 12}), want = unet(x, scalar_tensor(7), text);
  EXPECT_EQ(pack_projections(unet), 4 + 1);  // keys of the text are another input than queries
  EXPECT_EQ(difference(unet(x, scalar_tensor(7), text), want), 0);
  Attention& hooked = unet.mid_block->attentions[0].transformer_blocks[0].attn1;
  hooked.to_k.register_forward_hook([](nn::Module&, const nn::Values&, const Value&) { return Value(); });
  EXPECT_EQ(pack_projections(unet), 4);

  CLIPTextConfig t;
  t.vocab_size = 20, t.hidden_size = 16, t.intermediate_size = 24, t.num_hidden_layers = 3, t.num_attention_heads = 2;
  CLIPTextModel clip(t);
  EXPECT_EQ(pack_projections(clip), 3);
}

}  // namespace
}  // namespace sf::models
