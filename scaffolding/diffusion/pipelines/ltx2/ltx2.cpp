#include "scaffolding/diffusion/pipelines/ltx2/ltx2.h"

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/stacked_states.h"
#include "scaffolding/io/video/compressed_still.h"
#include "scaffolding/models/transformers/ltx2_attention.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

LTX2Options::LTX2Options() {
  height = 512, width = 768;
  num_inference_steps = 30;
  guidance_scale = 3, guidance_rescale = 0.7;
}

OptionFields LTX2Options::fields() {
  return OptionFields{
             {"prompt", &prompt, "what the clips show and sound like: a text or a list of them"},
             {"negative_prompt", &negative_prompt, "what they should not: one for all, or one for each prompt"},
             {"height", &height, "pixels, a multiple of 32 with the published autoencoder"},
             {"width", &width, "pixels, likewise"},
             {"num_frames", &num_frames, "of a clip, 8 k + 1 where latents have 8 in one"},
             {"frame_rate", &frame_rate, "frames a second: so long is the sound"},
             {"motion_speed", &motion_speed, "below 1 things move slower than in life, above 1 faster"},
             {"sigmas", &sigmas, "noise levels of one's own, where the scheduler takes them"},
             {"timesteps", &timesteps, "timesteps of one's own, where the scheduler takes them"},
             {"guidance_scale", &guidance_scale, "how closely the clip follows the prompt; on above 1"},
             {"stg_scale", &stg_scale,
              "how far to go from what is made where some blocks do not attend; above 0 it takes another call a step"},
             {"modality_scale", &modality_scale,
              "how far to go from a clip that does not know its sound; above 1 it takes another call a step"},
             {"guidance_rescale", &guidance_rescale, "against clips that guidance has overexposed: 0 to 1"},
             {"audio_guidance_scale", &audio_guidance_scale, "of the sound; None: as of the clip"},
             {"audio_stg_scale", &audio_stg_scale, "of the sound; None: as of the clip"},
             {"audio_modality_scale", &audio_modality_scale, "of the sound; None: as of the clip"},
             {"audio_guidance_rescale", &audio_guidance_rescale, "of the sound; None: as of the clip"},
             {"spatio_temporal_guidance_blocks", &spatio_temporal_guidance_blocks,
              "numbers of the blocks that do not attend for stg_scale: 29 is advised for LTX-2.0, 28 for 2.3"},
             {"noise_scale", &noise_scale, "how much noise there is in latents that are given: 0 to 1"},
             {"num_videos_per_prompt", &num_images_per_prompt, "clips of each prompt"},
             {"audio_latents", &audio_latents, "[B, C, length, mel] of the sound, instead of drawing"},
             {"prompt_embeds", &prompt_embeds, "[prompts, tokens, features of all layers] instead of prompts"},
             {"prompt_attention_mask", &prompt_attention_mask, "[prompts, tokens]: 0 for padding, with prompt_embeds"},
             {"negative_prompt_embeds", &negative_prompt_embeds, "likewise, instead of negative prompts"},
             {"negative_prompt_attention_mask", &negative_prompt_attention_mask,
              "[prompts, tokens]: 0 for padding, with negative_prompt_embeds"},
             {"decode_timestep", &decode_timestep,
              "of an autoencoder that is told of noise: how much there is, 0 to 1; one for all, or one for each clip"},
             {"decode_noise_scale", &decode_noise_scale, "likewise: how much noise is drawn; None: decode_timestep"},
             {"use_cross_timestep", &use_cross_timestep, "False is LTX-2.0's way"},
             {"max_sequence_length", &max_sequence_length, "tokens of a prompt, padding included"},
             {"cache_prompt", &cache_prompt, "what the denoiser makes of the text is computed once a run"},
         } +
         fields_of_every_call(*this);
}

LTX2Scales LTX2Options::video_scales() const { return {guidance_scale, stg_scale, modality_scale, guidance_rescale}; }

