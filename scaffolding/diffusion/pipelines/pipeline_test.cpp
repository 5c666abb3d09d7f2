// Pipelines from C++: a run, its folder, the stop.
#include "scaffolding/diffusion/pipelines/pipelines.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/backend/cpu/packed_weights.h"
#include "scaffolding/diffusion/pipelines/image_processor.h"
#include "scaffolding/diffusion/pipelines/stable_diffusion/test_pipeline.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/nn/init.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {
namespace {

using test::options;
using test::tiny;

class Pipeline : public io::TestFolder {};

TEST_F(Pipeline, MakesPicturesAndTellsItsSteps) {
  auto pipe = tiny();
  auto o = options();
  std::vector<int64_t> done;
  o.progress = [&](int64_t n, int64_t total) { done.push_back(n * 10 + total); };
  o.callback_on_step_end = [](StepState& s) {
    if (s.step == 1) *s.tensors.at("latents") = zeros_like(*s.tensors.at("latents"));
  };
  Tensor images = pipe(o).images;
  EXPECT_EQ(images.shape(), Shape({2, 3, 16, 16}));
  EXPECT_EQ(done, (std::vector<int64_t>{3, 13, 23, 33}));
  EXPECT_TRUE(autograd::grad_enabled());
}

TEST_F(Pipeline, ComesBackFromItsFolder) {
  auto pipe = tiny();
  save_pipeline(pipe, path("pipe"));
  EXPECT_STREQ(load_pipeline(path("pipe")).pipeline->name(), "StableDiffusionPipeline");
  auto again = StableDiffusionPipeline::from_pretrained(path("pipe"));
  EXPECT_EQ(pipe(options()).images.to_vector(), again(options()).images.to_vector());
  EXPECT_EQ(StableDiffusionPipeline::from_pretrained(path("pipe"), {.dtype = kBFloat16}).unet->dtype(), kBFloat16);
}

// Else each picture would pack all of them anew.
TEST_F(Pipeline, WeightsOfASmallModelStayInTheLayoutOfKernels) {
  save_pipeline(tiny(), path("pipe"));
  // of a type that every instruction set packs, and pages of files
  auto pipe = StableDiffusionPipeline::from_pretrained(path("pipe"), {.dtype = kFloat16});
  auto packed_after = [&](bool between_phases) {
    cpu::LeanMemory::give_back();
    pipe.savings.between_phases = between_phases;
    pipe(options());
    return cpu::packed_total();
  };
  cpu::LeanMemory::give_back();
  autograd::NoGrad off;
  pipe.decoded(zeros({2, 4, 8, 8}));
  const size_t of_decoding = cpu::packed_total();
  EXPECT_GT(packed_after(false), of_decoding);
  EXPECT_LE(packed_after(true), of_decoding);
  cpu::LeanMemory::give_back();
}

// Counts what is made of the text.
class Watched final : public Denoiser {
 public:
  explicit Watched(std::shared_ptr<Denoiser> denoiser) : denoiser_(std::move(denoiser)) {}
  io::Object config() override { return denoiser_->config(); }
  DType dtype() override { return denoiser_->dtype(); }
  Device device() override { return denoiser_->device(); }
  Tensor predict(const DenoiserCall& call) override {
    Tensor out = denoiser_->predict(call);
    computed.push_back(models::ContextCache::current() ? models::ContextCache::current()->computed() : -1);
    return out;
  }
  std::vector<int64_t> computed;

