#include "scaffolding/diffusion/pipelines/clip_frames.h"

#include <cmath>

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/cogvideox/test_clip_pipeline.h"
#include "scaffolding/diffusion/pipelines/image_processor.h"
#include "scaffolding/diffusion/pipelines/stable_diffusion/test_pipeline.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {
namespace {

Tensor stacked(const std::vector<Tensors>& clips) {  // [B, T, H, W, C]
  Tensors all;
  for (auto& frames : clips) all.push_back(stack(frames));
  return stack(all);
}

// What frames are rounded from, [B, T, C, H, W].
Tensor as_bytes(const Tensor& images) {
  const Tensor frames = VaeImageProcessor::frames(images.flatten(0, 1));
  return frames.reshape({images.size(0), images.size(1), frames.size(1), frames.size(2), frames.size(3)});
}

TEST(ClipFrames, PartsOfAVideoAreAllOfIt) {
  autograd::NoGrad no_grad;
  manual_seed(3);
  models::AutoencoderKLCogVideoX vae(test::tiny_video_vae());
  vae.eval();
  for (int64_t frames : {1, 5})
    for (bool slicing : {false, true})
      for (bool tiling : {false, true}) {
        vae.use_slicing = slicing, vae.use_tiling = tiling;
        const Tensor z = randn({2, 4, frames, 7, 11}), want = vae.decode(z);
        Tensor got = zeros(want.shape());
        std::vector<int64_t> rows(2);  // of each sample's first frame so far
        int64_t parts = 0;
        double done = 0;
        vae.decode_in_parts(z, [&](const models::VideoPart& part) {
          const auto& [values, sample, frame, so_far] = part;
          EXPECT_GT(so_far, done);
          done = so_far;
          const int64_t n = values.size(0), top = tiling ? rows[size_t(sample)] : 0;
          got.narrow(0, sample, n).narrow(2, frame, values.size(2)).narrow(3, top, values.size(3)).copy_(values);
          rows[size_t(sample)] += values.size(3);
          ++parts;
        });
        EXPECT_EQ(got.to_vector(), want.to_vector()) << frames << slicing << tiling;
        EXPECT_DOUBLE_EQ(done, 1);
        EXPECT_EQ(parts, (slicing ? 2 : 1) * (tiling ? 2 : std::max<int64_t>(1, frames / 2)));
      }
}

TEST(ClipFrames, AreTheBytesOfTheClip) {
  CogVideoXPipeline pipe = test::tiny_clips();
  for (auto [tiling, dtype] : {std::pair{false, kFloat32}, {true, kFloat32}, {false, kBFloat16}}) {
    pipe.to({.dtype = dtype});
    pipe.vae->save({.slicing = tiling, .tiling = tiling});
    const CogVideoXOptions o = test::clip_options(9, 64, 80, 2);
    auto run = pipe.start(o);
    const Tensor early = as_bytes(run->preview(1));
    EXPECT_EQ(stacked(run->preview_frames(1)).to_vector(), early.to_vector());
    run->step();
    const Tensor want = as_bytes(run->finish().images), got = stacked(run->finish_frames().clips);
    EXPECT_EQ(got.shape(), (Shape{2, 9, 64, 80, 3}));
    EXPECT_EQ(got.dtype(), kUInt8);
    EXPECT_EQ(got.to_vector(), want.to_vector()) << tiling << " " << name(dtype);
  }
}

TEST(ClipFrames, APictureIsAClipOfOneFrame) {
  StableDiffusionPipeline pipe = test::tiny();
  auto run = pipe.start(test::options());
  run->step();
  const Tensor want = VaeImageProcessor::frames(run->finish().images).unsqueeze(1);
  EXPECT_EQ(stacked(run->finish_frames().clips).to_vector(), want.to_vector());
  auto options = test::options();
  options.output_latents = true;
  EXPECT_THROW(pipe.start(options)->finish_frames(), ValueError);
}

// An autoencoder that gives a clip part by part.
struct PartByPart final : Autoencoder {
  explicit PartByPart(Ref<Autoencoder> of) : real(std::move(of)) {}
  io::Object config() override { return real->config(); }
  DType dtype() override { return real->dtype(); }
  Device device() override { return real->device(); }
  Tensor encode(const Tensor& x, const Generator& g) override { return real->encode(x, g); }
  Tensor decode(const Tensor&) override { fail("decoded as a whole"); }
  std::shared_ptr<void> widened(DType) override { return {}; }
  void decode_in_parts(const Tensor& z, const models::TakeVideoPart& take) override {
    for (int64_t i = 0; i < kParts; ++i) {
      if (i == fails_at) {
        fails_at = -1;
        fail<OutOfMemory>("no memory");
      }
      take({full({z.size(0), 3, 4, 64, 64}, 2.0 * double(i) / kParts - 1, kFloat32), 0, 4 * i, double(i + 1) / kParts});
    }
  }
  Savings savings() override { return kept; }
  void save(Savings s) override { kept = s; }
  static constexpr int64_t kParts = 32;
  Ref<Autoencoder> real;
  Savings kept;
  int64_t fails_at = -1;
};

TEST(ClipFrames, NoClipIsInMemoryAsFloatingNumbers) {
  CogVideoXPipeline pipe = test::tiny_clips();
  auto vae = std::make_shared<PartByPart>(pipe.vae);
  pipe.vae = vae;
  auto run = pipe.start(test::clip_options(9, 48, 80));
  run->step();
  const auto before = int64_t(cpu::allocated_bytes());
  cpu::reset_peak();
  double done = 0;
  const PipelineFrames out = run->finish_frames([&](double share) { done = share; });
  EXPECT_EQ(done, 1);
  const int64_t bytes = 4 * PartByPart::kParts * 64 * 64 * 3;
  ASSERT_EQ(int64_t(out.clips[0].size()), 4 * PartByPart::kParts);
  // the clip as bytes, the part at hand, and a few times one frame between the two
  EXPECT_LT(int64_t(cpu::max_allocated_bytes()) - before, bytes + bytes / 2);
  EXPECT_EQ(out.clips[0][4].to_vector()[0], std::nearbyint(255.0 / PartByPart::kParts));

  vae->fails_at = 20;  // begun anew in another way, nothing is there twice
  const PipelineFrames again = run->finish_frames();
  EXPECT_EQ(again.makeshifts.size(), 1u);
  EXPECT_EQ(stacked(again.clips).to_vector(), stacked(out.clips).to_vector());
}

}  // namespace
}  // namespace sf::diffusion