LTX2Scales LTX2Options::audio_scales() const {
  auto either = [](const std::optional<double>& own, double otherwise) { return own.value_or(0) ? *own : otherwise; };
  return {either(audio_guidance_scale, guidance_scale), either(audio_stg_scale, stg_scale),
          either(audio_modality_scale, modality_scale), either(audio_guidance_rescale, guidance_rescale)};
}

// ---- prompts

// Padded on the left, as Gemma was trained. All layers' states: [prompts, tokens, features * layers], and the mask.
std::pair<Tensor, Tensor> LTX2Base::read(const std::vector<std::string>& prompts, int64_t length,
                                         std::vector<std::string>* lost) const {
  const auto& config = tokenizer->config();
  const auto& pad = config.pad_token ? config.pad_token : config.eos_token;
  const std::optional<int64_t> id = pad ? tokenizer->token_to_id(pad->content) : std::nullopt;
  SF_CHECK(id, name(), ": the tokenizer has no token to pad with");
  const tokenizers::EncodeOptions how{
      .truncation = tokenizers::Truncation{.max_length = length, .side = config.truncation_side},
      .padding = tokenizers::Padding{.length = length, .side = tokenizers::Side::Left, .id = *id}};
  std::vector<int64_t> ids, seen;
  for (const std::string& prompt : prompts) {
    const size_t begin = prompt.find_first_not_of(" \t\n\r\f\v"), end = prompt.find_last_not_of(" \t\n\r\f\v");
    const std::string text = begin == prompt.npos ? "" : prompt.substr(begin, end - begin + 1);
    const tokenizers::Encoding encoded = tokenizer->encode(text, how);
    ids.insert(ids.end(), encoded.ids.begin(), encoded.ids.end());
    seen.insert(seen.end(), encoded.attention_mask.begin(), encoded.attention_mask.end());
    if (!lost) continue;
    const auto whole = tokenizer->encode(text).ids;
    if (int64_t(whole.size()) > length) lost->push_back(tokenizer->decode({whole.begin() + length, whole.end()}, true));
  }
  const Shape shape{int64_t(prompts.size()), length};
  const Tensor mask = tensor(seen, shape, kInt64);
  const Device device = text_encoder->device();
  return {stacked_hidden_states(*text_encoder, tensor(ids, shape, kInt64).to(device), mask.to(device)), mask};
}

LTX2Embeds LTX2Base::encode_prompt(const LTX2Options& o) const {
  const bool guided = o.video_scales().guidance > 1 || o.audio_scales().guidance > 1;
  SF_CHECK(o.max_sequence_length > 0, name(), ": max_sequence_length must be positive, got ", o.max_sequence_length);
  struct Given {
    const char* name;
    const Tensor &embeds, &mask;
  };
  for (auto& g : {Given{"prompt", o.prompt_embeds, o.prompt_attention_mask},
                  Given{"negative_prompt", o.negative_prompt_embeds, o.negative_prompt_attention_mask}}) {
    SF_CHECK(bool(g.embeds) == bool(g.mask), name(), ": ", g.name, "_embeds and ", g.name,
             "_attention_mask must be given together");
    if (g.mask) check_shape(name(), "the embeds' attention mask", g.mask, {g.embeds.size(0), g.embeds.size(1)});
  }
  const bool reads = !o.prompt_embeds || (guided && !o.negative_prompt_embeds);
  SF_CHECK(!reads || (text_encoder && tokenizer), name(),
           ": has no text_encoder and tokenizer to encode prompts with; pass prompt_embeds and negative_prompt_embeds");
  LTX2Embeds out{
      o.prompt_embeds, o.negative_prompt_embeds, o.prompt_attention_mask, o.negative_prompt_attention_mask, {}};
  if (!out.prompt_embeds)
    std::tie(out.prompt_embeds, out.prompt_attention_mask) = read(o.prompt, o.max_sequence_length, &out.truncated);
  if (!guided) {
    out.negative_prompt_embeds = out.negative_prompt_attention_mask = Tensor();
    return out;
  }
  if (!out.negative_prompt_embeds)
    std::tie(out.negative_prompt_embeds, out.negative_prompt_attention_mask) =
        read(o.negative_prompt.empty() ? std::vector<std::string>{""} : o.negative_prompt,
             o.prompt_embeds ? out.prompt_embeds.size(1) : o.max_sequence_length, nullptr);
  const int64_t n = out.prompt_embeds.size(0);
  for (Tensor* t : {&out.negative_prompt_embeds, &out.negative_prompt_attention_mask})
    *t = fill_batch(name(), "negative prompts", *t, n);
  SF_CHECK(out.negative_prompt_embeds.shape() == out.prompt_embeds.shape(), name(),
           ": prompt_embeds and negative_prompt_embeds must have one shape, got ", out.prompt_embeds.shape(), " and ",
           out.negative_prompt_embeds.shape());
  return out;
}

