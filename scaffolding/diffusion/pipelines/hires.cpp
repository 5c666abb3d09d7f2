#include "scaffolding/diffusion/pipelines/hires.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/image_processor.h"
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

constexpr double kMostScale = 8;

// Values of one call's options as another one's, where both have the field.
void copy_field(const OptionField& from, const OptionField& to) {
  std::visit(
      [&](auto place) {
        auto* other = std::get_if<decltype(place)>(&to.place);
        if (!other) return;
        if constexpr (std::is_same_v<decltype(place), ChoiceField>) other->set(other->place, place.get(place.place));
        else **other = *place;
      },
      from.place);
}

// A step that a side must be a multiple of.
int64_t multiple(const DiffusionPipeline& pipeline) { return std::max<int64_t>(8, pipeline.side_multiple()); }

}  // namespace

HiresUpscaler hires_upscaler(std::string_view name) {
  for (auto upscaler : {HiresUpscaler::Latent, HiresUpscaler::Bicubic, HiresUpscaler::Lanczos})
    if (name == name_of(upscaler)) return upscaler;
  fail("hires: upscaler must be latent, bicubic or lanczos, got '", name, "'");
}

const char* name_of(HiresUpscaler upscaler) {
  return upscaler == HiresUpscaler::Latent ? "latent" : upscaler == HiresUpscaler::Bicubic ? "bicubic" : "lanczos";
}

Hires::Hires(const DiffusionPipeline& pipeline, HiresOptions options)
    : pipeline_(pipeline.clone()), options_(std::move(options)) {
  SF_CHECK(options_.scale > 1 && options_.scale <= kMostScale, "hires: scale must be above 1 and at most ", kMostScale,
           ", got ", options_.scale);
  SF_CHECK(options_.strength > 0 && options_.strength <= 1, "hires: strength must be above 0 and at most 1, got ",
           options_.strength);
  SF_CHECK(!options_.num_inference_steps || *options_.num_inference_steps >= 1,
           "hires: the second pass needs at least one step, got ", options_.num_inference_steps.value_or(0));
  std::shared_ptr<DiffusionPipeline> second = pipeline_for("hires", pipeline.name(), Task::ImageToImage).make();
  share_components(pipeline, *second);
  image_to_image_ = std::move(second);
}

std::unique_ptr<Run> Hires::first(const AnyOptions& options) const {
  const int64_t steps = options_.num_inference_steps.value_or(options.at<int64_t>("num_inference_steps"));
  SF_CHECK(double(steps) * options_.strength >= 1, "hires: of ", steps, " steps a strength of ", options_.strength,
           " leaves none; raise either");
  std::unique_ptr<Run> run = pipeline_->start(options);
  run->output_latents = options_.upscaler == HiresUpscaler::Latent && !options_.upscale;
  return run;
}

Tensor Hires::enlarged(Run& first) const {
  autograd::NoGrad no_grad;
  const int64_t factor = pipeline_->vae_scale_factor(), step = multiple(*pipeline_);
  auto larger = [&](int64_t pixels) { return int64_t(double(pixels) * options_.scale) / step * step; };
  const int64_t height = larger(first.latents.size(2) * factor), width = larger(first.latents.size(3) * factor);
  if (first.output_latents)
    return interpolate(first.finish().images, Shape{height / factor, width / factor}, {}, "bilinear");
  const bool bicubic = options_.upscaler == HiresUpscaler::Bicubic && !options_.upscale;
  const VaeImageProcessor processor(
      {.vae_scale_factor = factor, .resample = bicubic ? data::Filter::Bicubic : data::Filter::Lanczos});
  Tensors pictures;
  for (auto& frames : first.finish_frames().clips) {
    Tensor picture = frames[0].cpu().permute({2, 0, 1});
    if (options_.upscale) picture = options_.upscale(picture);
    pictures.push_back(processor.resize(picture, height, width));
  }
  return processor.preprocess(pictures, {});
}

std::unique_ptr<Run> Hires::second(const AnyOptions& options, Run& first) const {
  const AnyOptions told = image_to_image_->make_options();
  constexpr std::string_view kOfTheFirst[] = {"height", "width", "latents", "denoising_end"};
  for (auto& field : told.fields()) {
    const OptionField* from = options.find(field.name);
    if (from && std::find(std::begin(kOfTheFirst), std::end(kOfTheFirst), field.name) == std::end(kOfTheFirst))
      copy_field(*from, field);
  }
  if (options_.num_inference_steps) told.at<int64_t>("num_inference_steps") = *options_.num_inference_steps;
  told.at<double>("strength") = options_.strength;
  told.at<Tensor>("image") = enlarged(first);
  return image_to_image_->start(told);
}

PipelineOutput Hires::operator()(const AnyOptions& options) const {
  std::unique_ptr<Run> run = first(options);
  while (!run->done()) run->step();
  run = second(options, *run);
  while (!run->done()) run->step();
  PipelineOutput out = run->finish();
  release_threads();
  return out;
}

}  // namespace sf::diffusion
