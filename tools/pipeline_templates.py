"""The texts of the files that tools/new_model.py writes for a pipeline; words between @ are filled in there."""

PIPELINE_HEADER = """// @PIPELINE@: one sentence that says what it makes of what.
#pragma once
#include "scaffolding/diffusion/pipelines/text_to_image.h"

namespace sf::diffusion {

struct @OPTIONS@ : GenerationOptions {
@MEMBERS@  int64_t max_sequence_length = 77;  // tokens of a prompt
  OptionFields fields();
};

struct @PIPELINE@ : PipelineOf<@PIPELINE@, @OPTIONS@, TextPipeline> {
  static constexpr const char* kName = "@PIPELINE@";
  Ref<Autoencoder> vae;
  Ref<TextEncoder> text_encoder;
  Ref<const tokenizers::Tokenizer> tokenizer;
  Ref<Denoiser> @DENOISER@;
  Ref<Scheduler> scheduler;
  SF_COMPONENTS(vae, text_encoder, tokenizer, @DENOISER@, scheduler)

  // From the checks to the noise. ValueError for what contradicts itself or the components.
  std::unique_ptr<Run> prepare(const @OPTIONS@& options) const;

 private:
  // Embeds that were given, or of texts, as [B, tokens, features] of B = prompts * num_images_per_prompt samples.
  TextEmbeds embeds_of(const Tensor& given, const std::vector<std::string>& texts, int64_t tokens,
                       const @OPTIONS@& options) const;
};

}  // namespace sf::diffusion
"""
PIPELINE_SOURCE = """#include "scaffolding/diffusion/pipelines/@FAMILY@/@PIPELINE_FILE@.h"

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

OptionFields @OPTIONS@::fields() {
  return GenerationOptions::fields() + OptionFields{
@FIELDS@      {"max_sequence_length", &max_sequence_length, "tokens of a prompt"},
  };
}
@RUN_STRUCT@
TextEmbeds @PIPELINE@::embeds_of(const Tensor& given, const std::vector<std::string>& texts, int64_t tokens,
                                 const @OPTIONS@& o) const {
  SF_CHECK(given || (text_encoder && tokenizer), kName,
           ": has no text_encoder and tokenizer to encode prompts with; pass embeds");
  TextEmbeds out;
  out.embeds = given;
  if (!given) out = embed_prompts(*tokenizer, *text_encoder, texts, {.length = tokens});
  const DType dtype = text_encoder ? text_encoder->dtype() : @DENOISER@->dtype();
  out.embeds = fill_batch(kName, "negative prompts", out.embeds.to(dtype).to(@DENOISER@->device()), prompts(o));
  out.embeds = repeated_samples(out.embeds, o.num_images_per_prompt);
  return out;
}

std::unique_ptr<Run> @PIPELINE@::prepare(const @OPTIONS@& o) const {
  check_call(o);
  SF_CHECK(o.max_sequence_length > 0, kName, ": max_sequence_length must be positive, got ", o.max_sequence_length);
@CHECKS@  auto run = std::make_unique<@RUN@>();
  run->guidance = guidance(o);
  TextEmbeds words = embeds_of(o.prompt_embeds, o.prompt, o.max_sequence_length, o);
  Tensor text = words.embeds;
  run->truncated = words.truncated;
  if (run->guidance.on()) {  // the negative half first
    const auto negative = o.negative_prompt.empty() ? std::vector<std::string>{""} : o.negative_prompt;
    text = cat({embeds_of(o.negative_prompt_embeds, negative, text.size(1), o).embeds, text}, 0);
  }

  run->scheduler = o.scheduler ? o.scheduler : scheduler;
  run->schedule = schedule(*run->scheduler, o);
  run->step_options = step_options(*run->scheduler, o.eta, o.generator);
  const DType dtype = text.dtype();
  const int64_t batch = prompts(o) * o.num_images_per_prompt;
@LATENTS@  // The denoiser's arguments by the names of its forward; what guidance and the prompt's cache do with each.
  run->told = {{"", {}, ArgumentRole::Sample},
               {"timestep", {}, ArgumentRole::Timestep},
               {"encoder_hidden_states", text, ArgumentRole::Text}};
  run->tensors = {{"latents", &run->latents}, {"prompt_embeds", &run->told.of(ArgumentRole::Text)}};
  return run;
}

SF_PIPELINE(@PIPELINE@)
    .family("@FAMILY_NAME@")
    .task(Task::@TASK@)
    .takes("@DENOISER@", "@NAME@")
    .call(
        "prompt, @TAKES@negative_prompt, num_inference_steps, timesteps, sigmas, guidance_scale, "
        "num_images_per_prompt, eta, generator, prompt_embeds, negative_prompt_embeds, output_type, return_dict, "
        "callback_on_step_end, callback_on_step_end_tensor_inputs, max_sequence_length, guidance_mode")
    .callbacks("latents, prompt_embeds")
    .doc("One sentence that says what it makes of what.");

}  // namespace sf::diffusion
"""
NOISE = """  auto [height, width] = size(o.height, o.width);
  const int64_t channels = @DENOISER@->config_int("in_channels", 4), scale = vae_scale_factor();
  const Shape shape{batch, channels, height / scale, width / scale};
  run->latents = initial_latents(*run->scheduler, o.latents, o.generator, shape, dtype);
"""
NOISY_PICTURE = """  start_at_strength(kName, *run->scheduler, run->schedule, o.strength);
  const Tensor image = o.generator.size() > 1 ? fill_batch(kName, "images", o.image, batch) : o.image;
  const Tensor latents = fill_batch(kName, "images", encode_images(image, o.generator, dtype), batch);
  const Tensor noise = randn_tensor(latents.shape(), o.generator, @DENOISER@->device(), dtype);
  run->latents = run->scheduler->add_noise(latents, noise, run->schedule.timestep(0));
"""
MASKED = """  run->image_latents = latents, run->noise = noise;
  const Shape inner{latents.size(2), latents.size(3)};
  run->mask = fill_batch(kName, "masks", interpolate(o.mask.to(@DENOISER@->device()), inner).to(dtype), batch);
"""
MASKED_RUN = """
namespace {

// What is not under the mask is put back after each step.
struct MaskedRun final : Run {
  Tensor mask, image_latents, noise;  // [B, 1, h, w], [B, C, h, w] twice

  void advance(const Tensor& model_output) override {
    Run::advance(model_output);
    const size_t next = at() + 1;
    const bool last = next >= schedule.size();
    const Tensor kept =
        last ? image_latents : scheduler->add_noise(image_latents, noise, schedule.timestep_on_host(next));
    latents = (1 - mask) * kept + mask * latents;
  }
  void keep_more(const Tensor& places) override {
    for (Tensor* t : {&mask, &image_latents, &noise}) *t = index_select(*t, 0, places.to(t->device()));
  }
};

}  // namespace
"""
IMAGE_MEMBERS = """  Tensor image;           // [n, 3, H, W] in [-1, 1] as VaeImageProcessor makes it, or latents
  double strength = 0.8;  // the share of the schedule that is run, from the picture with as much noise
"""
IMAGE_FIELDS = """      {"image", &image, "the picture, or a list of them", OptionRole::Picture},
      {"strength", &strength, "how far the result may be from the picture: the share of the steps that is run"},
"""
MASK_MEMBER = """\
  Tensor mask;            // [n, 1, H, W]: 1 where the picture is made anew, 0 where it stays
"""
MASK_FIELD = """\
      {"mask_image", &mask, "white where the picture is made anew", OptionRole::Mask},
"""
MASK_CHECKS = """\
  const bool is_mask = o.mask && o.mask.ndim() == 4 && o.mask.size(1) == 1 && is_floating(o.mask.dtype());
  SF_CHECK(is_mask, kName, ": mask_image must be [n, 1, height, width]");
"""
# What pipelines with prompts differ in, by task.
TEXT_TASKS = {
    "text-to-image": {
        "MEMBERS": "",
        "FIELDS": "",
        "CHECKS": "",
        "RUN": "Run",
        "RUN_STRUCT": "",
        "LATENTS": NOISE,
        "TAKES": "height, width, latents, ",
    },
    "image-to-image": {
        "MEMBERS": IMAGE_MEMBERS,
        "FIELDS": IMAGE_FIELDS,
        "CHECKS": "  check_image(o.image);\n",
        "RUN": "Run",
        "RUN_STRUCT": "",
        "LATENTS": NOISY_PICTURE,
        "TAKES": "image, strength, ",
    },
    "inpainting": {
        "MEMBERS": IMAGE_MEMBERS + MASK_MEMBER,
        "FIELDS": IMAGE_FIELDS + MASK_FIELD,
        "CHECKS": "  check_image(o.image);\n" + MASK_CHECKS,
        "RUN": "MaskedRun",
        "RUN_STRUCT": MASKED_RUN,
        "LATENTS": NOISY_PICTURE + MASKED,
        "TAKES": "image, mask_image, strength, ",
    },
}
CLASS_HEADER = """// @PIPELINE@: one sentence that says what it makes of what.
#pragma once
#include "scaffolding/diffusion/pipelines/pipeline.h"

namespace sf::diffusion {

struct @OPTIONS@ {
  std::vector<int64_t> class_labels;  // one for each picture
  int64_t num_inference_steps = 50;
  double guidance_scale = 4;  // above 1: classifier-free guidance
  GuidanceMode guidance_mode = GuidanceMode::Batched;
  Generators generator;
  Tensor latents;               // [B, C, h, w] of unit noise, instead of drawing
  bool output_latents = false;  // the result is latents, not pictures
  bool capture = true, cache_prompt = true;
  StepCallback callback_on_step_end;
  StepProgress progress;
  std::stop_token stop;
  Ref<Scheduler> scheduler;  // of this run alone; absent: the pipeline's
  OptionFields fields();
};

struct @PIPELINE@ : PipelineOf<@PIPELINE@, @OPTIONS@> {
  static constexpr const char* kName = "@PIPELINE@";
  Ref<Denoiser> @DENOISER@;
  Ref<Autoencoder> vae;
  Ref<Scheduler> scheduler;
  SF_COMPONENTS(@DENOISER@, vae, scheduler)

  // From the checks to the noise. ValueError for what contradicts itself or the components.
  std::unique_ptr<Run> prepare(const @OPTIONS@& options) const;
};

}  // namespace sf::diffusion
"""
CLASS_SOURCE = """#include "scaffolding/diffusion/pipelines/@FAMILY@/@PIPELINE_FILE@.h"

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

OptionFields @OPTIONS@::fields() {
  const OptionFields own{
      {"class_labels", &class_labels, "numbers of the classes, one for each picture"},
      {"guidance_scale", &guidance_scale, "how closely to follow the class; on above 1"},
      {"cache_prompt", &cache_prompt, "what the denoiser makes of the text is computed once a run"},
  };
  return own + fields_of_every_call(*this);
}

std::unique_ptr<Run> @PIPELINE@::prepare(const @OPTIONS@& o) const {
  check_components();
  SF_CHECK(vae || o.output_latents, kName, ": has no vae to decode latents with; ask for output_type='latent'");
  const int64_t batch = int64_t(o.class_labels.size());
  const int64_t classes = @DENOISER@->config_int("num_embeds_ada_norm", 1000);
  SF_CHECK(batch > 0, kName, ": needs class_labels, one for each picture");
  for (int64_t label : o.class_labels)
    SF_CHECK(label >= 0 && label <= classes, kName, ": class_labels must be between 0 and ", classes,
             ", which is no class, got ", label);
  SF_CHECK(std::isfinite(o.guidance_scale), kName, ": guidance_scale must be finite, got ", o.guidance_scale);
  check_generators(o.generator, batch);

  auto run = std::make_unique<Run>();
  run->guidance = {.scale = o.guidance_scale, .mode = o.guidance_mode};
  run->scheduler = o.scheduler ? o.scheduler : scheduler;
  const Device device = @DENOISER@->device();
  run->schedule =
      make_schedule(kName, *run->scheduler, {.num_inference_steps = o.num_inference_steps, .device = device});
  run->step_options = step_options(*run->scheduler, 0, o.generator);
  auto [height, width] = size();
  const int64_t channels = @DENOISER@->config_int("in_channels", 4), scale = vae_scale_factor();
  const Shape shape{batch, channels, height / scale, width / scale};
  run->latents = initial_latents(*run->scheduler, o.latents, o.generator, shape, @DENOISER@->dtype());
  // The negative half first: the number after the last class stands for none.
  std::vector<int64_t> labels(run->guidance.on() ? size_t(batch) : 0, classes);
  labels.insert(labels.end(), o.class_labels.begin(), o.class_labels.end());
  // The denoiser's arguments by the names of its forward, and what guidance does with each.
  run->told = {{"", {}, ArgumentRole::Sample},
               {"timestep", {}, ArgumentRole::Timestep},
               {"class_labels", tensor(labels, {int64_t(labels.size())}).to(device), ArgumentRole::PerSample}};
  if (@DENOISER@->config_int("out_channels", channels) == 2 * channels)
    run->output_channels = channels;  // the rest is a learned variance
  run->tensors = {{"latents", &run->latents}};
  return run;
}

SF_PIPELINE(@PIPELINE@)
    .family("@FAMILY_NAME@")
    .task(Task::@TASK@)
    .takes("@DENOISER@", "@NAME@")
    .call(
        "class_labels, guidance_scale, generator, num_inference_steps, output_type, return_dict, latents, "
        "guidance_mode, callback_on_step_end, callback_on_step_end_tensor_inputs")
    .callbacks("latents")
    .doc("One sentence that says what it makes of what.");

}  // namespace sf::diffusion
"""
PIPELINE_SCRIPT = '''"""Golden files of @FAMILY@'s pipelines: what diffusers' make of them with tiny networks.

Usage: /path/to/python-with-torch tests/golden/@PIPELINE_SCRIPT_FILE@
Writes pipelines/@FAMILY@.json and pipelines/@FAMILY@.safetensors: see pipeline_fixture.py.
"""

@IMPORTS@

VAE = {"block_out_channels": [16, 32], "down_block_types": ["DownEncoderBlock2D"] * 2, "norm_num_groups": 8,
       "up_block_types": ["UpDecoderBlock2D"] * 2, "sample_size": 32}  # fmt: skip
@TEXT@

def main():
    fixture = PipelineFixture("@FAMILY@")
    # Fields that make it small: two layers, few channels.
    fixture.network("@DENOISER@", @CLASS@, @SMALL@)
    fixture.network("vae", AutoencoderKL, VAE)
@TEXT_PARTS@    fixture.scheduler("ddim", DDIMScheduler, {"clip_sample": False})
    # Arguments that ours takes otherwise on purpose, each with the reason.
    ours = {"guidance_mode": "ours: both halves in one call of the network, or two"}
    fixture.pipeline(@PIPELINE@, differences={"__call__": ours})
    # Files, dtypes and callbacks are tried on the first case: a plain one of few steps. After it one for each branch.
    parts = {@PARTS@}
    fixture.case("@FAMILY@_ddim", @PIPELINE@, parts, {@CALL@"num_inference_steps": 4})
    fixture.write()


if __name__ == "__main__":
    main()
'''
TEXT_CONFIG = """# Of pipelines/tokenizer/, a small CLIP vocabulary.
TEXT = {"vocab_size": 531, "hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4,
        "bos_token_id": 529, "eos_token_id": 530, "pad_token_id": 1}  # fmt: skip


def key(name):
    \"\"\"As in files: transformers 5 has the text model's tensors at the root.\"\"\"
    return name if name.startswith("text_model.") else "text_model." + name
"""
TEXT_PARTS = """    fixture.network("text", CLIPTextModel, TEXT, key)
    fixture.tokenizer("tokenizer", CLIPTokenizer)
"""
# Of the golden script, by the denoiser's name: what most of them have.
SMALL = {
    "transformer": """{
        "num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 12, "in_channels": 4, "out_channels": 4,
        "sample_size": 16,
    }""",
    "unet": """{
        "sample_size": 16, "in_channels": 4, "out_channels": 4, "layers_per_block": 1, "block_out_channels": [16, 32],
        "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"], "norm_num_groups": 8, "cross_attention_dim": 32,
        "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"], "attention_head_dim": 4,
    }""",
}
# What a call of the golden script takes, by task.
EXAMPLE_CALL = {
    "text-to-image": '"prompt": "a photo of the cat", ',
    "image-to-image": '"prompt": "a photo of the cat", "image": {"picture": [32, 32]}, ',
    "inpainting": '"prompt": "a photo of the cat", "image": {"picture": [32, 32]}, "mask_image": {"mask": [32, 32]}, ',
    "class-to-image": '"class_labels": [1, 2], ',
}
