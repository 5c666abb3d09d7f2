// The options of txt2img, img2img, inpaint, txt2vid and img2vid, as CLI11 has them.
#include <algorithm>

#include "apps/cli/controlnets.h"
#include "apps/cli/generation.h"
#include "apps/cli/grid.h"
#include "apps/cli/prompt_file.h"
#include "apps/cli/quantize_option.h"
#include "apps/cli/samplers.h"
#include "apps/cli/suggestions.h"
#include "scaffolding/diffusion/memory/plan.h"
#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::cli {

namespace {

// Fields of a call that the program says in other words, or not at all.
bool has_words_of_its_own(std::string_view field) {
  constexpr std::string_view kFields[] = {
      "prompt",         "negative_prompt",       "height",         "width",         "num_inference_steps",
      "guidance_scale", "guidance_rescale",      "clip_skip",      "prompt_syntax", "eta",
      "strength",       "num_images_per_prompt", "output_latents", "capture",       "cache_prompt",
      "guidance_mode",  "num_videos_per_prompt"};
  return std::find(std::begin(kFields), std::end(kFields), field) != std::end(kFields);
}

// What calls of the tasks' pipelines take besides.
void add_call_options(CLI::App& c, GenerationSettings& s, std::initializer_list<diffusion::Task> tasks) {
  for (auto* entry : diffusion::all_pipelines()) {
    if (std::find(tasks.begin(), tasks.end(), entry->its_task) == tasks.end()) continue;
    const auto options = entry->make()->make_options();
    for (auto& field : options.fields()) {
      const std::string name = "--" + as_option_name(field.name);
      if (has_words_of_its_own(field.name) || !diffusion::takes_text(field) || c.get_option_no_throw(name)) continue;
      c.add_option_function<std::string>(
           name, [&s, key = std::string(field.name)](const std::string& text) { s.options[key] = text; },
           std::string(field.doc) + " (" + diffusion::kind_of(field) + ")")
          ->group("What some models take besides");
    }
  }
}

}  // namespace

void add_generation_options(CLI::App& c, GenerationSettings& s, std::initializer_list<diffusion::Task> tasks) {
  c.add_option("prompt,--prompt", s.prompt, "What the picture shows");
  c.add_option("-o,--output", s.output, "The file; {seed}, {number} and {prompt} are filled in")->capture_default_str();
  add_force(c, s);
  c.add_option("-c,--count", s.count, "How many pictures")->capture_default_str()->check(CLI::Range(1, 100000));
  add_sampling_options(c, s);
  c.add_option("--like", s.like, "A picture: repeats it exactly; options given besides change it");
  c.add_option("--preview", s.preview, "A file that shows the picture forming, or 'terminal'");
  c.add_option("--save-steps", s.save_steps,
               "An animation of the picture forming: .gif or .webp; {seed}, {number} and {prompt} are filled in");
  add_prompts_option(c, s);
  add_grid_options(c, s);
  c.add_flag(
      "--tiling{xy}", s.tiling,
      "Pictures that can be laid side by side without a seam; --tiling=x left and right only, --tiling=y top and "
      "bottom");
  c.add_option("--freeu", s.freeu,
               "S1,S2,B1,B2: clearer pictures of a UNet without training (FreeU), as 0.9,0.2,1.5,1.6 for Stable "
               "Diffusion 1; 0.9,0.2,1.4,1.6 for 2, 0.9,0.2,1.3,1.4 for XL");
  add_controlnet_options(c, s);
  add_call_options(c, s, tasks);
}

void add_clip_options(CLI::App& c, GenerationSettings& s, std::initializer_list<diffusion::Task> tasks) {
  c.add_option("prompt,--prompt", s.prompt, "What the clip shows");
  c.add_option("-o,--output", s.output,
               "The file: .mp4, .webm, .mkv, .mov, .gif, .webp, or frames/%04d.png; {seed}, {number} and {prompt} are "
               "filled in")
      ->capture_default_str();
  add_force(c, s);
  c.add_option("--fps", s.fps, "Frames a second; without it, those that the model is told of, or 8");
  c.add_option("-c,--count", s.count, "How many clips")->capture_default_str()->check(CLI::Range(1, 100000));
  add_sampling_options(c, s);
  c.add_option("--preview", s.preview, "A file that shows a frame forming, or 'terminal'");
  add_call_options(c, s, tasks);
}

