#include "scaffolding/train/lora/lora_training.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/lora.h"
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/models/adapters/save_lora.h"
#include "scaffolding/ops/ops.h"

namespace sf::train {

data::ImageOptions training_pictures(int64_t resolution) {
  namespace t = data::transforms;
  data::ImageOptions out;
  out.transform =
      t::compose({t::resize({resolution}), t::center_crop({resolution}), t::to_float(), t::normalize({0.5}, {0.5})});
  out.allow_missing_captions = true;
  return out;
}

int64_t training_resolution(const LoraRecipe& recipe, const diffusion::DiffusionPipeline& pipeline) {
  const int64_t size = recipe.resolution.value_or(pipeline.size().height), unit = pipeline.vae_scale_factor();
  SF_CHECK(size % unit == 0, "train-lora: the resolution must be a multiple of ", unit, ", got ", size);
  return size;
}

namespace {

models::Model& denoiser_of(const diffusion::DiffusionPipeline& pipeline) {
  const diffusion::Task task = diffusion::pipeline_entry(pipeline.name()).its_task;
  const auto denoiser = pipeline.the_denoiser();
  SF_CHECK_AS(NotSupported, task == diffusion::Task::TextToImage && denoiser && denoiser->model(),
              "train-lora: trains LoRAs of text-to-image pipelines, and a ", pipeline.name(), " is none");
  return *denoiser->model();
}

// The noise levels that the denoiser was trained with, whatever sampler the pipeline has.
std::unique_ptr<diffusion::Scheduler> noise_of(const diffusion::DiffusionPipeline& pipeline) {
  const auto scheduler = pipeline.the_scheduler();
  SF_CHECK(scheduler, "train-lora: the ", pipeline.name(), " has no scheduler");
  const bool flows = std::string_view(scheduler->name()).starts_with("FlowMatch");
  return diffusion::make_scheduler(flows ? scheduler->name() : "DDPMScheduler", scheduler->config());
}

}  // namespace

// Of the adapter, by its names: what a checkpoint holds.
struct LoraTraining::Parameters final : nn::Module {
  explicit Parameters(models::Model& model) : denoiser(model) {}
  const char* type() const override { return "LoraParameters"; }
  void visit(nn::Visitor& v) override {
    for (auto& [name, t] : denoiser.adapters().parameters()) v.parameter(name, t);
  }
  void train(bool mode) override {
    Module::train(mode);
    denoiser.train(mode);  // whose layers drop the paths' inputs
  }
  models::Model& denoiser;
};

LoraTraining::LoraTraining(LoraRecipe recipe, diffusion::DiffusionPipeline& pipeline,
                           std::shared_ptr<const data::Dataset> pictures)
    : recipe_(std::move(recipe)),
      pipeline_(pipeline),
      denoiser_(denoiser_of(pipeline)),
      prompts_(pipeline, training_resolution(recipe_, pipeline), training_resolution(recipe_, pipeline)),
      scheduler_(noise_of(pipeline)),
      loader_(std::move(pictures), {.batch_size = recipe_.batch_size, .shuffle = true}) {
  recipe_.check();
  nn::requires_grad_(denoiser_, false);
  manual_seed(recipe_.seed);
  denoiser_.adapters().create(kAdapter, recipe_.lora);
  if (recipe_.gradient_checkpointing) denoiser_.enable_gradient_checkpointing();
  parameters_ = std::make_unique<Parameters>(denoiser_);
  optimizer_.emplace(nn::parameters(*parameters_),
                     optim::AdamWOptions{.lr = recipe_.learning_rate, .weight_decay = recipe_.weight_decay});
  const bool warms_up = recipe_.schedule == "constant" && recipe_.warmup_steps > 0;
  schedule_ = optim::get_scheduler(warms_up ? "constant_with_warmup" : recipe_.schedule, *optimizer_,
                                   {.num_warmup_steps = recipe_.warmup_steps, .num_training_steps = recipe_.max_steps});
  options.run = recipe_.run("");
  options.scheduler = schedule_.get();
  options.seed = recipe_.seed;
  options.resume = "latest";
}

LoraTraining::~LoraTraining() = default;

int64_t LoraTraining::step() const { return trainer_ ? trainer_->step() : 0; }

Tensor LoraTraining::loss(const data::Batch& batch) {
  const Device device = denoiser_.device();
  const Tensor latents = batch.image.to(device);
  const diffusion::TrainingBatch todo = diffusion::training_batch(*scheduler_, latents, recipe_.objective());
  std::vector<std::string> captions = batch.caption;
  if (recipe_.caption_dropout > 0)
    for (auto& caption : captions)
      if (rand({}).item() < recipe_.caption_dropout) caption.clear();
  diffusion::DenoiserCall call =
      prompts_.call(captions, todo.noisy_latents.to(denoiser_.dtype()), todo.timesteps.to(device));
  Tensor predicted = prompts_.as_predicted(pipeline_.the_denoiser()->predict(call)).to(kFloat32);
  const int64_t channels = latents.size(1);  // behind them, of some models, the variance
  if (predicted.size(1) > channels) predicted = predicted.narrow(1, 0, channels);
  return diffusion::training_loss(predicted, todo);
}

bool LoraTraining::train() {
  parameters_->train(true);
  trainer_.emplace(
      *parameters_, *optimizer_, loader_, [this](data::Batch& batch) { return loss(batch); }, options);
  const bool stopped = trainer_->fit().stopped;
  parameters_->eval();
  return !stopped;
}

void LoraTraining::show(const std::function<void()>& f) {
  const bool training = denoiser_.training;
  parameters_->eval();
  f();
  parameters_->train(training);
}

void LoraTraining::save(const std::string& path) const {
  models::save_lora(path, kAdapter, diffusion::adapted_models(pipeline_));
}

}  // namespace sf::train