std::vector<std::pair<std::string, Tensor>> LTX2Base::prompt_tensors(const LTX2Options& o) const {
  const LTX2Embeds e = encode_prompt(o);
  auto each = [&](const Tensor& t) { return t ? repeated_samples(t, o.num_images_per_prompt) : t; };
  return {{"prompt_embeds", each(e.prompt_embeds)},
          {"prompt_attention_mask", each(e.prompt_attention_mask)},
          {"negative_prompt_embeds", each(e.negative_prompt_embeds)},
          {"negative_prompt_attention_mask", each(e.negative_prompt_attention_mask)}};
}

// ---- sizes

DiffusionPipeline::Size LTX2Base::size(std::optional<int64_t> height, std::optional<int64_t> width) const {
  const LTX2Options usual;
  return {height.value_or(*usual.height), width.value_or(*usual.width)};
}

int64_t LTX2Base::side_multiple() const {
  return vae_scale_factor() * (transformer ? transformer->config_int("patch_size", 1) : 1);
}

Tensor LTX2Base::told_picture(const Tensor& picture, const AnyOptions& options) const {
  constexpr int64_t kOfTheTraining = 33;
  if (!options.find("image_crf")) return picture;
  const int64_t crf = options.at<std::optional<int64_t>>("image_crf").value_or(kOfTheTraining);
  return io::compressed_still(picture.permute({1, 2, 0}).contiguous(), crf).permute({2, 0, 1});
}

LTX2Grid LTX2Base::grid_of(const LTX2Options& o) const {
  const auto [height, width] = size(o.height, o.width);
  const int64_t scale = vae_scale_factor(), ratio = vae ? vae->frames_per_latent() : 8,
                frames = o.num_frames.value_or(121);
  SF_CHECK(frames > 0 && (frames - 1) % ratio == 0, name(), ": num_frames must be ", ratio, " k + 1, got ", frames,
           "; the closest are ", std::max<int64_t>(1, (frames - 1) / ratio * ratio + 1), " and ",
           (std::max<int64_t>(frames, 1) - 1) / ratio * ratio + ratio + 1);
  SF_CHECK(o.frame_rate > 0 && std::isfinite(o.frame_rate), name(), ": frame_rate must be positive, got ",
           o.frame_rate);
  SF_CHECK(o.motion_speed > 0 && std::isfinite(o.motion_speed), name(), ": motion_speed must be positive, got ",
           o.motion_speed);
  LTX2Grid g{.batch = prompts(o) * o.num_images_per_prompt,
             .channels = transformer->config_int("in_channels", 128),
             .frames = (frames - 1) / ratio + 1,
             .height = height / scale,
             .width = width / scale,
             .patch = transformer->config_int("patch_size", 1),
             .patch_t = transformer->config_int("patch_size_t", 1)};
  if (o.latents && o.latents.ndim() == 5)
    g.frames = o.latents.size(2), g.height = o.latents.size(3), g.width = o.latents.size(4);
  SF_CHECK(g.frames % g.patch_t == 0 && g.height % g.patch == 0 && g.width % g.patch == 0, name(),
           ": latents must be divisible by the transformer's patches, [", g.patch_t, ", ", g.patch, ", ", g.patch,
           "], got ", g.latents());
  auto of_sound = [&](const char* field, int64_t otherwise) {
    return audio_vae ? audio_vae->config_int(field, otherwise) : otherwise;
  };
  // spectra a second, of which a latent has several
  const double rate = double(of_sound("sample_rate", 16000)) / double(of_sound("mel_hop_length", 160)) /
                      double(audio_vae ? audio_vae->frames_per_latent() : 4);
  g.audio_channels = of_sound("latent_channels", 8);
  g.mel = of_sound("mel_bins", 64) / (audio_vae ? audio_vae->scale_factor() : 4);
  g.audio_frames = std::max<int64_t>(1, std::llrint(double(frames) / o.frame_rate * rate));  // half to even
  if (o.audio_latents) g.audio_frames = o.audio_latents.size(o.audio_latents.ndim() == 4 ? 2 : 1);
  return g;
}

