#include "scaffolding/diffusion/pipelines/stable_diffusion_3/stable_diffusion_3.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {
constexpr int64_t kMostTokens = 512;  // of max_sequence_length, as in diffusers
}

OptionFields StableDiffusion3Options::fields() {
  const char* const same = "for the second text encoder; absent or empty: the same as the first's";
  const char* const same_3 = "for T5; absent or empty: the same as the first text encoder's";
  return GenerationOptions::fields() +
         OptionFields{
             {"prompt_2", &prompt_2, same},
             {"prompt_3", &prompt_3, same_3},
             {"negative_prompt_2", &negative_prompt_2, same},
             {"negative_prompt_3", &negative_prompt_3, same_3},
             {"pooled_prompt_embeds", &pooled_prompt_embeds, "[prompts, features], with prompt_embeds"},
             {"negative_pooled_prompt_embeds", &negative_pooled_prompt_embeds,
              "[prompts, features], with negative_prompt_embeds"},
             {"max_sequence_length", &max_sequence_length, "tokens that T5 reads, at most 512"},
             {"mu", &mu, "how far the schedule is shifted; absent: by the picture's size, with use_dynamic_shifting"},
         };
}

void StableDiffusion3Base::check_sd3(const StableDiffusion3Options& o) const {
  check_call(o);
  const int64_t n = prompts(o);
  for (auto [what, list] : {std::pair{"prompt_2", &o.prompt_2},
                            {"prompt_3", &o.prompt_3},
                            {"negative_prompt_2", &o.negative_prompt_2},
                            {"negative_prompt_3", &o.negative_prompt_3}}) {
    const bool is_negative = std::string_view(what).starts_with("negative");
    SF_CHECK(list->empty() || !o.prompt_embeds || is_negative, name(), ": takes ", what,
             " with prompt, not with prompt_embeds");
    SF_CHECK(list->empty() || !o.negative_prompt_embeds || !is_negative, name(), ": takes ", what,
             " or negative_prompt_embeds, not both");
    check_texts(name(), n, {{what, list}});
  }
  check_pooled(name(), n,
               {{"prompt_embeds", &o.prompt_embeds, &o.pooled_prompt_embeds},
                {"negative_prompt_embeds", &o.negative_prompt_embeds, &o.negative_pooled_prompt_embeds}});
  SF_CHECK(o.max_sequence_length > 0 && o.max_sequence_length <= kMostTokens, name(),
           ": max_sequence_length must be from 1 to ", kMostTokens, ", got ", o.max_sequence_length);
  SF_CHECK(!o.mu || std::isfinite(*o.mu), name(), ": mu must be finite, got ", o.mu.value_or(0));
}

int64_t StableDiffusion3Base::side_multiple() const {
  return vae_scale_factor() * transformer->config_int("patch_size", 2);
}

void StableDiffusion3Base::check_patches(int64_t height, int64_t width) const {
  const int64_t side = side_multiple();
  SF_CHECK(height % side == 0 && width % side == 0, name(), ": height and width must be divisible by ", side, ", got ",
           height, " and ", width);
}

// ---- prompts

// One text for each sample, for each of the three encoders.
struct StableDiffusion3Base::Texts {
  std::vector<std::string> of[3];

  Texts(const std::vector<std::string>& first, const std::vector<std::string>& second,
        const std::vector<std::string>& third, int64_t n)
      : of{first, second.empty() ? first : second, third.empty() ? first : third} {
    for (auto& list : of)
      if (list.size() == 1) list.resize(size_t(n), list[0]);
  }
  void append(const Texts& more) {
    for (size_t i = 0; i < 3; ++i) of[i].insert(of[i].end(), more.of[i].begin(), more.of[i].end());
  }
};

// CLIP's layers side by side, with zeros as far as T5 is wide, and T5's tokens behind them.
TextEmbeds StableDiffusion3Base::embeds_of(const Texts& texts, int64_t clip_skip, int64_t max_sequence_length) const {
  TextEmbeds out;
  auto lose = [&](const TextEmbeds& e) {
    for (auto& lost : e.truncated)
      if (std::find(out.truncated.begin(), out.truncated.end(), lost) == out.truncated.end())
        out.truncated.push_back(lost);
  };
  const TextOptions of_clip{.layer = {.from_end = clip_skip + 1, .normalized = false}};
  const TextEmbeds first = embed_prompts(*tokenizer, *text_encoder, texts.of[0], of_clip),
                   second = embed_prompts(*tokenizer_2, *text_encoder_2, texts.of[1], of_clip);
  SF_CHECK(
      first.pooled && second.pooled, name(),
      ": text_encoder and text_encoder_2 must be CLIPTextModelWithProjection, whose text_embeds the denoiser takes");
  lose(first), lose(second);
  const Device device = transformer->device();
  const DType dtype = text_encoder->dtype();
  auto there = [&](const Tensor& t) { return t.to(dtype).to(device); };
  const Tensor clip = cat({there(first.embeds), there(second.embeds)}, -1);
  Tensor t5;
  if (text_encoder_3) {
    const TextEmbeds third = embed_prompts(*tokenizer_3, *text_encoder_3, texts.of[2], {.length = max_sequence_length});
    lose(third);
    t5 = there(third.embeds);
  } else {
    t5 =
        zeros({clip.size(0), max_sequence_length, transformer->config_int("joint_attention_dim", 4096)}, dtype, device);
  }
  SF_CHECK(clip.size(2) <= t5.size(2), name(), ": text_encoder and text_encoder_2 give ", clip.size(2),
           " features of a token, more than the denoiser's ", t5.size(2));
  out.embeds = cat({pad(clip, {0, t5.size(2) - clip.size(2)}), t5}, 1);
  out.pooled = cat({there(first.pooled), there(second.pooled)}, -1);
  return out;
}

