#include "scaffolding/diffusion/pipelines/ltx2/pipeline_ltx2_condition.h"

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

// [T, 3, H, W] -> [T, 3, height, width]: enlarged or reduced until it covers them, and its middle.
Tensor covering(const Tensor& pixels, int64_t height, int64_t width) {
  const double scale = std::max(double(height) / double(pixels.size(2)), double(width) / double(pixels.size(3)));
  const auto h = int64_t(std::ceil(double(pixels.size(2)) * scale)),
             w = int64_t(std::ceil(double(pixels.size(3)) * scale));
  const Tensor whole = interpolate(pixels, Shape{h, w}, {}, "bilinear", false);
  return whole.narrow(2, (h - height) / 2, height).narrow(3, (w - width) / 2, width);
}

// Where tokens of pictures are that stand behind the clip's: bounds [1, 3, tokens, 2] in seconds and pixels, from frame
// `begin` on. A single picture takes one frame's time.
Tensor places_of(const Shape& latents, int64_t begin, bool single, int64_t ratio, int64_t scale, double fps) {
  std::vector<double> bounds[3];
  for (int64_t t = 0; t < latents[2]; ++t)
    for (int64_t y = 0; y < latents[3]; ++y)
      for (int64_t x = 0; x < latents[4]; ++x) {
        const auto from = double(t * ratio + begin);
        const double to = single ? from + 1 : from + double(ratio);
        for (double v : {from, to}) bounds[0].push_back(double(float(v) / float(fps)));
        for (int64_t v : {y * scale, (y + 1) * scale}) bounds[1].push_back(double(v));
        for (int64_t v : {x * scale, (x + 1) * scale}) bounds[2].push_back(double(v));
      }
  Tensors axes;
  for (auto& axis : bounds) axes.push_back(tensor(axis, {1, 1, int64_t(axis.size()) / 2, 2}, kFloat32));
  return cat(axes, 1);
}

double one_of(const std::vector<double>& values, size_t i) { return values.size() == 1 ? values[0] : values.at(i); }

}  // namespace

OptionFields LTX2ConditionOptions::fields() {
  return OptionFields{
             {"conditions", &conditions, "what the clips go through: an LTX2VideoCondition or a list of them"},
             {"condition_indices", &condition_indices, "latents that conditions begin at, from the end where below 0"},
             {"condition_strengths", &condition_strengths, "how closely conditions are kept, 0 to 1"},
             {"image", &image, "a picture that the clip begins with, beside the conditions", OptionRole::Picture},
             {"image_crf", &image_crf, "how much H.264 takes from the picture, 0 (nothing) to 51; None: 33"},
         } +
         LTX2Options::fields();
}

