// What a plan counts for decoding clips, beside what the allocator saw.
#include <gtest/gtest.h>

#include "scaffolding/backend/backend.h"
#include "scaffolding/diffusion/memory/pipeline_memory.h"
#include "scaffolding/diffusion/pipelines/cogvideox/test_clip_pipeline.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {
namespace {

struct Way {
  int64_t frames, height, width;
  Autoencoder::Savings savings;
};

std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << way.frames << " frames of " << way.width << " x " << way.height
             << (way.savings.slicing ? ", sliced" : "") << (way.savings.tiling ? ", tiled" : "");
}

// The most that tensors took from the last step to the frames, of two clips.
int64_t measured(CogVideoXPipeline& pipe, const Way& way) {
  pipe.vae->save(way.savings);
  auto run = pipe.start(test::clip_options(way.frames, way.height, way.width, 2));
  run->step();
  const auto before = int64_t(cpu::allocated_bytes());
  cpu::reset_peak();
  run->finish_frames();
  return int64_t(cpu::max_allocated_bytes()) - before;
}

TEST(ClipActivations, AreWhatDecodingTakes) {
  CogVideoXPipeline pipe = test::tiny_clips();
  const Autoencoder::Savings whole{}, sliced{.slicing = true}, tiled{.slicing = true, .tiling = true};
  for (auto [frames, height, width] : {std::tuple{9, 64, 80}, {25, 64, 80}, {9, 112, 144}}) {
    const Activations a = count_activations(pipe, AnyOptions::of(test::clip_options(frames, height, width, 2)));
    EXPECT_EQ(a.pixels, 0);
    for (auto [counted, savings] : {std::pair{a.decode, whole}, {a.decode_sliced, sliced}, {a.decode_tiled, tiled}}) {
      const Way way{frames, height, width, savings};
      const int64_t taken = measured(pipe, way);
      EXPECT_LE(counted, taken * 5 / 4) << way;
      EXPECT_GE(counted, taken * 4 / 5) << way;
    }
    EXPECT_LT(a.decode_sliced, a.decode);
    EXPECT_LE(a.decode_tiled, a.decode_sliced);
  }
}

// Where things go is encoded as a clip, and told to every block.
TEST(ClipActivations, CountSteering) {
  const auto pipe = test::tiny_clips<ToraPipeline, models::ToraTransformer3DModel>();
  ToraOptions o;
  static_cast<CogVideoXOptions&>(o) = test::clip_options(9, 64, 80);
  const Activations plain = count_activations(pipe, AnyOptions::of(o));
  o.steering.trajectory = {"0,0 1,1"};
  const Activations steered = count_activations(pipe, AnyOptions::of(o));
  EXPECT_EQ(plain.encode, 0);
  EXPECT_GT(steered.encode, 9 * 64 * 80 * 3 * 4);
  EXPECT_GT(steered.encode_tiled, 0);
  EXPECT_GT(steered.batched, plain.batched);
  EXPECT_GT(steered.sequential, plain.sequential);
  const AnyOptions call = options_for_shape(pipe, {.height = 64, .width = 80, .frames = 9});
  EXPECT_EQ(call.at<std::vector<std::string>>("trajectory").size(), 1u);
}

// Chunks are of one size: with the number of frames only the clip's bytes grow.
TEST(ClipActivations, GrowByTheBytesOfTheFrames) {
  CogVideoXPipeline pipe = test::tiny_clips();
  auto of = [&](int64_t frames) {
    return count_activations(pipe, AnyOptions::of(test::clip_options(frames, 96, 160))).decode;
  };
  const int64_t frame = 96 * 160 * 3;
  const int64_t grown = of(49) - of(17);
  EXPECT_GE(grown, 32 * frame);
  EXPECT_LE(grown, 36 * frame) << "with the latents of as many frames";
}

}  // namespace
}  // namespace sf::diffusion