void add_force(CLI::App& c, GenerationSettings& s) {
  c.add_flag("--force", s.force, "Replace files that are there, whose names else get a number");
}

void add_sampling_options(CLI::App& c, GenerationSettings& s, const char* model) {
  c.add_option("-n,--negative-prompt", s.negative_prompt, "What it should not show");
  c.add_option(model, s.model,
               "A folder in diffusers' layout, a checkpoint file, organisation/name on the hub, or the name of a model "
               "that 'scaffolding models' lists; without one, the small model that comes with the program");
  c.add_option("--vae", s.vae, "Another autoencoder: a file, a folder, or a name as --model takes it");
  c.add_option("-b,--batch", s.batch, "How many at a time")->capture_default_str()->check(CLI::Range(1, 1024));
  c.add_option("-s,--seed", s.seed,
               "Of the first picture; each next one has the next seed. Without one, a new one each time")
      ->check(CLI::Range(int64_t(0), INT64_MAX - 1));
  c.add_option("--steps", s.steps, "Of the sampler: more take longer")->capture_default_str();
  c.add_option("-g,--guidance", s.guidance,
               "How closely to follow the prompt; 1 is off. Without it, what the model advises, or 5");
  c.add_option("--guidance-rescale", s.guidance_rescale, "Against pictures that guidance has overexposed: 0 to 1");
  c.add_option("--width", s.width, "Pixels, a multiple of 8")->check(CLI::Range(8, 16384));
  c.add_option("--height", s.height, "Pixels, a multiple of 8")->check(CLI::Range(8, 16384));
  std::string names;
  for (auto& name : sampler_names()) names += (names.empty() ? "" : ", ") + name;
  c.add_option("--sampler", s.sampler, "Instead of the model's own: " + names);
  c.add_option("--scheduler-option", s.scheduler_options,
               "A field of the sampler's config: field=value; may be given again");
  add_lora_options(c, s.loras);
  c.add_option(
       "--embedding", s.embeddings,
       "A file of textual inversion, which prompts name as the file is called; FILE:WORD gives it another name; "
       "may be given again")
      ->allow_extra_args(false);  // the prompt may stand behind it
  c.add_option("--eta", s.eta, "Noise of ddim's steps: 0 to 1")->capture_default_str();
  c.add_option("--clip-skip", s.clip_skip, "Layers of the text encoder to leave out");
  c.add_option("--prompt-syntax", s.prompt_syntax, "plain, or weighted: (word:1.2), [word], and longer prompts")
      ->capture_default_str();
  c.add_option("--dtype", s.dtype, "float32, bfloat16 or float16")->capture_default_str();
  add_quantize_option(c, s.quantize);
  c.add_option("--device", s.device, "Where the networks run: cpu, cuda or cuda:1")->capture_default_str();
  c.add_option(
       "--profile", s.profile,
       "Fits the networks into the memory there is, instead of --device: auto, or what is on the GPU: full_gpu, "
       "balanced, unet_gpu, gpu_poor, extreme, cpu_only")
      ->check([](const std::string& name) {
        const std::vector<std::string> all = diffusion::profile_names();
        if (std::find(all.begin(), all.end(), name) == all.end()) refuse_choice("--profile", name, all);
        return "";
      });
  c.add_option("--max-vram", s.max_vram,
               "GPU memory that --profile may plan with, as 6 or 5.5GiB; without it, what is "
               "free");
  c.add_option("--max-ram", s.max_ram, "Host memory, the same");
  c.add_flag("--no-capture", s.no_capture,
             "On CUDA, launch each operation by itself instead of captured graphs; the pictures are the same");
  c.add_flag("-q,--quiet", s.quiet, "No progress");
  c.add_flag("--json", s.json, "For programs: a line of JSON for each picture on standard output");
}

}  // namespace sf::cli