// ---- before the first step

std::unique_ptr<LTX2Run> LTX2Base::prepare_run(const LTX2Options& o) const {
  check_call(o);
  SF_CHECK(connectors, name(), ": has no connectors");
  for (auto [what, v] : {std::pair{"stg_scale", o.stg_scale},
                         {"modality_scale", o.modality_scale},
                         {"audio_guidance_scale", o.audio_guidance_scale.value_or(0)},
                         {"audio_stg_scale", o.audio_stg_scale.value_or(0)},
                         {"audio_modality_scale", o.audio_modality_scale.value_or(0)},
                         {"audio_guidance_rescale", o.audio_guidance_rescale.value_or(0)},
                         {"noise_scale", o.noise_scale.value_or(0)}})
    SF_CHECK(std::isfinite(v), name(), ": ", what, " must be finite, got ", v);
  const double noise = o.noise_scale.value_or(0);
  SF_CHECK(noise >= 0 && noise <= 1, name(), ": noise_scale must be in [0, 1], got ", noise);
  SF_CHECK(!o.latents || o.latents.ndim() == 5 || o.latents.ndim() == 3, name(),
           ": latents must be [B, C, frames, h, w], or tokens [B, N, C], got ", o.latents.shape());
  SF_CHECK(!o.audio_latents || o.audio_latents.ndim() == 4 || o.audio_latents.ndim() == 3, name(),
           ": audio_latents must be [B, C, length, mel], or tokens [B, N, C], got ", o.audio_latents.shape());

  auto run = std::make_unique<LTX2Run>();
  run->grid = grid_of(o);
  run->video = o.video_scales(), run->audio = o.audio_scales();
  run->guidance = guidance(o);
  run->guidance.wide = true;
  run->guidance.varies = run->audio.guidance > 1;
  if (run->video.stg > 0 || run->audio.stg > 0) {
    SF_CHECK(
        o.spatio_temporal_guidance_blocks && !o.spatio_temporal_guidance_blocks->empty(), name(),
        ": stg_scale above 0 needs spatio_temporal_guidance_blocks, numbers of the transformer's blocks; stg_scale=0 "
        "and audio_stg_scale=0 leave this guidance out");
    const int64_t blocks = transformer->config_int("num_layers", 48);
    for (double b : *o.spatio_temporal_guidance_blocks)
      SF_CHECK(b >= 0 && b == std::floor(b), name(),
               ": spatio_temporal_guidance_blocks must be numbers of blocks, got ", b);
    // As in diffusers, a block that is not there changes nothing: a small model has none of the default's number.
    std::vector<double> there = *o.spatio_temporal_guidance_blocks;
    std::erase_if(there, [&](double b) { return b >= double(blocks); });
    if (!there.empty()) run->stg_blocks = tensor(there, {int64_t(there.size())}, kFloat32);
  }
  const std::vector<double> noises = o.decode_noise_scale.value_or(o.decode_timestep);
  for (auto& [what, values] : {std::pair{"decode_timestep", &o.decode_timestep}, {"decode_noise_scale", &noises}})
    SF_CHECK(values->size() == 1 || int64_t(values->size()) == run->grid.batch, name(), ": ", what,
             " must be one for all, or one for each of ", run->grid.batch, " clips, got ", values->size());
  if (vae && vae->config_bool("timestep_conditioning", false)) {
    auto each = [&](const std::vector<double>& values) {
      return tensor(values, {int64_t(values.size())}, kFloat32).expand({run->grid.batch}).contiguous();
    };
    run->decode_timestep = each(o.decode_timestep), run->decode_noise = each(noises);
  }
  run->vae = vae, run->audio_vae = audio_vae, run->vocoder = vocoder;
  run->narrow = transformer->dtype();

  LTX2Embeds e = encode_prompt(o);
  run->truncated = std::move(e.truncated);
  auto each = [&](const Tensor& t) { return t ? repeated_samples(t, o.num_images_per_prompt) : t; };
  Tensor embeds = each(e.prompt_embeds), mask = each(e.prompt_attention_mask);
  if (o.callback_on_step_end) run->negative_prompt_embeds = each(e.negative_prompt_embeds);
  if (run->guidance.on()) {
    embeds = cat({each(e.negative_prompt_embeds), embeds}, 0);
    mask = cat({each(e.negative_prompt_attention_mask), mask}, 0);
  }
  if (o.callback_on_step_end) run->prompt_embeds = embeds;
  const Tensors text =
      connectors->call({{"", embeds.to(connectors->device()).to(connectors->dtype()), ArgumentRole::PerSample},
                        {"attention_mask", mask.to(connectors->device()), ArgumentRole::PerSample}});
  SF_CHECK_AS(RuntimeError, text.size() == 3, name(), ": the connectors must give two texts and a mask, got ",
              text.size(), " tensors");
  const Device device = transformer->device();
  auto ready = [&](const Tensor& t) { return t.to(device).to(run->narrow); };
  const bool all_seen = eq(text[2], wrapped(0)).sum().item<double>() == 0;
  const Tensor seen = all_seen ? Tensor() : text[2].to(device);

  const LTX2Grid& g = run->grid;
  const auto scales = transformer->config_list("vae_scale_factors");
  const models::LTX2VideoGrid places{
      .patch_size = g.patch,
      .patch_size_t = g.patch_t,
      .scale_factors = scales ? std::vector<int64_t>(scales->begin(), scales->end()) : std::vector<int64_t>{8, 32, 32},
      .causal_offset = transformer->config_int("causal_offset", 1)};
  const models::LTX2AudioGrid times{.patch_size_t = transformer->config_int("audio_patch_size_t", 1),
                                    .scale_factor = transformer->config_int("audio_scale_factor", 4),
                                    .sampling_rate = transformer->config_int("audio_sampling_rate", 16000),
                                    .hop_length = transformer->config_int("audio_hop_length", 160),
                                    .causal_offset = transformer->config_int("causal_offset", 1)};
  run->told = {
      {"", {}, ArgumentRole::Sample},
      {"audio_hidden_states", {}, ArgumentRole::PerSample},
      {"encoder_hidden_states", ready(text[0]), ArgumentRole::Text},
      {"audio_encoder_hidden_states", ready(text[1]), ArgumentRole::Text},
      {"timestep", {}, ArgumentRole::Timestep},
      {"audio_timestep", {}, ArgumentRole::Timestep},
      {"sigma", {}, ArgumentRole::Timestep},
      {"encoder_attention_mask", seen, ArgumentRole::PerSample},
      {"audio_encoder_attention_mask", seen, ArgumentRole::PerSample},
      {"video_coords",
       places.prepare_video_coords(1, g.frames, g.height, g.width, device, o.frame_rate / o.motion_speed),
       ArgumentRole::Shared},
      {"audio_coords", times.prepare_audio_coords(1, g.audio_frames, device), ArgumentRole::Shared},
      {"use_cross_timestep", full({}, o.use_cross_timestep ? 1 : 0, kFloat32, Device()), ArgumentRole::Setting}};
  run->tensors = {{"latents", &run->latents},
                  {"audio_latents", &run->audio_latents},
                  {"prompt_embeds", &run->prompt_embeds},
                  {"negative_prompt_embeds", &run->negative_prompt_embeds}};
  return run;
}