StableDiffusion3Embeds StableDiffusion3Base::encode_prompt(const StableDiffusion3Options& o) const {
  const int64_t n = prompts(o), clip_skip = o.clip_skip.value_or(0);
  const bool guided = guidance(o).on(), reads = !o.prompt_embeds, reads_negative = guided && !o.negative_prompt_embeds;
  SF_CHECK(
      !(reads || reads_negative) || (text_encoder && tokenizer && text_encoder_2 && tokenizer_2), name(),
      ": has no text_encoder, tokenizer, text_encoder_2 and tokenizer_2 to encode prompts with; pass prompt_embeds "
      "and pooled_prompt_embeds");
  SF_CHECK(!(reads || reads_negative) || !text_encoder_3 || tokenizer_3, name(),
           ": has a text_encoder_3 and no tokenizer_3; pass tokenizer_3, or text_encoder_3=None to go without T5");
  const Texts negative(o.negative_prompt.empty() ? std::vector<std::string>{""} : o.negative_prompt,
                       o.negative_prompt_2, o.negative_prompt_3, n);
  StableDiffusion3Embeds out{.prompt_embeds = o.prompt_embeds,
                             .negative_prompt_embeds = guided ? o.negative_prompt_embeds : Tensor(),
                             .pooled_prompt_embeds = o.pooled_prompt_embeds,
                             .negative_pooled_prompt_embeds = guided ? o.negative_pooled_prompt_embeds : Tensor()};
  // In one batch where both take the same way, so that the encoders' weights are read once. diffusers leaves out layers
  // of the positive prompt only.
  const bool together = reads && reads_negative && clip_skip == 0;
  if (reads) {
    Texts texts(o.prompt, o.prompt_2, o.prompt_3, n);
    if (together) texts.append(negative);
    const TextEmbeds e = embeds_of(texts, clip_skip, o.max_sequence_length);
    out.prompt_embeds = e.embeds.narrow(0, 0, n), out.pooled_prompt_embeds = e.pooled.narrow(0, 0, n);
    if (together)
      out.negative_prompt_embeds = e.embeds.narrow(0, n, n),
      out.negative_pooled_prompt_embeds = e.pooled.narrow(0, n, n);
    out.truncated = e.truncated;
  }
  if (reads_negative && !together) {
    const TextEmbeds e = embeds_of(negative, 0, o.max_sequence_length);
    out.negative_prompt_embeds = e.embeds, out.negative_pooled_prompt_embeds = e.pooled;
  }
  if (guided)
    SF_CHECK(out.negative_prompt_embeds.shape() == out.prompt_embeds.shape(), name(),
             ": prompt_embeds and negative_prompt_embeds must have one shape, got ", out.prompt_embeds.shape(), " and ",
             out.negative_prompt_embeds.shape());
  const DType dtype = text_encoder ? text_encoder->dtype() : transformer->dtype();
  for (Tensor* t :
       {&out.prompt_embeds, &out.negative_prompt_embeds, &out.pooled_prompt_embeds, &out.negative_pooled_prompt_embeds})
    if (*t) *t = repeated_samples(t->to(dtype).to(transformer->device()), o.num_images_per_prompt);
  return out;
}

std::vector<std::pair<std::string, Tensor>> StableDiffusion3Base::prompt_tensors(
    const StableDiffusion3Options& o) const {
  auto e = encode_prompt(o);
  return {{"prompt_embeds", e.prompt_embeds},
          {"negative_prompt_embeds", e.negative_prompt_embeds},
          {"pooled_prompt_embeds", e.pooled_prompt_embeds},
          {"negative_pooled_prompt_embeds", e.negative_pooled_prompt_embeds}};
}

// ---- runs

void StableDiffusion3Base::prepare_run(Run& run, const StableDiffusion3Options& o, Size size) const {
  run.guidance = guidance(o);
  const StableDiffusion3Embeds embeds = encode_prompt(o);
  auto both = [&](const Tensor& negative, const Tensor& positive) {
    return run.guidance.on() ? cat({negative, positive}, 0) : positive;
  };
  run.told = {{"", {}, ArgumentRole::Sample},
              {"encoder_hidden_states", both(embeds.negative_prompt_embeds, embeds.prompt_embeds), ArgumentRole::Text},
              {"pooled_projections", both(embeds.negative_pooled_prompt_embeds, embeds.pooled_prompt_embeds),
               ArgumentRole::PerSample},
              {"timestep", {}, ArgumentRole::Timestep}};
  run.tensors = {{"latents", &run.latents},
                 {"prompt_embeds", &run.told.at("encoder_hidden_states")},
                 {"pooled_prompt_embeds", &run.told.at("pooled_projections")}};
  run.truncated = embeds.truncated;
  run.scheduler = o.scheduler ? o.scheduler : scheduler;
  const int64_t side = side_multiple();
  run.schedule =
      schedule(*run.scheduler, o, o.mu.value_or(flow_shift(*run.scheduler, size.height / side * (size.width / side))));
  run.step_options = step_options(*run.scheduler, o.eta, o.generator);
}

}  // namespace sf::diffusion
