#include "scaffolding/train/text_to_video/cached_clips.h"

#include <algorithm>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/data/dataloader.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/tokenizers/pretrained.h"
#include "scaffolding/train/interrupt.h"

namespace sf::train {

namespace {

constexpr int64_t kAtOnce = 8;  // clips that are encoded together
const char* const kFolder = "latents";

// Every clip that is cached, with its flow, whatever order they are asked for in.
class Variants final : public data::Dataset {
 public:
  explicit Variants(const TextToVideoRun& run)
      : clips_(run.clips),
        of_each_(run.recipe.denoiser.clips),
        seed_(uint64_t(run.recipe.seed)),
        with_flow_(run.recipe.steered()) {}
  int64_t size() const override { return clips_->size() * of_each_; }
  std::string sample_name(int64_t index) const override { return clips_->name(index / of_each_); }
  data::Sample get(int64_t index, data::SampleRandom&) const override {
    data::SampleRandom random(seed_, uint64_t(index / of_each_), uint64_t(index % of_each_));
    TrainingClip clip = clips_->get(index / of_each_, random);
    data::Sample sample;
    if (with_flow_) sample.target = clips_->flow(clip);
    sample.image = clip.frames;
    sample.caption = std::move(clip.caption);
    sample.name = sample_name(index);
    sample.index = index;
    return sample;
  }

 private:
  std::shared_ptr<const TrainingClips> clips_;
  int64_t of_each_;
  uint64_t seed_;
  bool with_flow_;
};

std::string about(const TextToVideoRun& run) {
  const VideoRecipe& r = run.recipe;
  return std::to_string(r.denoiser.clips) + " clips of each of " + std::to_string(run.clips->size()) + ", " +
         std::to_string(r.data.num_frames) + " frames of " + std::to_string(r.data.height) + " x " +
         std::to_string(r.data.width) + ", " + std::to_string(r.max_tokens) + " tokens, seed " +
         std::to_string(r.seed) + (r.steered() ? ", with flow" : "");
}

}  // namespace

Tensor caption_ids(const tokenizers::Tokenizer& tokenizer, const std::vector<std::string>& prompts) {
  const auto options = tokenizer.fixed_length();
  std::vector<int64_t> ids;
  for (auto& prompt : prompts) {
    const auto one = tokenizer.encode(prompt, options).ids;
    ids.insert(ids.end(), one.begin(), one.end());
  }
  return tensor(ids, {int64_t(prompts.size()), int64_t(ids.size() / prompts.size())});
}

bool CachedClips::write(const TextToVideoRun& run, const models::AutoencoderKLCogVideoX& vae,
                        const tokenizers::Tokenizer& tokenizer) {
  autograd::NoGrad no_grad;
  data::DataLoader loader(std::make_shared<Variants>(run),
                          {.batch_size = kAtOnce, .num_workers = run.recipe.denoiser.num_workers});
  data::RowWriter rows(run.place(kFolder), 512, about(run));
  const auto encoded = [&](const Tensor& clips) {
    return (vae.encode(clips.to(run.device)).mode() * vae.options.scaling_factor).transpose(1, 2).to(kFloat16).cpu();
  };
  StopOnInterrupt interrupt;
  for (data::Batch& batch : loader) {
    if (interrupt.asked()) return false;
    if (batch.size() == 0) continue;  // all of them are broken
    std::map<std::string, Tensor> row{{"latents", encoded(batch.image)},
                                      {"ids", caption_ids(tokenizer, batch.caption)}};
    if (batch.target) row["flow"] = encoded(batch.target);
    rows.add(row);
  }
  if (loader.skipped() > 0) run.tell(std::to_string(loader.skipped()) + " clips could not be read");
  rows.finish();
  return true;
}

CachedClips::CachedClips(const TextToVideoRun& run) : rows_(run.place(kFolder), about(run)) {
  const auto names = rows_.names();
  const auto has = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  SF_CHECK(has("latents") && has("ids"), "CachedClips: ", run.place(kFolder), " has no rows of latents and ids");
  has_flow_ = has("flow");
  const std::string folder = run.place("pipeline/tokenizer");
  no_caption_ = caption_ids(*tokenizers::load_tokenizer(tokenizers::tokenizer_class_of(folder), folder), {""})[0];
}

Tensor CachedClips::clip(int64_t index) const { return rows_.get(index).at("latents").to(kFloat32); }

data::Sample CachedClips::get(int64_t index, data::SampleRandom&) const {
  auto row = rows_.get(index);
  data::Sample sample;
  sample.image = row.at("latents").to(kFloat32);
  if (has_flow_) sample.target = row.at("flow").to(kFloat32);
  sample.name = sample_name(index);
  sample.index = index;
  return sample;
}

Tensor CachedClips::ids(const std::vector<int64_t>& samples, const Tensor& dropped) const {
  Tensors all;
  for (size_t i = 0; i < samples.size(); ++i)
    all.push_back(dropped && dropped.data<bool>()[i] ? no_caption_ : rows_.get(samples[i]).at("ids"));
  return stack(all);
}

}  // namespace sf::train
