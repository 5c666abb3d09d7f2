#include "scaffolding/diffusion/pipelines/hires.h"

#include <cmath>

#include <gtest/gtest.h>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/stable_diffusion/test_pipeline.h"

namespace sf::diffusion {
namespace {

using test::options;
using test::tiny;

Img2ImgOptions second_options(const GenerationOptions& first, double strength) {
  Img2ImgOptions o;
  static_cast<GenerationOptions&>(o) = first;
  o.height = o.width = std::nullopt;
  o.strength = strength;
  return o;
}

TEST(Hires, LatentsAreThoseOfTwoPassesByHand) {
  const auto pipe = tiny();
  const auto change = from_pipe<StableDiffusionImg2ImgPipeline>(pipe);
  auto first = options();
  first.output_latents = true;
  first.num_inference_steps = 4;
  const Tensor latents = pipe(first).images;  // [2, 4, 8, 8]
  auto second = second_options(first, 0.5);   // whose generator goes on
  second.output_latents = false;
  second.image = interpolate(latents, Shape{12, 12}, {}, "bilinear");
  const Tensor want = change(second).images;
  EXPECT_EQ(want.shape(), (Shape{2, 3, 24, 24}));
  auto o = options();
  o.num_inference_steps = 4;
  const Hires hires(pipe, {.scale = 1.5, .strength = 0.5});
  EXPECT_EQ(hires(AnyOptions::of(o)).images.to_vector(), want.to_vector());
}

TEST(Hires, PicturesAreThoseOfTwoPassesByHand) {
  const auto pipe = tiny();
  const auto change = from_pipe<StableDiffusionImg2ImgPipeline>(pipe);
  for (auto [upscaler, filter] :
       {std::pair{HiresUpscaler::Bicubic, data::Filter::Bicubic}, {HiresUpscaler::Lanczos, data::Filter::Lanczos}}) {
    auto first = options();
    first.height = 16, first.width = 24;
    const VaeImageProcessor processor({.vae_scale_factor = 2, .resample = filter});
    Tensors pictures;
    for (auto& p : VaeImageProcessor::pictures(pipe(first).images)) pictures.push_back(processor.resize(p, 32, 48));
    auto second = second_options(first, 0.7);
    second.num_inference_steps = 5;
    second.image = processor.preprocess(pictures, {});
    const Tensor want = change(second).images;
    auto o = options();
    o.height = 16, o.width = 24;
    int64_t steps = 0;
    o.progress = [&](int64_t, int64_t) { ++steps; };
    const Hires hires(pipe, {.scale = 2, .num_inference_steps = 5, .upscaler = upscaler});
    EXPECT_EQ(hires(AnyOptions::of(o)).images.to_vector(), want.to_vector()) << name_of(upscaler);
    EXPECT_GT(steps, 3);
  }
}

TEST(Hires, AnUpscalerMayBeAFunction) {
  const auto pipe = tiny();
  const auto with = [&](HiresOptions h) {
    auto o = options();
    return Hires(pipe, std::move(h))(AnyOptions::of(o)).images.to_vector();
  };
  int64_t asked = 0;
  auto itself = [&](const Tensor& picture) {
    EXPECT_EQ(picture.shape(), (Shape{3, 16, 16}));
    ++asked;
    return picture;
  };
  EXPECT_EQ(with({.scale = 1.5, .upscale = itself}), with({.scale = 1.5, .upscaler = HiresUpscaler::Lanczos}));
  EXPECT_EQ(asked, 2);
  auto black = [](const Tensor& picture) { return zeros_like(picture); };
  EXPECT_NE(with({.scale = 1.5, .upscale = black}), with({.scale = 1.5, .upscaler = HiresUpscaler::Lanczos}));
}

TEST(Hires, RefusesWhatItCannotDo) {
  const auto pipe = tiny();
  EXPECT_THROW(Hires(pipe, {.scale = 1}), ValueError);
  EXPECT_THROW(Hires(pipe, {.scale = 9}), ValueError);
  EXPECT_THROW(Hires(pipe, {.scale = std::nan("")}), ValueError);
  EXPECT_THROW(Hires(pipe, {.strength = 0}), ValueError);
  EXPECT_THROW(Hires(pipe, {.num_inference_steps = 0}), ValueError);
  EXPECT_THROW(Hires(DiTPipeline(), {}), ValueError);  // a family without image to image
  EXPECT_THROW(hires_upscaler("nearest"), ValueError);
  auto o = options();
  EXPECT_THROW(Hires(pipe, {.strength = 0.2}).first(AnyOptions::of(o)), ValueError);  // no step is left
}

}  // namespace
}  // namespace sf::diffusion
