// What a network makes of its text is computed once per text, and changes no number.
#include "scaffolding/models/parts/context_cache.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/models/test_networks.h"
#include "scaffolding/models/transformers/dit_model.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

// Two blocks with a transformer each, and the one in the middle: two layers down, three up,
// six cross-attentions with keys and values.
constexpr int64_t kProjections = 2 * (1 + 2 + 1);

UNet2DConditionModel unet(std::optional<int64_t> encoder_hid_dim = {}) {
  manual_seed(0);
  UNet2DConditionConfig c = test::tiny_unet();
  c.encoder_hid_dim = encoder_hid_dim;
  return UNet2DConditionModel(c);
}

Tensor latents(double scale) { return (arange(0, 2 * 4 * 8 * 8, 1, kFloat32) * (scale / 100)).reshape({2, 4, 8, 8}); }
Tensor text(double scale, int64_t dim = 16) {
  return (arange(0, 2 * 5 * dim, 1, kFloat32) * (scale / 50)).reshape({2, 5, dim});
}
Tensor step() { return scalar_tensor(7, kInt64); }

class ContextCacheTest : public testing::Test {
 protected:
  autograd::NoGrad no_grad_;
  ContextCache cache_;
};

TEST_F(ContextCacheTest, KeysAndValuesOfATextAreComputedOnceAndNothingElseChanges) {
  auto model = unet();
  Tensor context = text(1);
  std::vector<std::vector<double>> want, got;
  for (double scale : {1.0, -2.0, 0.5}) want.push_back(model(latents(scale), step(), context).to_vector());
  {
    ContextCache::Scope scope(cache_);
    for (double scale : {1.0, -2.0, 0.5}) got.push_back(model(latents(scale), step(), context).to_vector());
  }
  EXPECT_EQ(got, want);
  EXPECT_EQ(cache_.computed(), kProjections);
  model(latents(1), step(), context);  // no longer in force
  EXPECT_EQ(cache_.computed(), kProjections);
}

TEST_F(ContextCacheTest, AProjectedTextIsKeptToo) {
  auto model = unet(24);
  Tensor context = text(1, 24);
  auto want = model(latents(1), step(), context).to_vector();
  ContextCache::Scope scope(cache_);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(model(latents(1), step(), context).to_vector(), want);
  EXPECT_EQ(cache_.computed(), kProjections + 1);
}

TEST_F(ContextCacheTest, TextsAndWeightsThatChangeAreSeen) {
  auto model = unet();
  Tensor a = text(1), b = text(-1);
  auto run = [&](const Tensor& context) { return model(latents(1), step(), context).to_vector(); };
  auto want_a = run(a), want_b = run(b);
  ContextCache::Scope scope(cache_);
  for (int i = 0; i < 3; ++i) {  // two texts in turn, as guidance in two calls has them
    EXPECT_EQ(run(a), want_a);
    EXPECT_EQ(run(b), want_b);
  }
  EXPECT_EQ(cache_.computed(), 2 * kProjections);
  a.copy_(b);
  EXPECT_EQ(run(a), want_b);
  EXPECT_EQ(cache_.computed(), 3 * kProjections);
  Tensor& weight = model.mid_block->attentions[0].transformer_blocks[0].attn2->to_k.weight;
  weight.mul_(scalar_tensor(2.0, kFloat32));
  EXPECT_NE(run(a), want_b);
  EXPECT_EQ(cache_.computed(), 3 * kProjections + 1);
}

TEST_F(ContextCacheTest, ARefreshWritesIntoTheSameMemory) {
  nn::Linear first(4, 6), second(6, 3);
  Tensor context = ones({1, 2, 4});
  ContextCache::Scope scope(cache_);
  Tensor projected = project_text(first, context), keys = project_text(second, projected);
  context.copy_(full({1, 2, 4}, -3.0, kFloat32));
  cache_.refresh();
  EXPECT_EQ(keys.to_vector(), second(first(context)).to_vector());
  EXPECT_TRUE(project_text(first, context).is_same(projected));
  EXPECT_TRUE(project_text(second, projected).is_same(keys));
  EXPECT_EQ(cache_.computed(), 4);
}

