#include <gtest/gtest.h>

#include <cmath>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/models/parts/context_cache.h"
#include "scaffolding/models/transformers/ltx2_video_transformer_3d.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

constexpr double kNear = 2e-6;

// Numbers of diffusers' LTX2AudioVideoRotaryPosEmbed at the size of the published networks.
TEST(LTX2, TablesOfAVideoAtFullSize) {
  const Tensor coords = LTX2VideoGrid().prepare_video_coords(1, 3, 4, 5, Device(), 24);
  ASSERT_EQ(coords.shape(), (Shape{1, 3, 60, 2}));
  const std::vector<double> bounds = coords.select(2, 42).to_vector();
  const double want[] = {0.375, 0.708333313, 0, 32, 64, 96};
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(float(bounds[i]), float(want[i])) << i;

  LTX2RopeOptions o;
  struct Entry {
    int64_t token, head, channel;
    double cos, sin;
  };
  auto check = [&](std::initializer_list<Entry> entries) {
    const LTX2Rotary tables = LTX2Rope(o).tables(ltx2_positions(coords));
    ASSERT_EQ(tables.cos.shape(), (Shape{1, 60, 32, 128}));
    for (auto& e : entries) {
      auto at = [&](const Tensor& t) {
        return t.select(0, 0).select(0, e.token).select(0, e.head).select(0, e.channel);
      };
      EXPECT_NEAR(at(tables.cos).item(), e.cos, kNear) << e.token << " " << e.channel;
      EXPECT_NEAR(at(tables.sin).item(), e.sin, kNear) << e.token << " " << e.channel;
    }
  };
  check({{0, 0, 0, 1, 0},
         {0, 0, 4, 0.0032724838238209486, -0.9999946355819702},
         {7, 3, 11, -0.805558979511261, 0.5925155282020569},
         {59, 31, 127, -0.9236267805099487, -0.3832930624485016},
         {42, 17, 30, 0.5265792608261108, 0.8501260280609131}});
  o.type = LTX2RopeType::Split;
  check({{0, 0, 1, 1, 0},
         {7, 3, 11, -0.740014374256134, 0.6725910305976868},
         {7, 3, 75, -0.740014374256134, 0.6725910305976868},
         {59, 31, 63, -0.9236267805099487, -0.3832930624485016},
         {42, 17, 30, 0.2749268710613251, -0.9614651203155518}});
}

TEST(LTX2, TimesOfAnAudio) {
  const std::vector<double> got = LTX2AudioGrid().prepare_audio_coords(1, 3, Device()).to_vector();
  const double want[] = {0, 0.01, 0.01, 0.05, 0.05, 0.09};
  ASSERT_EQ(got.size(), 6u);
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(got[i], want[i], 1e-8);
  const Tensor later = LTX2AudioGrid().prepare_audio_coords(2, 2, Device(), 1);
  EXPECT_EQ(later.shape(), (Shape{2, 1, 2, 2}));
  EXPECT_EQ(later.select(0, 1).to_vector(), std::vector<double>(got.begin() + 2, got.end()));
}

LTX2VideoTransformer3DConfig tiny_ltx2() {
  LTX2VideoTransformer3DConfig c;
  c.in_channels = 4, c.out_channels = 4, c.num_attention_heads = 2, c.attention_head_dim = 8;
  c.cross_attention_dim = 16, c.audio_in_channels = 3, c.audio_out_channels = 3;
  c.audio_num_attention_heads = 2, c.audio_attention_head_dim = 4, c.audio_cross_attention_dim = 8;
  c.num_layers = 2, c.caption_channels = 10, c.rope_type = "split";
  return c;
}

LTX2TransformerInputs inputs_of(const LTX2VideoTransformer3DModel& model, int64_t batch) {
  LTX2TransformerInputs in;
  in.hidden_states = randn({batch, 12, 4}), in.audio_hidden_states = randn({batch, 5, 3});
  in.encoder_hidden_states = randn({batch, 4, 10}), in.audio_encoder_hidden_states = randn({batch, 4, 10});
  in.timestep = full({batch}, 8.5, kFloat32);
  in.video_coords = model.rope.prepare_video_coords(1, 2, 3, 2, Device(), 25);
  in.audio_coords = model.audio_rope.prepare_audio_coords(1, 5, Device());
  return in;
}

TEST(LTX2, ARunMakesTablesAndTextsOnce) {
  manual_seed(5);
  const LTX2VideoTransformer3DModel model(tiny_ltx2());
  autograd::NoGrad off;
  LTX2TransformerInputs in = inputs_of(model, 2);
  const LTX2TransformerOutput want = model.predict(in);
  ContextCache cache;
  ContextCache::Scope scope(cache);
  for (int step = 0; step < 3; ++step) {
    const LTX2TransformerOutput got = model.predict(in);
    // two tables, two projected texts, keys and values of both in each of two blocks
    EXPECT_EQ(cache.computed(), 2 + 2 + 2 * 2 * 2);
    EXPECT_EQ(got.sample.to_vector(), want.sample.to_vector());
    EXPECT_EQ(got.audio_sample.to_vector(), want.audio_sample.to_vector());
  }
}

TEST(LTX2, PlacesByTheSamplesBySizesAndOfAllAreTheSame) {
  manual_seed(6);
  const LTX2VideoTransformer3DModel model(tiny_ltx2());
  autograd::NoGrad off;
  LTX2TransformerInputs in = inputs_of(model, 2);
  const LTX2TransformerOutput want = model.predict(in);
  in.video_coords = model.rope.prepare_video_coords(2, 2, 3, 2, Device(), 25);
  in.audio_coords = model.audio_rope.prepare_audio_coords(2, 5, Device());
  const LTX2TransformerOutput each = model.predict(in);
  in.video_coords = in.audio_coords = Tensor();
  in.num_frames = 2, in.height = 3, in.width = 2, in.audio_num_frames = 5, in.fps = 25;
  const LTX2TransformerOutput by_sizes = model.predict(in);
  for (auto* got : {&each, &by_sizes}) {
    EXPECT_EQ(got->sample.to_vector(), want.sample.to_vector());
    EXPECT_EQ(got->audio_sample.to_vector(), want.audio_sample.to_vector());
  }
  // rows for each token that are all the same
  in.timestep = full({2, 12}, 8.5, kFloat32), in.audio_timestep = full({2, 5}, 8.5, kFloat32);
  const LTX2TransformerOutput by_tokens = model.predict(in);
  const std::vector<double> a = by_tokens.sample.to_vector(), b = want.sample.to_vector();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5);
}

}  // namespace
}  // namespace sf::models
