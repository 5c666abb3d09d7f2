#include "scaffolding/diffusion/pipelines/z_image/z_image.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/textual_inversion.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/tokenizers/qwen2_tokenizer.h"

namespace sf::diffusion {

namespace {

constexpr int64_t kSide = 1024;  // pixels, where a call says nothing
constexpr int64_t kPatch = 2;    // latents on a side of a patch
constexpr double kTrainingSteps = 1000;
constexpr TextLayer kLayer{.from_end = 1, .normalized = false};

}  // namespace

ZImageOptions::ZImageOptions() { guidance_scale = 5; }

OptionFields ZImageOptions::fields() {
  return OptionFields{
             {"prompt", &prompt, "what the pictures show: a text or a list of them"},
             {"negative_prompt", &negative_prompt, "what they should not show: one for all, or one for each prompt"},
             {"height", &height,
              "pixels, a multiple of 16 with the published autoencoder; absent: 1024, or what the model has places "
              "for"},
             {"width", &width, "pixels, likewise"},
             {"sigmas", &sigmas, "noise levels of one's own, where the scheduler takes them"},
             {"guidance_scale", &guidance_scale, "how closely to follow the prompt; on above 0"},
             {"cfg_normalization", &cfg_normalization,
              "above 0: guidance makes a sample's prediction at most this many times as large"},
             {"cfg_truncation", &cfg_truncation, "how far the way to the picture is guided, 0 to 1"},
             {"num_images_per_prompt", &num_images_per_prompt, "pictures of each prompt"},
             {"prompt_embeds", &prompt_embeds, "[tokens, features] of each prompt, a list, instead of prompts"},
             {"negative_prompt_embeds", &negative_prompt_embeds,
              "[tokens, features] of each negative prompt, a list, instead of negative prompts"},
             {"prompt_attention_mask", &prompt_attention_mask,
              "[prompts, tokens]: 0 behind a prompt's tokens, where prompt_embeds are one tensor"},
             {"negative_prompt_attention_mask", &negative_prompt_attention_mask,
              "[prompts, tokens]: 0 behind a prompt's tokens, where negative_prompt_embeds are one tensor"},
             {"max_sequence_length", &max_sequence_length, "tokens of a prompt"},
             {"cache_prompt", &cache_prompt, "what the denoiser makes of the text is computed once a run"},
         } +
         fields_of_every_call(*this);
}

// ---- a run

// Where guidance ends, or a callback has turned it off, the negative halves go, for good: time runs one way.
void ZImageRun::prepare_step() {
  const double done = (kTrainingSteps - schedule.values[at()]) / kTrainingSteps;
  if (done > truncation) guidance.ended = true;
  if (guidance.on()) return;
  const int64_t batch = latents.size(0);
  for (auto& a : told)
    if (a.tensor && a.role != ArgumentRole::Sample && a.tensor.size(0) == 2 * batch)
      a.tensor = a.tensor.narrow(0, batch, batch);
}

// The model goes from noise to signal, schedulers the other way.
Tensor ZImageRun::as_predicted(const Tensor& output) const { return -output; }
void ZImageRun::advance(const Tensor& model_output) { Run::advance(as_predicted(model_output)); }

Tensor ZImageRun::told_times(const Tensor& timesteps) const {
  return (kTrainingSteps - timesteps.to(kFloat32)) / kTrainingSteps;
}

// ---- prompts

Tensor ZImageCaptions::mask() const {
  const int64_t longest = embeds.size(1);
  if (std::all_of(lengths.begin(), lengths.end(), [&](int64_t n) { return n == longest; })) return {};
  std::vector<int64_t> ones;
  for (int64_t n : lengths)
    for (int64_t i = 0; i < longest; ++i) ones.push_back(i < n);
  return tensor(ones, {int64_t(lengths.size()), longest}, kInt64);
}

namespace {

// embeds[n, M, features] with zeros up to `longest` tokens, or without what is behind it.
Tensor of_length(const Tensor& embeds, int64_t longest) {
  const int64_t n = embeds.size(1);
  return n >= longest ? embeds.narrow(1, 0, longest) : pad(embeds, {0, 0, 0, longest - n});
}

int64_t longest_of(const ZImageCaptions& c) { return *std::max_element(c.lengths.begin(), c.lengths.end()); }

ZImageCaptions given(const char* who, const char* name, const Tensor& embeds, const Tensor& mask) {
  ZImageCaptions out{.embeds = embeds, .lengths = {}, .truncated = {}};
  if (!mask) {
    out.lengths.assign(size_t(embeds.size(0)), embeds.size(1));
    return out;
  }
  check_shape(who, "the embeds' attention mask", mask, {embeds.size(0), embeds.size(1)});
  const std::vector<double> seen = ne(mask, wrapped(0)).to(kFloat32).to(Device()).to_vector();
  for (int64_t i = 0; i < embeds.size(0); ++i) {
    const auto row = seen.begin() + i * embeds.size(1), end = row + embeds.size(1);
    const auto behind = std::find(row, end, 0.0);
    SF_CHECK(behind != row && std::all_of(behind, end, [](double v) { return v == 0; }), who, ": the mask of ", name,
             " must be 1 for a prompt's tokens and 0 behind them");
    out.lengths.push_back(behind - row);
  }
  out.embeds = of_length(out.embeds, longest_of(out));
  return out;
}

// What did not fit of a prompt, without what stands behind every message.
std::string lost_of(const tokenizers::Tokenizer& tokenizer, const std::string& text, int64_t length) {
  const auto whole = tokenizer.encode(text).ids;
  if (int64_t(whole.size()) <= length) return {};
  const std::string rest = tokenizer.decode({whole.begin() + length, whole.end()});
  const size_t end = rest.rfind("<|im_end|>");
  return end == std::string::npos ? std::string() : rest.substr(0, end);
}

// Each sample n times, one after the other.
ZImageCaptions repeated(const ZImageCaptions& c, int64_t n) {
  ZImageCaptions out{.embeds = repeated_samples(c.embeds, n), .lengths = {}, .truncated = c.truncated};
  for (int64_t length : c.lengths) out.lengths.insert(out.lengths.end(), size_t(n), length);
  return out;
}

ZImageCaptions joined(const ZImageCaptions& a, const ZImageCaptions& b) {
  const int64_t longest = std::max(longest_of(a), longest_of(b));
  ZImageCaptions out{.embeds = cat({of_length(a.embeds, longest), of_length(b.embeds, longest)}, 0),
                     .lengths = a.lengths,
                     .truncated = b.truncated};
  out.lengths.insert(out.lengths.end(), b.lengths.begin(), b.lengths.end());
  return out;
}

}  // namespace

// Captions of several lengths, of calls that know no others.
DenoiserCall ZImageRun::joined(const std::vector<DenoiserCall>& calls) const {
  DenoiserCall all = calls.at(0);
  ZImageCaptions captions;
  Tensors parts;
  for (auto& call : calls) captions.lengths.push_back(call.of(ArgumentRole::Text).size(1));
  const int64_t longest = longest_of(captions);
  for (auto& call : calls) parts.push_back(of_length(call.of(ArgumentRole::Text), longest));
  captions.embeds = cat(parts, 0);
  const Tensor mask = captions.mask();
  all.of(ArgumentRole::Text) = captions.embeds;
  all.at("cap_mask") = mask ? mask.to(captions.embeds.device()) : mask;
  return all;
}

// The encoder's attention is causal: what is behind a prompt changes none of its tokens, so that prompts are filled up
// to the longest one and no further.
ZImageCaptions ZImageBase::read(std::vector<std::string> prompts, int64_t length) const {
  ZImageCaptions out;
  for (auto& prompt : prompts) prompt = tokenizers::user_turn(*tokenizer, with_all_vectors(*tokenizer, prompt));
  const tokenizers::EncodeOptions cut{
      .truncation = tokenizers::Truncation{.max_length = length, .side = tokenizer->config().truncation_side}};
  std::vector<std::vector<int64_t>> rows;
  for (auto& prompt : prompts) {
    rows.push_back(tokenizer->encode(prompt, cut).ids);
    out.lengths.push_back(int64_t(rows.back().size()));
    if (std::string lost = lost_of(*tokenizer, prompt, length); !lost.empty()) out.truncated.push_back(std::move(lost));
  }
  const int64_t longest = longest_of(out);
  std::vector<int64_t> ids, seen;
  for (auto& row : rows) {
    row.resize(size_t(longest), 0);
    ids.insert(ids.end(), row.begin(), row.end());
  }
  for (int64_t n : out.lengths)
    for (int64_t i = 0; i < longest; ++i) seen.push_back(i < n);
  const Shape shape{int64_t(rows.size()), longest};
  const bool of_one_length = std::all_of(seen.begin(), seen.end(), [](int64_t v) { return v == 1; });
  const Device device = text_encoder->device();
  const auto encoded = text_encoder->encode(tensor(ids, shape, kInt64).to(device),
                                            of_one_length ? Tensor() : tensor(seen, shape, kInt64).to(device));
  const auto n = int64_t(encoded.hidden_states.size());
  SF_CHECK(n >= 2, name(), ": the text encoder must give the states of its layers, got ", n);
  out.embeds = encoded.hidden_states[size_t(n - 1 - *kLayer.from_end)];
  return out;
}

std::pair<ZImageCaptions, ZImageCaptions> ZImageBase::encode_prompt(const ZImageOptions& o) const {
  const bool guided = guidance_of(o).on();
  SF_CHECK(o.max_sequence_length > 0, name(), ": max_sequence_length must be positive, got ", o.max_sequence_length);
  SF_CHECK(!o.prompt_attention_mask || o.prompt_embeds, name(), ": prompt_attention_mask goes with prompt_embeds");
  SF_CHECK(!o.negative_prompt_attention_mask || o.negative_prompt_embeds, name(),
           ": negative_prompt_attention_mask goes with negative_prompt_embeds");
  SF_CHECK(!guided || !o.prompt_embeds || o.negative_prompt_embeds || !o.negative_prompt.empty(), name(),
           ": prompt_embeds with guidance_scale above 0 need negative_prompt_embeds");
  const bool reads = !o.prompt_embeds || (guided && !o.negative_prompt_embeds);
  SF_CHECK(!reads || (text_encoder && tokenizer), name(),
           ": has no text_encoder and tokenizer to encode prompts with; pass prompt_embeds");
  auto placed = [&](ZImageCaptions c) {
    c.embeds = c.embeds.to(transformer->device()).to(transformer->dtype());
    return c;
  };
  const ZImageCaptions positive =
      placed(o.prompt_embeds ? given(name(), "prompt_embeds", o.prompt_embeds, o.prompt_attention_mask)
                             : read(o.prompt, o.max_sequence_length));
  if (!guided) return {positive, {}};
  ZImageCaptions negative = placed(
      o.negative_prompt_embeds
          ? given(name(), "negative_prompt_embeds", o.negative_prompt_embeds, o.negative_prompt_attention_mask)
          : read(o.negative_prompt.empty() ? std::vector<std::string>{""} : o.negative_prompt, o.max_sequence_length));
  const int64_t n = positive.embeds.size(0), has = negative.embeds.size(0);
  negative.embeds = fill_batch(name(), "negative prompts", negative.embeds, n);
  for (int64_t i = has; i < n; ++i) negative.lengths.push_back(negative.lengths[size_t(i % has)]);
  SF_CHECK(negative.embeds.size(0) == n, name(), ": needs as many negative prompts as prompts, got ", has, " and ", n);
  return {positive, negative};
}

std::vector<std::pair<std::string, Tensor>> ZImageBase::prompt_tensors(const ZImageOptions& o) const {
  const auto [positive, negative] = encode_prompt(o);
  return {{"prompt_embeds", positive.embeds},
          {"prompt_attention_mask", positive.mask()},
          {"negative_prompt_embeds", negative.embeds},
          {"negative_prompt_attention_mask", negative.embeds ? negative.mask() : Tensor()}};
}

// ---- before the first step

DiffusionPipeline::Size ZImageBase::size(std::optional<int64_t> height, std::optional<int64_t> width) const {
  const auto places = transformer->config_list("axes_lens");  // of frames, rows and columns of patches
  auto side = [&](size_t axis) {
    return places && places->size() == 3 ? std::min(kSide, int64_t((*places)[axis]) * kPatch * vae_scale_factor())
                                         : kSide;
  };
  return {height.value_or(side(1)), width.value_or(side(2))};
}

int64_t ZImageBase::side_multiple() const { return kPatch * vae_scale_factor(); }

Guidance ZImageBase::guidance_of(const ZImageOptions& o) const {
  return {.scale = o.guidance_scale,
          .mode = o.guidance_mode,
          .wide = true,
          .beyond = true,
          .most_norm = o.cfg_normalization};
}

Shape ZImageBase::latent_shape(const ZImageOptions& o, const Size& s) const {
  const int64_t scale = vae_scale_factor();
  return {prompts(o) * o.num_images_per_prompt, transformer->config_int("in_channels", 16), s.height / scale,
          s.width / scale};
}

// Levels from 1 down to 1 / n, in float32 as torch.linspace makes them; a scheduler with use_dynamic_shifting moves
// them up, the more the larger the picture is.
StepSchedule ZImageBase::schedule_of(Scheduler& steps, const ZImageOptions& o, int64_t patches) const {
  ScheduleOptions options{.num_inference_steps = o.num_inference_steps,
                          .timesteps = {},
                          .sigmas = o.sigmas,
                          .device = transformer->device(),
                          .mu = flow_shift(steps, patches)};
  if (!options.sigmas) {
    SF_CHECK(o.num_inference_steps > 0, name(), ": num_inference_steps must be positive, got ", o.num_inference_steps);
    options.sigmas =
        linspace(1.0, 1.0 / double(o.num_inference_steps), o.num_inference_steps, kFloat32, Device()).to_vector();
  }
  return make_schedule(name(), steps, options);
}

std::unique_ptr<ZImageRun> ZImageBase::prepare_run(const ZImageOptions& o, const Size& s) const {
  check_components();
  const int64_t side = side_multiple();
  for (auto [what, v] : {std::pair{"height", s.height}, {"width", s.width}})
    SF_CHECK(v > 0 && v % side == 0, name(), ": height and width must be divisible by ", side, ", got ", what, "=", v);
  GenerationOptions alike = o;
  alike.height = alike.width = {};  // which may be no multiples of 8 beside a small autoencoder
  if (o.prompt_embeds && o.negative_prompt_embeds)
    alike.negative_prompt_embeds = o.prompt_embeds;  // lengths may differ
  check_call(alike);
  SF_CHECK(std::isfinite(o.cfg_normalization), name(), ": cfg_normalization must be finite, got ", o.cfg_normalization);
  SF_CHECK(std::isfinite(o.cfg_truncation), name(), ": cfg_truncation must be finite, got ", o.cfg_truncation);

  auto run = std::make_unique<ZImageRun>();
  run->guidance = guidance_of(o);
  run->truncation = o.cfg_truncation;
  auto [positive, negative] = encode_prompt(o);
  run->truncated = positive.truncated;
  ZImageCaptions captions = repeated(positive, o.num_images_per_prompt);
  if (run->guidance.on()) captions = joined(repeated(negative, o.num_images_per_prompt), captions);
  run->scheduler = o.scheduler ? o.scheduler : scheduler;
  const Shape shape = latent_shape(o, s);
  run->schedule = schedule_of(*run->scheduler, o, (shape[2] / kPatch) * (shape[3] / kPatch));
  run->schedule.told = run->told_times(run->schedule.timesteps);
  run->scheduler->set_begin_index(0);
  run->step_options = step_options(*run->scheduler, o.eta, o.generator);
  const Tensor mask = captions.mask();
  run->told = {{"", {}, ArgumentRole::Sample},
               {"t", {}, ArgumentRole::Timestep},
               {"cap_feats", captions.embeds, ArgumentRole::Text},
               {"cap_mask", mask ? mask.to(transformer->device()) : mask, ArgumentRole::PerSample}};
  run->tensors = {{"latents", &run->latents}, {"prompt_embeds", &run->prompt_embeds()}};
  return run;
}

}  // namespace sf::diffusion