 private:
  std::shared_ptr<Denoiser> denoiser_;
};

TEST_F(Pipeline, KeysAndValuesOfThePromptAreComputedOnceARun) {
  auto pipe = tiny();
  auto watched = std::make_shared<Watched>(pipe.unet);
  pipe.unet = watched;
  auto o = options();
  o.negative_prompt_embeds = zeros({2, 5, 16});
  constexpr int64_t kProjections = 2 * (1 + 2 + 1);  // keys and values: one layer down, two up, and the middle
  auto kept = pipe(o).images.to_vector();
  EXPECT_EQ(watched->computed, std::vector<int64_t>(3, kProjections));
  watched->computed.clear();
  o = options();
  o.negative_prompt_embeds = zeros({2, 5, 16});
  o.guidance_mode = GuidanceMode::Sequential;
  pipe(o);
  EXPECT_EQ(watched->computed, (std::vector<int64_t>{kProjections, 2 * kProjections, 2 * kProjections, 2 * kProjections,
                                                     2 * kProjections, 2 * kProjections}));
  watched->computed.clear();
  o = options();
  o.negative_prompt_embeds = zeros({2, 5, 16});
  o.cache_prompt = false;
  EXPECT_EQ(pipe(o).images.to_vector(), kept);
  EXPECT_EQ(watched->computed, std::vector<int64_t>(3, -1));
}

TEST_F(Pipeline, RunsTakeTurnsAndGoOnWhereTheyWere) {
  auto pipe = tiny();
  std::vector<std::vector<double>> alone;
  for (uint64_t seed : {1, 2}) {
    auto o = options();
    o.generator[0]->manual_seed(seed);
    o.negative_prompt_embeds = zeros({2, 5, 16});
    alone.push_back(pipe(o).images.to_vector());
  }
  std::vector<std::unique_ptr<diffusion::Run>> runs;
  for (uint64_t seed : {1, 2}) {
    auto o = options();
    o.generator[0]->manual_seed(seed);
    o.negative_prompt_embeds = zeros({2, 5, 16});
    o.scheduler = fresh_scheduler(*pipe.scheduler);
    runs.push_back(pipe.start(o));
  }
  for (size_t i = 0; !runs[1]->done(); ++i) {
    if (!runs[0]->done()) runs[0]->step();
    if (i > 0) runs[1]->step();  // one step behind
  }
  EXPECT_EQ(runs[0]->at(), 3u);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(runs[i]->finish().images.to_vector(), alone[i]);
  SF_EXPECT_ERROR(RuntimeError, "the run has no step left after 3", runs[0]->step());
}

// Between steps a batch may lose samples; those that stay become what they would have become.
TEST_F(Pipeline, RunsGoOnWithSomeOfTheirSamples) {
  for (const char* scheduler : {"DDIMScheduler", "DPMSolverMultistepScheduler", "PNDMScheduler",
                                "UniPCMultistepScheduler", "HeunDiscreteScheduler"}) {
    auto pipe = tiny();
    pipe.scheduler = make_scheduler(scheduler, io::Object::container(io::Object::Dict));
    auto o = options();
    o.num_inference_steps = 6;
    o.negative_prompt_embeds = zeros({2, 5, 16});
    Tensor whole = pipe(o).images;
    o.generator[0]->manual_seed(1);
    auto run = pipe.start(o);
    for (int i = 0; i < 3; ++i) run->step();
    EXPECT_EQ(run->preview().shape(), Shape({2, 3, 16, 16}));
    SF_EXPECT_ERROR(ValueError, "places in a batch of 2, got 2", run->keep_samples({2}));
    run->keep_samples({1});
    while (!run->done()) run->step();
    Tensor kept = run->finish().images;
    EXPECT_EQ(kept.shape(), Shape({1, 3, 16, 16}));
    EXPECT_LT(amax(abs(kept - whole.narrow(0, 1, 1))).item(), 1e-4) << scheduler;
    EXPECT_GT(amax(abs(kept - whole.narrow(0, 0, 1))).item(), 1e-3) << scheduler;
  }
}

TEST_F(Pipeline, AnInterruptedRunShowsWhatIsThere) {
  auto pipe = tiny();
  auto run = pipe.start(options());
  run->step();
  run->interrupt();
  EXPECT_TRUE(run->done());
  EXPECT_EQ(run->finish().images.shape(), Shape({2, 3, 16, 16}));
}

TEST_F(Pipeline, TheRegistryKnowsClassesByFamilyAndTask) {
  EXPECT_EQ(pipeline_for("test", "StableDiffusionPipeline", Task::Inpainting).name, "StableDiffusionInpaintPipeline");
  SF_EXPECT_ERROR(ValueError, "test: knows no pipeline for AuraFlowPipeline; there are",
                  pipeline_for("test", "AuraFlowPipeline", Task::TextToImage));
  SF_EXPECT_ERROR(ValueError, "there is no pipeline class 'AuraFlowPipeline'", pipeline_entry("AuraFlowPipeline"));
  // What a class's lists say agrees: arguments of calls are options, or what Python shapes.
  for (auto* entry : all_pipelines()) {
    auto made = entry->make();
    const AnyOptions options = made->make_options();
    std::vector<std::string> components;
    for (auto& slot : made->components()) components.push_back(slot.name);
    for (auto& name : entry->optional_components)
      EXPECT_NE(std::find(components.begin(), components.end(), name), components.end()) << entry->name << name;
    int64_t shaped = 0;
    for (auto& name : entry->arguments) shaped += options.find(name) == nullptr;
    EXPECT_LE(shaped, 11) << entry->name;
    for (const char* name : {"num_inference_steps", "generator", "progress", "stop", "callback_on_step_end"})
      EXPECT_TRUE(options.find(name)) << entry->name;
  }
}

TEST_F(Pipeline, OptionsFromText) {
  StableDiffusionXLOptions o;
  auto fields = o.fields();
  auto set = [&](const char* name, const char* text) {
    auto at = std::find_if(fields.begin(), fields.end(), [&](auto& f) { return std::string_view(f.name) == name; });
    set_from_text(name, *at, text);
  };
  set("denoising_end", "0.8");
  set("original_size", "512,768");
  set("sigmas", "3,2.5,0");
  set("guidance_mode", "sequential");
  set("height", "64");
  EXPECT_EQ(*o.denoising_end, 0.8);
  EXPECT_EQ((*o.original_size)[1], 768);
  EXPECT_EQ(o.sigmas->size(), 3u);
  EXPECT_EQ(o.guidance_mode, GuidanceMode::Sequential);
  EXPECT_EQ(*o.height, 64);
  SF_EXPECT_ERROR(ValueError, "original_size: must be two whole numbers with a comma between, got '512'",
                  set("original_size", "512"));
  SF_EXPECT_ERROR(ValueError, "denoising_end: must be a number, got '0.8x'", set("denoising_end", "0.8x"));
  SF_EXPECT_ERROR(ValueError, "guidance_mode", set("guidance_mode", "both"));
  SF_EXPECT_ERROR(NotSupported, "latents: cannot be given as text", set("latents", "1"));
}

TEST_F(Pipeline, StopsBetweenSteps) {
  auto pipe = tiny();
  auto o = options();
  std::stop_source source;
  o.stop = source.get_token();
  o.progress = [&](int64_t n, int64_t) {
    if (n == 1) source.request_stop();
  };
  SF_EXPECT_ERROR(Stopped, "stopped after 1 of 3 steps", pipe(o));
}

TEST_F(Pipeline, RefusesWrongComponents) {
  SF_EXPECT_ERROR(TypeError, "unet: must be a denoiser, which is called with samples and timesteps, got AutoencoderKL",
                  denoiser(std::make_shared<models::AutoencoderKL>()));
  SF_EXPECT_ERROR(TypeError,
                  "vae: must be an autoencoder (AutoencoderKLCogVideoX, AutoencoderKL, AutoencoderTiny, "
                  "AutoencoderKLLTX2Audio or AutoencoderKLLTX2Video), got UNet2DConditionModel",
                  autoencoder(std::shared_ptr<models::Model>(tiny().unet, tiny().unet->model())));
  auto pipe = tiny();
  pipe.unet = nullptr;
  SF_EXPECT_ERROR(ValueError, "has no unet", pipe(options()));
  pipe = tiny();
  auto o = options();
  o.prompt_embeds = {};
  o.prompt = {"cat"};
  SF_EXPECT_ERROR(ValueError, "has no text_encoder", pipe(o));
  write("model_index.json",
        R"({"_class_name": "StableDiffusionPipeline", "unet": ["diffusers", "UNet3DConditionMode"]})");
  SF_EXPECT_ERROR(ValueError, "no class 'UNet3DConditionMode' for 'unet' (closest: 'UNet2DConditionModel')",
                  load_pipeline(folder_.string()));
}

TEST_F(Pipeline, ResizesAsPillow) {
  VaeImageProcessor p({.vae_scale_factor = 2});
  Tensor picture = (arange(0, 3 * 8 * 6) * 1).reshape({8, 6, 3}).to(kUInt8).permute({2, 0, 1});
  Tensor fill = p.resize(picture, 8, 12, ResizeMode::Fill), crop = p.resize(picture, 4, 6, ResizeMode::Crop);
  EXPECT_EQ(fill.shape(), Shape({3, 8, 12}));
  EXPECT_EQ(fill.select(2, 0).to_vector(), picture.select(2, 0).to_vector());  // the border is repeated
  EXPECT_EQ(crop.to_vector(), picture.slice(1, 2, 6).to_vector());
  Tensor mask = zeros({1, 8, 6}, kUInt8);
  mask.slice(1, 2, 4).slice(2, 1, 3).fill_(255);
  CropBox box = VaeImageProcessor::crop_region(mask, 16, 16, 1);
  EXPECT_EQ((std::vector<int64_t>{box.left, box.top, box.right, box.bottom}), (std::vector<int64_t>{0, 1, 4, 5}));
  Tensor white = full({3, 8, 6}, 255, kUInt8), laid = p.apply_overlay(mask, picture, white);
  EXPECT_EQ(laid.select(2, 1).select(1, 2).to_vector(), (std::vector<double>{255, 255, 255}));
  EXPECT_EQ(laid.select(2, 0).to_vector(), picture.select(2, 0).to_vector());
}

}  // namespace
}  // namespace sf::diffusion
