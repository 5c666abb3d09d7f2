#include "scaffolding/train/text_to_image/cached_latents.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/io/checkpoint.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/ops/ops.h"

namespace sf::train {

bool CachedLatents::write(const data::IconDataset& icons, const models::AutoencoderKL& vae, Device device,
                          int64_t backgrounds, uint64_t seed, const std::string& path,
                          const std::function<bool(int64_t, int64_t)>& progress) {
  autograd::NoGrad no_grad;
  auto& colours = data::background_colours();
  const int64_t variants = 1 + backgrounds;
  Tensors rows;
  std::vector<int64_t> places;
  for (int64_t i = 0; i < icons.size(); ++i) {
    Tensors pictures;
    for (int64_t v = 0; v < variants; ++v) {
      data::SampleRandom random(seed, uint64_t(i), uint64_t(v));
      places.push_back(v == 0 ? 0 : random.below(int64_t(colours.size())));
      pictures.push_back(icons.picture(i, colours[size_t(places.back())].rgb));
    }
    rows.push_back((vae.encode(stack(pictures).to(device)).mode() * vae.options.scaling_factor).to(kFloat16).cpu());
    if (progress && !progress(i + 1, icons.size())) return false;
  }
  io::save_safetensors({{"latents", stack(rows)}, {"background", tensor(places, {icons.size(), variants})}}, path);
  return true;
}

CachedLatents::CachedLatents(std::shared_ptr<const data::IconDataset> icons, const std::string& path)
    : icons_(std::move(icons)) {
  auto file = io::open_checkpoint(path);
  latents_ = file->get("latents");
  background_ = file->get("background");
  SF_CHECK(latents_.ndim() == 5 && latents_.size(0) == icons_->size() && latents_.dtype() == kFloat16, path,
           ": holds latents ", latents_.shape(), " for ", icons_->size(),
           " icons; remove the file to have it made again");
  SF_CHECK(background_.dtype() == kInt64 && background_.shape() == (Shape{latents_.size(0), latents_.size(1)}), path,
           ": holds backgrounds ", background_.shape(), " for latents ", latents_.shape());
}

data::Sample CachedLatents::get(int64_t index, data::SampleRandom& random) const {
  const int64_t variants = latents_.size(1);
  bool named = variants > 1 && random.uniform() < icons_->options().background_probability;
  int64_t variant = named ? 1 + random.below(variants - 1) : 0;
  auto& colours = data::background_colours();
  int64_t colour = background_.data<int64_t>()[index * variants + variant];
  SF_CHECK(colour >= 0 && colour < int64_t(colours.size()), "CachedLatents: there is no background ", colour);
  data::Sample sample;
  sample.image = latents_.select(0, index).select(0, variant).to(kFloat32);
  sample.caption = icons_->prompt(index, named ? colours[size_t(colour)].name : "", random);
  sample.name = icons_->sample_name(index);
  sample.index = index;
  return sample;
}

}  // namespace sf::train