std::unique_ptr<Run> LTX2ConditionPipeline::prepare(const LTX2ConditionOptions& given) const {
  LTX2ConditionOptions o = given;
  if (!o.noise_scale) o.noise_scale = o.sigmas && !o.sigmas->empty() ? (*o.sigmas)[0] : 1.0;
  if (o.image) {
    for (auto* values : {&o.condition_indices, &o.condition_strengths})
      if (values->size() == 1) values->assign(o.conditions.size(), (*values)[0]);
    o.conditions.push_back(o.image), o.condition_indices.push_back(0), o.condition_strengths.push_back(1);
  }
  auto run = prepare_run(o);
  const LTX2Grid& g = run->grid;
  const Device device = transformer->device();
  SF_CHECK_AS(NotSupported, g.patch == 1 && g.patch_t == 1, kName, ": patches of several latents take no conditions");
  const auto n = o.conditions.size();
  for (auto& [what, values] :
       {std::pair{"condition_indices", &o.condition_indices}, {"condition_strengths", &o.condition_strengths}})
    SF_CHECK(values->size() == 1 || values->size() == n, kName, ": ", what, " must be one for all, or one for each of ",
             n, " conditions, got ", values->size());
  const int64_t scale = vae_scale_factor(), ratio = vae ? vae->frames_per_latent() : 8,
                frames = (g.frames - 1) * ratio + 1;
  SF_CHECK(!o.latents || o.latents.ndim() == 5, kName, ": latents must be [B, C, frames, h, w], got ",
           o.latents.shape());
  Tensor tokens = o.latents ? given_latents(*run, o) : zeros({g.batch, g.tokens(), g.channels}, kFloat32, device);
  Tensor strength = zeros({g.batch, g.tokens(), 1}, kFloat32, device), clean = zeros_like(tokens);
  Tensors behind, behind_strength, places{run->told.at("video_coords")};
  for (size_t i = 0; i < n; ++i) {
    const Tensor& pixels = o.conditions[i];
    const double index = one_of(o.condition_indices, i), kept = one_of(o.condition_strengths, i);
    SF_CHECK(pixels && pixels.ndim() == 4 && pixels.size(1) == 3 && pixels.numel() > 0, kName,
             ": a condition must be [T, 3, H, W], got ", pixels ? pixels.shape() : Shape());
    SF_CHECK(index == std::floor(index) && index < double(g.frames) && index >= -double(g.frames), kName,
             ": a condition's index must be a whole number from -", g.frames, " to ", g.frames - 1,
             ", of the clip's latents, got ", index);
    SF_CHECK(kept >= 0 && kept <= 1, kName, ": a condition's strength must be in [0, 1], got ", kept);
    const int64_t latent = int64_t(index) + (index < 0 ? g.frames : 0),
                  begin = std::max<int64_t>((latent - 1) * ratio + 1, 0);
    const int64_t taken = (std::min(pixels.size(0), frames - begin) - 1) / ratio * ratio + 1;
    const Tensor fits = covering(pixels.narrow(0, 0, taken).to(kFloat32), g.height * scale, g.width * scale);
    const Tensor latents = clean_latents(fits.permute({1, 0, 2, 3}).unsqueeze(0));
    const Tensor told = latents.flatten(2).transpose(1, 2).expand({g.batch, latents[0][0].numel(), g.channels});
    if (latent == 0) {
      for (Tensor* t : {&tokens, &clean}) t->narrow(1, 0, told.size(1)).copy_(told);
      strength.narrow(1, 0, told.size(1)).fill_(kept);
      continue;
    }
    behind.push_back(told);
    behind_strength.push_back(full({g.batch, told.size(1), 1}, kept, kFloat32, device));
    places.push_back(
        places_of(latents.shape(), begin, taken == 1, ratio, scale, o.frame_rate / o.motion_speed).to(device));
  }
  auto joined = [](const Tensor& first, Tensors rest) {
    rest.insert(rest.begin(), first);
    return cat(rest, 1);
  };
  if (!behind.empty()) {
    tokens = joined(tokens, behind), clean = joined(clean, behind), strength = joined(strength, behind_strength);
    run->told.at("video_coords") = cat(places, 2);
  }
  const Tensor share = (1 - strength) * *o.noise_scale;
  run->latents =
      randn_tensor(tokens.shape(), {o.generator.empty() ? Generator() : o.generator[0]}, device, kFloat32) * share +
      tokens * (1 - share);
  run->strength = strength, run->clean = clean;
  told_by_tokens(*run);
  draw_audio(*run, o, true);
  make_schedule_of(*run, o);
  return run;
}

SF_PIPELINE(LTX2ConditionPipeline)
    .family("ltx2-condition")
    .task(Task::ImageToVideo)
    .optional("processor, prompt_enhancer, duration_head")
    .takes("transformer", "LTX2VideoTransformer3DModel")
    .takes("connectors", "LTX2TextConnectors")
    .takes("text_encoder", "Gemma3TextModel")
    .takes("vae", "AutoencoderKLLTX2Video")
    .takes("audio_vae", "AutoencoderKLLTX2Audio")
    .call(ltx2_arguments("conditions, "))
    .callbacks("latents, audio_latents, prompt_embeds, negative_prompt_embeds")
    .doc("Clips with sound that go through given pictures and clips, with LTX-2.");

}  // namespace sf::diffusion
