#include "scaffolding/diffusion/memory/activations.h"

#include <gtest/gtest.h>

#include <numeric>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/core/default_device.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/memory/pipeline_memory.h"
#include "scaffolding/diffusion/pipelines/stable_diffusion/test_pipeline.h"
#include "scaffolding/models/parts/lora.h"
#include "scaffolding/models/single_file/kinds.h"
#include "scaffolding/models/text_encoders/clip.h"
#include "scaffolding/nn/quantized.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {
namespace {

constexpr int64_t kMB = 1'000'000, kGB = 1'000'000'000;

GenerationOptions guided_options() {
  GenerationOptions o = test::options();
  o.negative_prompt_embeds = zeros({2, 5, 16});
  return o;
}

// A network as it is, and the most bytes that tensors took while it ran, beside what there was.
template <class Base> class Measured : public Base {
 public:
  explicit Measured(Ref<Base> real) : real_(std::move(real)) {}
  io::Object config() override { return real_->config(); }
  DType dtype() override { return real_->dtype(); }
  Device device() override { return real_->device(); }
  models::Model* model() override { return real_->model(); }
  int64_t bytes = 0;

 protected:
  template <class F> auto measured(F&& f) {
    const auto before = int64_t(cpu::allocated_bytes());
    cpu::reset_peak();
    auto out = f();
    bytes = std::max(bytes, int64_t(cpu::max_allocated_bytes()) - before);
    return out;
  }
  Ref<Base> real_;
};
class MeasuredDenoiser final : public Measured<Denoiser> {
 public:
  using Measured::Measured;
  Tensor predict(const DenoiserCall& call) override {
    return measured([&] { return real_->predict(call); });
  }
};
class MeasuredAutoencoder final : public Measured<Autoencoder> {
 public:
  using Measured::Measured;
  Tensor encode(const Tensor& images, const Generator& g) override {
    return measured([&] { return real_->encode(images, g); });
  }
  Tensor decode(const Tensor& latents) override {
    return measured([&] { return real_->decode(latents); });
  }
  std::shared_ptr<void> widened(DType dtype) override { return real_->widened(dtype); }
  Savings savings() override { return real_->savings(); }
  void save(Savings s) override { real_->save(s); }
};

void expect_close(const char* what, int64_t counted, int64_t measured) {
  EXPECT_LE(counted, 2 * measured) << what;
  EXPECT_GE(2 * counted, measured) << what;
}

// Kernels' scratch and the rounding of the allocator's sizes are not counted, so that the two are not equal.
TEST(Activations, AreAboutWhatACallTakes) {
  for (int64_t pixels : {64, 128}) {
    StableDiffusionPipeline pipe = test::tiny();
    GenerationOptions o = guided_options();
    o.height = o.width = pixels, o.num_inference_steps = 2;
    const Activations a = count_activations(pipe, AnyOptions::of(o));

    auto denoiser = std::make_shared<MeasuredDenoiser>(pipe.unet);
    auto vae = std::make_shared<MeasuredAutoencoder>(pipe.vae);
    pipe.unet = denoiser, pipe.vae = vae;
    pipe(o);
    expect_close("batched", a.batched, denoiser->bytes);
    expect_close("decode", a.decode, vae->bytes);
    denoiser->bytes = vae->bytes = 0;
    o.guidance_mode = GuidanceMode::Sequential;
    vae->save({.slicing = true, .tiling = true, .tile = kPlannedTile});
    pipe(o);
    expect_close("sequential", a.sequential, denoiser->bytes);
    expect_close("tiled", a.decode_tiled, vae->bytes);

    EXPECT_LT(a.sequential, a.batched);
    EXPECT_LT(a.decode_sliced, a.decode);
    EXPECT_LT(a.decode_tiled, a.decode_sliced);
    EXPECT_EQ(a.encode, 0) << "a call without pictures";
    EXPECT_TRUE(a.text.empty());
  }
}

TEST(Activations, LeaveThePipelineAlone) {
  StableDiffusionPipeline pipe = test::tiny();
  GenerationOptions o = guided_options();
  auto picture = [&] {
    GenerationOptions again = o;
    Generator g = make_generator();
    g->manual_seed(1);
    again.generator = {g};
    return pipe(again).images;
  };
  const Tensor before = picture();
  const auto state = o.generator[0]->get_state();
  int64_t called = 0;
  o.progress = [&](int64_t, int64_t) { ++called; };
  count_activations(pipe, AnyOptions::of(o));
  EXPECT_EQ(called, 0);
  EXPECT_EQ(o.generator[0]->get_state(), state);
  EXPECT_EQ(pipe.unet->device(), Device());
  EXPECT_FALSE(pipe.vae->savings().tiling);
  EXPECT_EQ(picture().to_vector(), before.to_vector());
}

TEST(Activations, GrowWithTheCall) {
  StableDiffusionPipeline pipe = test::tiny();
  auto of = [&](int64_t pixels, double guidance, DType dtype) {
    GenerationOptions o = guided_options();
    o.height = o.width = pixels, o.guidance_scale = guidance;
    pipe.to({.dtype = dtype});
    return count_activations(pipe, AnyOptions::of(o));
  };
  const Activations a = of(64, 5, kFloat32), half = of(64, 5, kBFloat16), larger = of(128, 5, kFloat32),
                    alone = of(64, 1, kFloat32);
  EXPECT_GT(larger.batched, 3 * a.batched);
  EXPECT_GT(larger.decode, 3 * a.decode);
  EXPECT_LT(half.batched, a.batched * 6 / 10);
  EXPECT_EQ(alone.batched, alone.sequential);
  EXPECT_LE(alone.batched, a.sequential);
}

// A quantised layer's dense weight, and what a LoRA computes beside its layer, are tensors of the call.
TEST(Activations, CountQuantisedLayersAndLoras) {
  auto with = [](const std::function<void(const std::string&, nn::Module&)>& change) {
    StableDiffusionPipeline pipe = test::tiny(64);  // weights are larger than a picture of 16 pixels
    for (auto& m : nn::named_modules(*pipe.unet->model()))
      if (m.module->type() == std::string_view("Linear")) change(m.name, *m.module);
    GenerationOptions o = guided_options();
    o.height = o.width = 16, o.num_inference_steps = 2;
    const Activations a = count_activations(pipe, AnyOptions::of(o));
    auto denoiser = std::make_shared<MeasuredDenoiser>(pipe.unet);
    pipe.unet = denoiser;
    pipe(o);
    expect_close("batched", a.batched, denoiser->bytes);
    return a.batched;
  };
  const int64_t plain = with([](auto&, auto&) {});
  const int64_t quantised = with([](auto&, nn::Module& m) {
    auto& l = static_cast<nn::Linear&>(m);
    auto nf4 = std::make_shared<nn::LinearNF4>(l.in_features, l.out_features, bool(l.bias), true, nn::TensorOptions{},
                                               l.weight.detach());
    if (l.bias) nf4->bias = l.bias;
    m.replace_by([nf4] { return nf4.get(); });
  });
  EXPECT_LT(std::abs(quantised - plain), plain / 20);  // decoded while it is multiplied: no weight is widened whole
  constexpr int64_t kRank = 1024;                      // large beside the layers: it shows
  const int64_t lora = with([&](const std::string& name, nn::Module& m) {
    auto& l = static_cast<nn::Linear&>(m);
    if (name.find("attn1.to_out") == std::string::npos) return;
    const models::LoraTerm term{.down = zeros({kRank, l.in_features}), .up = zeros({l.out_features, kRank})};
    m.adapt(std::make_shared<models::LoraPath>(m, std::vector{term}, kFloat32, Device()));
  });
  EXPECT_GT(lora, plain);
}

// Every registered pipeline whose components a test can make has a call of a shape.
TEST(Activations, TakeACallOfEveryPipeline) {
  for (auto* entry : all_pipelines()) {
    auto pipe = entry->make();
    for (auto& slot : pipe->components())
      if (auto* d = slot.as<Ref<Denoiser>>()) *d = test::tiny().unet;
    const AnyOptions o = options_for_shape(*pipe, {.height = 64, .width = 128, .batch = 3});
    for (auto& field : o.fields()) {
      if (auto* t = std::get_if<Tensor*>(&field.place); t && field.role != OptionRole::Plain) {
        EXPECT_EQ((*t)->shape(), Shape({3, field.role == OptionRole::Mask ? 1 : 3, 64, 128})) << entry->name;
      }
      if (std::string(field.name) == "prompt") {
        EXPECT_EQ(o.at<std::vector<std::string>>("prompt").size(), 3u) << entry->name;
      }
    }
  }
  EXPECT_THROW(options_for_shape(test::tiny(), {.batch = 0}), ValueError);
}

// ---- full sizes, without memory

std::shared_ptr<models::Model> full(const models::SingleFileKind& kind, const char* part) {
  for (auto& p : kind.parts) {
    if (p.name != part) continue;
    DefaultDevice nowhere{Device(Device::Meta)};
    std::shared_ptr<models::Model> model = models::make_model(p.class_name, p.config);
    nn::to(*model, {.dtype = kFloat16});
    model->eval();
    return model;
  }
  return nullptr;
}

template <class P> P full_pipeline(const models::SingleFileKind& kind) {
  P pipe;
  pipe.unet = denoiser(full(kind, "unet"));
  pipe.vae = autoencoder(full(kind, "vae"));
  pipe.text_encoder = text_encoder(full(kind, "text_encoder"));
  pipe.scheduler = make_scheduler("EulerDiscreteScheduler", io::Object::container(io::Object::Dict));
  return pipe;
}

PlanFacts full_xl(int64_t pixels) {
  const auto& kind = models::single_file_kind("xl_base");
  auto pipe = full_pipeline<StableDiffusionXLPipeline>(kind);
  pipe.text_encoder_2 = text_encoder(full(kind, "text_encoder_2"));
  StableDiffusionXLOptions o;
  o.height = o.width = pixels;
  o.prompt_embeds = zeros({1, 77, 2048}, kFloat16), o.pooled_prompt_embeds = zeros({1, 1280}, kFloat16);
  PlanFacts f = memory_facts(pipe, AnyOptions::of(o), {});
  for (auto& p : f.parts) p.mapped = true;  // as of files
  f.free_host = f.total_host = 32 * kGB;
  return f;
}

PlanFacts full_15(int64_t pixels) {
  auto pipe = full_pipeline<StableDiffusionPipeline>(models::single_file_kind("v1"));
  GenerationOptions o;
  o.height = o.width = pixels;
  o.prompt_embeds = o.negative_prompt_embeds = zeros({1, 77, 768}, kFloat16);
  PlanFacts f = memory_facts(pipe, AnyOptions::of(o), {});
  for (auto& p : f.parts) p.mapped = true;
  f.free_host = f.total_host = 32 * kGB;
  return f;
}

TEST(MemoryFacts, AreThoseOfFullSizeModels) {
  const PlanFacts xl = full_xl(1024);
  ASSERT_EQ(xl.parts.size(), 4u);
  auto part = [&](const char* name) -> const PartFacts& {
    return *std::find_if(xl.parts.begin(), xl.parts.end(), [&](auto& p) { return p.name == name; });
  };
  EXPECT_EQ(part("unet").bytes, 2 * int64_t(2'567'463'684)) << "parameters of SDXL's UNet";
  EXPECT_EQ(part("unet").format, "float16");
  EXPECT_EQ(part("unet").type, "UNet2DConditionModel");
  const auto& blocks = part("unet").blocks;
  EXPECT_GT(blocks.size(), 70u) << "70 transformer blocks, and resnets";
  const int64_t in_blocks = std::accumulate(blocks.begin(), blocks.end(), int64_t(0));
  EXPECT_GT(in_blocks, part("unet").bytes * 9 / 10);
  EXPECT_LE(in_blocks, part("unet").bytes);
  EXPECT_LT(*std::max_element(blocks.begin(), blocks.end()), 150 * kMB);
  EXPECT_GE(part("text_encoder_2").blocks.size(), 32u);
  // force_upcast: the autoencoder decodes in float32, with another copy of its weights
  EXPECT_GT(xl.activations.decode, 3 * kGB);
  EXPECT_LT(xl.activations.decode, 5 * kGB);
  EXPECT_LT(xl.activations.decode_tiled, 1500 * kMB);
  EXPECT_GT(xl.activations.batched, 300 * kMB);
  EXPECT_LT(xl.activations.batched, 3 * kGB);
}

// From 2 to 24 GB, each plan is within its budget; the largest changes nothing.
TEST(MemoryFacts, FitEveryGpu) {
  for (auto& f : {full_xl(1024), full_xl(512), full_15(512), full_15(768)}) {
    std::string before;
    for (int64_t gigabytes = 2; gigabytes <= 24; ++gigabytes) {
      PlanFacts machine = f;
      machine.free_device = machine.total_device = gigabytes * kGB;
      const MemoryPlan plan = plan_memory(machine);
      EXPECT_LE(plan.device_peak, gigabytes * kGB);
      EXPECT_NE(plan.profile, "cpu_only") << gigabytes << "\n" << plan.str();
      if (gigabytes == 24) {
        EXPECT_EQ(plan.profile, "full_gpu") << plan.str();
      }
    }
    // nor does a laptop without a GPU
    PlanFacts laptop = f;
    laptop.free_host = 3 * kGB;
    const MemoryPlan plan = plan_memory(laptop);
    EXPECT_LE(plan.host_peak, 3 * kGB) << plan.str();
  }
}

TEST(MemoryPlanApplied, SetsWhatCallsDo) {
  StableDiffusionPipeline pipe = test::tiny();
  const AnyOptions o = AnyOptions::of(guided_options());
  PlanFacts facts = memory_facts(pipe, o, {});
  EXPECT_EQ(facts.parts.size(), 2u);
  EXPECT_FALSE(facts.parts[0].mapped) << "made in memory";
  facts.workspace = 0, facts.free_host = 16 * kGB;
  const Tensor whole = pipe(guided_options()).images;
  {
    const MemoryPlan plan = plan_memory(facts);
    apply_memory_plan(pipe, plan);
    EXPECT_EQ(pipe(guided_options()).images.to_vector(), whole.to_vector()) << "where all fits, nothing changes";
  }
  const MemoryPlan plan = plan_memory(facts, {.profile = "cpu_only"});
  apply_memory_plan(pipe, plan);
  EXPECT_TRUE(pipe.savings.sequential_guidance);
  int64_t calls = 0;
  struct Counting final : Denoiser {
    Counting(Ref<Denoiser> d, int64_t& n) : real(std::move(d)), calls(n) {}
    Tensor predict(const DenoiserCall& c) override { return ++calls, real->predict(c); }
    io::Object config() override { return real->config(); }
    DType dtype() override { return real->dtype(); }
    Device device() override { return real->device(); }
    Ref<Denoiser> real;
    int64_t& calls;
  };
  pipe.unet = std::make_shared<Counting>(pipe.unet, calls);
  pipe(guided_options());
  EXPECT_EQ(calls, 6) << "two for each of three steps";

  MemoryPlan other = plan;
  other.parts.pop_back();
  EXPECT_THROW(apply_memory_plan(pipe, other), ValueError);
  // a network that no plan of C++ can count
  std::string why;
  EXPECT_EQ(memory_facts(pipe, o, {}, &why).activations.batched, 0);
  EXPECT_NE(why.find("unet is no C++ model"), std::string::npos) << why;
}

}  // namespace
}  // namespace sf::diffusion
