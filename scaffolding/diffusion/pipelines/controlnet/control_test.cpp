#include "scaffolding/diffusion/pipelines/controlnet/control.h"

#include <gtest/gtest.h>

#include "scaffolding/diffusion/pipelines/shared_steps.h"
#include "scaffolding/diffusion/pipelines/stable_diffusion/test_pipeline.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/models/controlnets/controlnet.h"

namespace sf::diffusion {
namespace {

// A pipeline of tiny networks whose ControlNets say something.
StableDiffusionControlNetPipeline controlled(size_t networks = 1) {
  const StableDiffusionPipeline plain = test::tiny();
  models::ControlNetConfig config = models::ControlNetModel::config_beside(models::test::tiny_unet());
  config.conditioning_embedding_out_channels = {4, 4};
  std::vector<std::shared_ptr<models::Model>> nets;
  for (size_t i = 0; i < networks; ++i) {
    auto net = std::make_shared<models::ControlNetModel>(config);
    for (auto& p : nn::parameters(*net)) p.detach().copy_(randn(p.shape()) * 0.2);
    nets.push_back(std::move(net));
  }
  return static_cast<StableDiffusionControlNetPipeline&>(*controlled_pipeline("test", plain, Task::TextToImage, nets));
}

ControlNetOptions options(int64_t seed, size_t networks = 1) {
  ControlNetOptions o;
  static_cast<GenerationOptions&>(o) = test::options();
  o.generator[0]->manual_seed(uint64_t(seed));
  for (size_t i = 0; i < networks; ++i) o.control_image.push_back(rand({1, 3, 16, 16}));
  o.output_latents = true;
  return o;
}

std::unique_ptr<Run> start(const StableDiffusionControlNetPipeline& pipe, ControlNetOptions o) {
  o.scheduler = fresh_scheduler(*pipe.scheduler);
  return pipe.start(o);
}

Tensor alone(const StableDiffusionControlNetPipeline& pipe, const ControlNetOptions& o) {
  auto run = start(pipe, o);
  while (!run->done()) run->step();
  return run->finish().images;
}

double distance(const Tensor& a, const Tensor& b) { return amax(abs(a - b)).item(); }

TEST(Control, RunsShareCalls) {
  const StableDiffusionControlNetPipeline pipe = controlled();
  manual_seed(3);
  ControlNetOptions first = options(1), second = options(2);
  const Tensor wants[] = {alone(pipe, first), alone(pipe, second)};
  EXPECT_GT(distance(wants[0], wants[1]), 0.01);
  for (auto* o : {&first, &second}) o->generator = {make_generator()};
  first.generator[0]->manual_seed(1), second.generator[0]->manual_seed(2);
  auto a = start(pipe, first), b = start(pipe, second);
  EXPECT_EQ(a->denoiser, b->denoiser);
  ASSERT_TRUE(SharedSteps::fit(*a, *b));
  SharedSteps shared;
  while (!a->done()) shared.step({a.get(), b.get()});
  EXPECT_LT(distance(a->finish().images, wants[0]), 1e-4);
  EXPECT_LT(distance(b->finish().images, wants[1]), 1e-4);
}

TEST(Control, RunsWhoseCallsChangeShareNone) {
  const StableDiffusionControlNetPipeline pipe = controlled();
  ControlNetOptions late = options(1);
  late.control_guidance_start = {0.5};
  auto a = start(pipe, late), b = start(pipe, options(2));
  EXPECT_FALSE(SharedSteps::fit(*a, *b));
}

TEST(Control, NetworksThatAreNotAskedCostNothing) {
  const StableDiffusionControlNetPipeline pipe = controlled(2);
  int calls[2] = {};
  for (int i : {0, 1})
    pipe.controlnets.networks[size_t(i)]->model()->register_forward_hook(
        [&calls, i](nn::Module&, const nn::Values&, const Value&) -> Value { return ++calls[i], std::monostate{}; });
  ControlNetOptions o = options(1, 2);
  o.control_guidance_end = {1, 0.4};
  alone(pipe, o);
  EXPECT_EQ(calls[0], 3);
  EXPECT_EQ(calls[1], 1);
  o.controlnet_conditioning_scale = {0, 0.5};
  alone(pipe, o);
  EXPECT_EQ(calls[0], 3);
}

TEST(Control, ComponentsOfSeveralNetworks) {
  StableDiffusionControlNetPipeline pipe = controlled(2);
  std::vector<std::string> names;
  for (auto& slot : pipe.components()) names.push_back(slot.name);
  EXPECT_EQ(std::vector<std::string>(names.begin() + 3, names.begin() + 7),
            (std::vector<std::string>{"unet", "controlnet", "controlnet_1", "scheduler"}));
  EXPECT_FALSE(pipe.add_slot("controlnet_1"));
  EXPECT_FALSE(pipe.add_slot("unet_1"));
  EXPECT_EQ(adapted_models(pipe).size(), 1u) << "LoRAs are the UNet's";
  ControlNetOptions o = options(1, 1);
  SF_EXPECT_ERROR(ValueError, "needs a picture for each of its 2 ControlNets, got 1", pipe.start(o));
  const auto other = controlled_pipeline("test", pipe, Task::ImageToImage, {});
  EXPECT_EQ(other->components().size(), names.size()) << "both went along";
}

}  // namespace
}  // namespace sf::diffusion
