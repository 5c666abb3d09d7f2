#include "scaffolding/train/lora/encoded_pictures.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/stopping.h"
#include "scaffolding/ops/ops.h"

namespace sf::train {

namespace {
constexpr size_t kMostPrompts = 1000;  // kept; SDXL's take 0.7 MB each
}

EncodedPictures::EncodedPictures(const data::ImageDataset& pictures, diffusion::DiffusionPipeline& pipeline,
                                 const Options& options) {
  autograd::NoGrad off;
  const auto vae = pipeline.the_autoencoder();
  SF_CHECK_AS(NotSupported, vae, "train-lora: a ", pipeline.name(), " has no autoencoder");
  Generator draws = make_generator();
  draws->manual_seed(options.seed);
  auto encoded = [&](const Tensor& picture) {
    const Tensor latents = vae->encode(picture.unsqueeze(0).to(vae->device()).to(vae->dtype()), draws);
    return vae->scaled(latents).select(0, 0).to(kFloat32).to(Device()).contiguous();
  };
  for (int64_t i = 0; i < pictures.size(); ++i) {
    data::SampleRandom random(options.seed, uint64_t(i), 0);
    try {
      const data::Sample sample = pictures.get(i, random);
      Item item{encoded(sample.image), {}, options.caption.empty() ? sample.caption : options.caption, sample.name};
      if (options.flip) item.mirrored = encoded(flip(sample.image, {-1}));
      items_.push_back(std::move(item));
    } catch (const data::BrokenSample& e) {
      skipped_.push_back({i, pictures.sample_name(i), e.what()});
    }
    if (options.progress && !options.progress(i + 1, pictures.size())) throw Stopped("train-lora: stopped");
  }
  SF_CHECK(!items_.empty(), "train-lora: none of the pictures can be read; the first: ", skipped_.at(0).reason);
}

data::Sample EncodedPictures::get(int64_t index, data::SampleRandom& random) const {
  const Item& item = items_.at(size_t(index));
  data::Sample out;
  out.image = item.mirrored && random.below(2) ? item.mirrored : item.latents;
  out.caption = item.caption, out.name = item.name, out.index = index;
  return out;
}

const diffusion::DenoiserCall& EncodedPrompts::told(const std::string& prompt) {
  auto found = told_.find(prompt);
  if (found != told_.end()) return found->second;
  if (told_.size() >= kMostPrompts) told_.clear();
  const diffusion::AnyOptions options = pipeline_.make_options();
  SF_CHECK_AS(NotSupported, options.find("prompt") && options.find("guidance_scale"), "train-lora: a ",
              pipeline_.name(), " is not told prompts");
  options.at<std::vector<std::string>>("prompt") = {prompt};
  options.at<double>("guidance_scale") = no_guidance_;
  options.at<std::optional<int64_t>>("height") = height_;
  options.at<std::optional<int64_t>>("width") = width_;
  options.at<int64_t>("num_inference_steps") = 1;
  options.at<bool>("capture") = false;
  options.at<diffusion::Generators>("generator") = {make_generator()};  // its noise is nobody's, and not the run's
  run_ = pipeline_.start(options);
  if (run_->guidance.on() && no_guidance_ > 0) {  // on above 0 already
    no_guidance_ = 0;
    return told(prompt);
  }
  return told_.emplace(prompt, run_->told).first->second;
}

diffusion::DenoiserCall EncodedPrompts::call(const std::vector<std::string>& prompts, const Tensor& samples,
                                             const Tensor& timesteps) {
  std::vector<diffusion::DenoiserCall> calls;
  for (auto& prompt : prompts) calls.push_back(told(prompt));
  return run_->joined(calls).with(run_->as_sample(samples), run_->told_times(timesteps));
}

}  // namespace sf::train