Tensor LTX2Base::given_latents(const LTX2Run& run, const LTX2Options& o) const {
  const LTX2Grid& g = run.grid;
  const Device device = transformer->device();
  if (o.latents.ndim() == 3) {
    const Shape shape{g.batch, g.tokens(), g.channels * g.patch * g.patch * g.patch_t};
    SF_CHECK(o.latents.shape() == shape, name(), ": latents must be tokens ", shape, " for this size, got ",
             o.latents.shape());
    return o.latents.to(device).to(kFloat32);
  }
  SF_CHECK(o.latents.shape() == g.latents(), name(), ": latents must be ", g.latents(), ", got ", o.latents.shape());
  const Tensor wide = o.latents.to(device).to(kFloat32);
  return ltx2_tokens(g, vae ? vae->scaled(wide) : wide);
}

namespace {

Tensor with_noise(const Tensor& latents, double share, const Generators& generator) {
  const Tensor noise = randn_tensor(latents.shape(), generator, latents.device(), kFloat32);
  return share * noise + (1 - share) * latents;
}

}  // namespace

void LTX2Base::begin_with_noise(LTX2Run& run, const LTX2Options& o) const {
  const LTX2Grid& g = run.grid;
  if (o.latents) run.latents = with_noise(given_latents(run, o), o.noise_scale.value_or(0), o.generator);
  else run.latents = ltx2_tokens(g, randn_tensor(g.latents(), o.generator, transformer->device(), kFloat32));
  draw_audio(run, o);
  make_schedule_of(run, o);
}