// Prompts side by side in one batch, which come and go.
TEST_F(ContextCacheTest, OfTextsThatAreJoinedOnlyNewOnesAreComputed) {
  nn::Linear first(4, 6), second(6, 3);
  std::vector<Tensor> texts;
  for (int64_t i = 0; i < 4; ++i) texts.push_back(randn({1 + i % 2, 5, 4}));
  ContextCache::Scope scope(cache_);
  auto run = [&](const std::vector<size_t>& which) {
    Tensors parts, want;
    for (size_t i : which) parts.push_back(texts[i]), want.push_back(second(first(texts[i])));
    const Tensor whole = cat(parts, 0);
    cache_.joins(whole, parts);
    for (int again = 0; again < 2; ++again)
      EXPECT_EQ(project_text(second, project_text(first, whole)).to_vector(), cat(want, 0).to_vector());
    return cache_.computed();
  };
  EXPECT_EQ(run({0, 1}), 4);
  EXPECT_EQ(run({0, 1}), 4);     // in other memory
  EXPECT_EQ(run({2, 0, 1}), 6);  // one joins, before the others
  EXPECT_EQ(run({1, 2, 3}), 8);  // one leaves, another joins
  EXPECT_EQ(run({3}), 8);
  EXPECT_EQ(run({0, 3}), 10);  // what left is forgotten
  texts[3].mul_(scalar_tensor(2.0, kFloat32));
  EXPECT_EQ(run({0, 3}), 12);
  second.weight.mul_(scalar_tensor(2.0, kFloat32));
  EXPECT_EQ(run({0, 3}), 14);
  first.weight.mul_(scalar_tensor(2.0, kFloat32));
  EXPECT_EQ(run({0, 3}), 18);  // and what is made of its results
}

TEST_F(ContextCacheTest, TransformersKeepTheirTextToo) {
  manual_seed(1);
  DiTModel model(DiTConfig{.in_channels = 4, .hidden_size = 16, .depth = 2, .num_heads = 2, .context_dim = 12});
  Tensor context = text(1, 12);
  std::vector<std::vector<double>> want;
  for (double scale : {1.0, -2.0}) want.push_back(model(latents(scale), step(), context).to_vector());
  ContextCache::Scope scope(cache_);
  for (int i = 0; i < 2; ++i)
    for (size_t at = 0; at < 2; ++at) EXPECT_EQ(model(latents(at ? -2.0 : 1.0), step(), context).to_vector(), want[at]);
  EXPECT_EQ(cache_.computed(), 1 + 2 * 2);  // the text's projection, and keys and values of two blocks
  model.text_embedder.linear_2.weight.mul_(scalar_tensor(2.0, kFloat32));
  EXPECT_NE(model(latents(1), step(), context).to_vector(), want[0]);
  context.copy_(text(-1, 12));
  cache_.refresh();
  const auto refreshed = model(latents(1), step(), context).to_vector();
  ContextCache other;
  ContextCache::Scope again(other);
  EXPECT_EQ(model(latents(1), step(), context).to_vector(), refreshed);
}

TEST_F(ContextCacheTest, AQuantisedLayersProductsAreKeptAndAnUnknownStandInSeesEveryCall) {
  nn::Linear to(64, 6);
  nn::LinearNF4 nf4(64, 6, true, true, {}, to.weight);
  to.replace_by([&] { return &nf4; });
  Tensor context = text(1, 64);
  ContextCache::Scope scope(cache_);
  const auto want = nf4(context).to_vector();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(project_text(to, context).to_vector(), want);
  EXPECT_EQ(cache_.computed(), 1);
  nf4.bias.add_(scalar_tensor(1.0, kFloat32));
  EXPECT_NE(project_text(to, context).to_vector(), want);
  EXPECT_EQ(cache_.computed(), 2);
  nn::Identity unknown;
  to.replace_by([&] { return &unknown; });
  EXPECT_EQ(project_text(to, context).to_vector(), context.to_vector());
  EXPECT_EQ(cache_.computed(), 2);
  to.replace_by(nullptr);
  EXPECT_EQ(project_text(to, context).to_vector(), to(context).to_vector());
  EXPECT_EQ(cache_.computed(), 3);
}

TEST_F(ContextCacheTest, HooksSeeEveryCallAndGradientsAreRecorded) {
  nn::Linear to(4, 6);
  Tensor context = ones({1, 2, 4});
  ContextCache::Scope scope(cache_);
  int calls = 0;
  uint64_t id =
      to.register_forward_hook([&](nn::Module&, const nn::Values&, const Value&) { return ++calls, Value(); });
  for (int i = 0; i < 3; ++i) project_text(to, context);
  EXPECT_EQ(calls, 3);
  to.remove_hook(id);
  {
    autograd::EnableGrad on;
    EXPECT_TRUE(project_text(to, context).requires_grad());
  }
  EXPECT_EQ(cache_.computed(), 0);
  project_text(to, context);
  EXPECT_EQ(cache_.computed(), 1);
}

}  // namespace
}  // namespace sf::models
