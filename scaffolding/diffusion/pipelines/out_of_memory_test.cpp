// What a run does where memory does not suffice, in which order, and what it says of it.
#include "scaffolding/core/out_of_memory.h"

#include <gtest/gtest.h>

#include "scaffolding/diffusion/pipelines/stable_diffusion/test_pipeline.h"
#include "scaffolding/io/test_folder.h"

namespace sf::diffusion {
namespace {

using test::options;
using test::tiny;

// Calls of more samples, or pictures decoded otherwise than in tiles, do not fit.
struct SmallDenoiser final : Denoiser {
  Ref<Denoiser> real;
  int64_t most = 0;
  SmallDenoiser(Ref<Denoiser> denoiser, int64_t samples) : real(std::move(denoiser)), most(samples) {}
  io::Object config() override { return real->config(); }
  DType dtype() override { return real->dtype(); }
  Device device() override { return real->device(); }
  models::Model* model() override { return real->model(); }  // its weights are kept as those of the real one
  Tensor predict(const DenoiserCall& call) override {
    if (call.of(ArgumentRole::Sample).size(0) > most) fail<OutOfMemory>("cuda:0: out of memory: 1.0 MiB asked for");
    return real->predict(call);
  }
};
struct SmallAutoencoder final : Autoencoder {
  Ref<Autoencoder> real;
  bool never = false;
  explicit SmallAutoencoder(Ref<Autoencoder> vae) : real(std::move(vae)) {}
  io::Object config() override { return real->config(); }
  DType dtype() override { return real->dtype(); }
  Device device() override { return real->device(); }
  Tensor encode(const Tensor& images, const Generator& g) override { return real->encode(images, g); }
  Tensor decode(const Tensor& z) override {
    if (never || !savings().tiling) fail<OutOfMemory>("cuda:0: out of memory: 2.0 MiB asked for");
    return real->decode(z);
  }
  std::shared_ptr<void> widened(DType dtype) override { return real->widened(dtype); }
  Savings savings() override { return real->savings(); }
  void save(Savings s) override { real->save(s); }
};

TEST(OutOfMemoryInARun, MakesDoWithWhatThereIs) {
  auto call = [] {
    GenerationOptions o = options();
    o.negative_prompt_embeds = zeros({2, 5, 16});
    return o;
  };
  auto pipe = tiny();
  GenerationOptions sequential = call();
  sequential.guidance_mode = GuidanceMode::Sequential;
  const auto expected = pipe(sequential).images.to_vector();
  auto vae = std::make_shared<SmallAutoencoder>(pipe.vae);
  pipe.unet = std::make_shared<SmallDenoiser>(pipe.unet, 2);
  pipe.vae = vae;
  auto run = pipe.start(call());
  while (!run->done()) run->step();
  EXPECT_EQ(run->finish().images.to_vector(), expected) << "pictures of this size are one tile";
  EXPECT_EQ(run->makeshifts(), (std::vector<std::string>{"guidance in two calls", "pictures decoded one at a time",
                                                         "pictures decoded in tiles"}));
  EXPECT_FALSE(pipe.vae->savings().slicing || pipe.vae->savings().tiling) << "of that run alone";

  vae->never = true;
  SF_EXPECT_ERROR(
      OutOfMemory,
      "2.0 MiB asked for. Tried: guidance in two calls, pictures decoded one at a time, pictures decoded in "
      "tiles",
      pipe(call()));
  EXPECT_FALSE(pipe.vae->savings().slicing || pipe.vae->savings().tiling);
  pipe.unet = std::make_shared<SmallDenoiser>(pipe.unet, 1);
  vae->never = false;
  EXPECT_EQ(pipe(call()).images.to_vector(), expected);
  pipe.unet = std::make_shared<SmallDenoiser>(pipe.unet, 0);
  SF_EXPECT_ERROR(OutOfMemory, "1.0 MiB asked for. Tried: guidance in two calls, 1 of 2 pictures at a time",
                  pipe(call()));
  SF_EXPECT_ERROR(OutOfMemory, "1.0 MiB asked for. Tried: 1 of 2 pictures at a time", pipe(sequential));
}

// Room is made once, and suffices the second time.
struct Room final : Placement {
  int left;
  std::function<void()> suffices;
  Room(int rooms, std::function<void()> f) : left(rooms), suffices(std::move(f)) {}
  bool make_room() override {
    if (left == 0) return false;
    if (--left == 0) suffices();
    return true;
  }
};

// Networks take less before anything is computed otherwise.
TEST(OutOfMemoryInARun, MakesRoomFirst) {
  auto pipe = tiny();
  auto call = [] {
    GenerationOptions o = options();
    o.negative_prompt_embeds = zeros({2, 5, 16});
    return o;
  };
  const auto expected = pipe(call()).images.to_vector();
  auto denoiser = std::make_shared<SmallDenoiser>(pipe.unet, 3);
  pipe.unet = denoiser;
  pipe.placement = std::make_shared<Room>(2, [&] { denoiser->most = 4; });
  auto run = pipe.start(call());
  while (!run->done()) run->step();
  EXPECT_EQ(run->finish().images.to_vector(), expected);
  EXPECT_EQ(run->makeshifts(), (std::vector<std::string>{"networks with less memory of the GPU"}));
}

// What a call drew before memory ran out it draws again.
TEST(OutOfMemoryInARun, BeginsAgainWithTheSameNumbers) {
  struct Drawing final : Autoencoder {
    Ref<Autoencoder> real;
    bool fits = false;
    explicit Drawing(Ref<Autoencoder> vae) : real(std::move(vae)) {}
    io::Object config() override { return real->config(); }
    DType dtype() override { return real->dtype(); }
    Device device() override { return real->device(); }
    Tensor encode(const Tensor& images, const Generator& g) override {
      Tensor latents = real->encode(images, g);
      if (!fits) fail<OutOfMemory>("cuda:0: out of memory: 3.0 MiB asked for");
      return latents;
    }
    Tensor decode(const Tensor& z) override { return real->decode(z); }
    std::shared_ptr<void> widened(DType dtype) override { return real->widened(dtype); }
  };
  auto pipe = from_pipe<StableDiffusionImg2ImgPipeline>(tiny());
  auto call = [](bool own) {
    Img2ImgOptions o;
    static_cast<GenerationOptions&>(o) = options();
    o.negative_prompt_embeds = zeros({2, 5, 16});
    o.image = zeros({1, 3, 16, 16});
    if (!own) o.generator = {};
    return o;
  };
  for (bool own : {true, false}) {
    manual_seed(7);
    const auto expected = pipe(call(own)).images.to_vector();
    auto again = pipe;
    auto vae = std::make_shared<Drawing>(pipe.vae);
    again.vae = vae;
    again.placement = std::make_shared<Room>(2, [&] { vae->fits = true; });
    manual_seed(7);
    EXPECT_EQ(again(call(own)).images.to_vector(), expected);
    vae->fits = false;
    SF_EXPECT_ERROR(OutOfMemory, "3.0 MiB asked for", again(call(own)));
  }
}

}  // namespace
}  // namespace sf::diffusion