Tensor LTX2Base::clean_latents(const Tensor& pixels) const {
  SF_CHECK(vae, name(), ": has no vae to encode pictures with");
  const Tensor latents = vae->encode_mode(pixels.to(vae->device()).to(vae->dtype()));
  return vae->scaled(latents.to(transformer->device()).to(kFloat32));
}

void LTX2Base::begin_with_picture(LTX2Run& run, const LTX2Options& o, const Tensor& image) const {
  const LTX2Grid& g = run.grid;
  const Device device = transformer->device();
  SF_CHECK_AS(NotSupported, g.patch_t == 1, name(), ": patches of several frames cannot begin with a picture");
  const Tensor first = lt(arange(0, g.tokens()), wrapped(g.tokens() / g.frames)).to(kFloat32).to(device);
  run.strength = first.reshape({1, g.tokens(), 1}).expand({g.batch, g.tokens(), 1}).contiguous();
  auto drawn = [&] { return ltx2_tokens(g, randn_tensor(g.latents(), o.generator, device, kFloat32)); };
  if (o.latents) {
    run.latents = given_latents(run, o);
    if (o.latents.ndim() == 5) {
      const Tensor share = o.noise_scale.value_or(0) * (1 - run.strength);
      run.latents = share * drawn() + (1 - share) * run.latents;
    }
  } else {
    check_defined(name(), "image", image);
    const int64_t scale = vae_scale_factor(), n = image.size(0);
    SF_CHECK(image.ndim() == 4 && image.size(1) == 3 && image.size(2) == g.height * scale &&
                 image.size(3) == g.width * scale,
             name(), ": image must be [n, 3, ", g.height * scale, ", ", g.width * scale,
             "], as large as the clip, got ", image.shape());
    SF_CHECK(g.batch % n == 0, name(), ": needs one picture, or one for each of ", g.batch, " clips, got ", n);
    Tensors parts;
    for (int64_t i = 0; i < n; ++i) parts.push_back(clean_latents(image.narrow(0, i, 1).unsqueeze(2)));
    const Tensor seen = repeated_samples(cat(parts, 0), g.batch / n).expand(g.latents());
    run.latents = ltx2_tokens(g, seen) * run.strength + drawn() * (1 - run.strength);
  }
  run.clean = run.latents;
  told_by_tokens(run);
  draw_audio(run, o);
  make_schedule_of(run, o);
}

void LTX2Base::told_by_tokens(LTX2Run& run) {
  for (auto& a : run.told)
    if (a.name == "timestep") a.role = ArgumentRole::PerSample;
}

void LTX2Base::draw_audio(LTX2Run& run, const LTX2Options& o, bool as_tokens) const {
  const LTX2Grid& g = run.grid;
  const Device device = transformer->device();
  const Shape shape{g.batch, g.audio_frames, g.audio_channels * g.mel};
  if (!o.audio_latents) {
    const Tensor noise = randn_tensor(as_tokens ? shape : g.audio_latents(), o.generator, device, kFloat32);
    run.audio_latents = as_tokens ? noise : ltx2_audio_tokens(noise);
    return;
  }
  Tensor tokens = o.audio_latents.to(device).to(kFloat32);
  if (tokens.ndim() == 4) tokens = ltx2_audio_tokens(tokens);
  SF_CHECK(tokens.shape() == shape, name(), ": audio_latents must be ", g.audio_latents(), ", or tokens ", shape,
           ", got ", o.audio_latents.shape());
  if (audio_vae)
    if (const auto range = audio_vae->latent_range(); range.mean)
      tokens = (tokens - range.mean.to(device)) / range.std.to(device);
  run.audio_latents = with_noise(tokens, o.noise_scale.value_or(0), o.generator);
}

void LTX2Base::make_schedule_of(LTX2Run& run, const LTX2Options& o) const {
  run.scheduler = o.scheduler ? o.scheduler : scheduler;
  ScheduleOptions options{.num_inference_steps = o.num_inference_steps,
                          .timesteps = o.timesteps,
                          .sigmas = o.sigmas,
                          .device = transformer->device(),
                          .mu = flow_shift(*run.scheduler, run.latents.size(1))};
  if (!options.sigmas && !options.timesteps) {
    SF_CHECK(o.num_inference_steps > 0, name(), ": num_inference_steps must be positive, got ", o.num_inference_steps);
    const auto n = double(o.num_inference_steps);
    std::vector<double> levels;  // from 1 down to 1 / n
    for (double i = 0; i < n; ++i) levels.push_back(n == 1 ? 1.0 : 1.0 + i * ((1 / n - 1.0) / (n - 1)));
    levels.back() = n == 1 ? 1.0 : 1 / n;
    options.sigmas = levels;
  }
  run.schedule = make_schedule(name(), *run.scheduler, options);
  run.scheduler->set_begin_index(0);
  run.step_options = step_options(*run.scheduler, 0, o.generator);
}

// ---- the call

std::string ltx2_arguments(std::string_view first, std::string_view before_output) {
  constexpr std::string_view kBefore =
      "prompt, negative_prompt, height, width, num_frames, min_seconds, max_seconds, frame_rate, "
      "motion_speed, num_inference_steps, sigmas, timesteps, guidance_scale, stg_scale, modality_scale, "
      "guidance_rescale, audio_guidance_scale, audio_stg_scale, audio_modality_scale, "
      "audio_guidance_rescale, spatio_temporal_guidance_blocks, noise_scale, num_videos_per_prompt, "
      "generator, latents, audio_latents, prompt_embeds, prompt_attention_mask, negative_prompt_embeds, "
      "negative_prompt_attention_mask, decode_timestep, decode_noise_scale, use_cross_timestep, "
      "system_prompt, enable_prompt_enhancement, prompt_max_new_tokens, prompt_enhancement_kwargs, "
      "prompt_enhancement_seed, ";
  constexpr std::string_view kAfter =
      "output_type, return_dict, attention_kwargs, callback_on_step_end, "
      "callback_on_step_end_tensor_inputs, max_sequence_length, guidance_mode";
  return std::string(first) + std::string(kBefore) + std::string(before_output) + std::string(kAfter);
}

}  // namespace sf::diffusion
