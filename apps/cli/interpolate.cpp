// `scaffolding interpolate`: a walk from one prompt to another, as an animation.
#include <algorithm>
#include <iostream>
#include <memory>
#include <random>

#include "apps/cli/animations.h"
#include "apps/cli/commands.h"
#include "apps/cli/generation.h"
#include "apps/cli/load_model.h"
#include "apps/cli/new_file.h"
#include "apps/cli/output_file.h"
#include "apps/cli/prompt_notes.h"
#include "apps/cli/terminal.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/slerp.h"
#include "scaffolding/io/json.h"
#include "scaffolding/io/pictures/animation.h"
#include "scaffolding/ops/ops.h"

namespace sf::cli {

using nlohmann::ordered_json;

namespace {

struct InterpolateOptions {
  std::string from, to;
  int64_t frames = 24, loop = 0;
  std::optional<int64_t> to_seed;
  double fps = 12;
  bool back = false;
  GenerationSettings sampling;
};

Tensor noise(int64_t seed, const Shape& shape) {
  Generator generator = make_generator();
  generator->manual_seed(uint64_t(seed));
  return randn(shape, generator);
}

void interpolate(InterpolateOptions& o) {
  GenerationSettings& s = o.sampling;
  SF_CHECK(o.fps > 0 && o.fps <= 100, "--fps: must be above 0, to 100, got ", o.fps);
  check_output("--output", s.output, ".gif .webp");
  check_template("--output", s.output);
  check_animation("--output", s.output);
  if (s.model.empty()) s.model = shipped_model();
  const diffusion::TaggedPrompt from_prompt = diffusion::take_lora_tags(o.from),
                                to_prompt = diffusion::take_lora_tags(o.to);
  SF_CHECK(from_prompt.tags == to_prompt.tags,
           "interpolate: both prompts must have the same <lora:...>, since all pictures of a walk are of one model; "
           "--lora is of both");
  s.prompt = o.from;  // whose LoRAs are loaded
  auto loaded = load_stable_diffusion("interpolate", s);
  const diffusion::StableDiffusionPipeline& pipeline = *loaded;
  autograd::NoGrad no_grad;

  diffusion::GenerationOptions both = sampling_options(s);
  both.prompt = {from_prompt.text, to_prompt.text};
  both.negative_prompt = {s.negative_prompt, s.negative_prompt};
  auto embeds = pipeline.encode_prompt(both);
  auto ends = [](const Tensor& t) { return std::pair(t.narrow(0, 0, 1), t.narrow(0, 1, 1)); };
  auto [from, to] = ends(embeds.prompt_embeds);
  auto [height, width] = pipeline.size(both.height, both.width);
  const int64_t scale = pipeline.vae_scale_factor();
  SF_CHECK(height % scale == 0 && width % scale == 0, "interpolate: height and width must be divisible by ", scale,
           ", got ", height, " and ", width);
  const Shape shape{1, pipeline.unet->config_int("in_channels", 4), height / scale, width / scale};
  const int64_t seed = s.seed ? *s.seed : int64_t(std::random_device{}());
  Tensor first = noise(seed, shape), last = o.to_seed ? noise(*o.to_seed, shape) : first;

  tell_notes(s, {o.from, o.to}, pipeline);
  SamplingWatch watch(s.quiet || s.json, o.frames, "picture");
  Tensors frames;
  for (int64_t done = 0; done < o.frames;) {
    const int64_t batch = std::min(s.batch, o.frames - done);
    Tensors prompts, negative, latents;
    for (int64_t i = done; i < done + batch; ++i) {
      const double t = double(i) / double(o.frames - 1);
      prompts.push_back(diffusion::slerp(from, to, t, -1));
      if (embeds.negative_prompt_embeds.defined()) negative.push_back(embeds.negative_prompt_embeds.narrow(0, 0, 1));
      latents.push_back(diffusion::slerp(first, last, t));
    }
    diffusion::GenerationOptions now = sampling_options(s);
    now.prompt_embeds = cat(prompts, 0);
    if (!negative.empty()) now.negative_prompt_embeds = cat(negative, 0);
    now.latents = cat(latents, 0).to(now.prompt_embeds.dtype());
    for (int64_t i = 0; i < batch; ++i) {  // samplers that draw noise on the way draw the same for each frame
      now.generator.push_back(make_generator());
      now.generator.back()->manual_seed(uint64_t(seed));
    }
    now.stop = watch.stop();
    now.progress = watch.progress(done, batch);
    for (auto& picture : diffusion::VaeImageProcessor::pictures(pipeline(now).images)) frames.push_back(picture);
    done += batch;
  }
  if (o.back)
    for (size_t i = frames.size() - 1; i-- > 1;) frames.push_back(frames[i]);
  const std::string path = write_new(s.output, s.force, [&](const std::string& file) {
    io::save_animation(file, frames, {.fps = o.fps, .loop = o.loop, .quality = 90});
  });
  watch.bar.clear();
  if (s.json) {
    ordered_json row{{"path", path},    {"frames", frames.size()},
                     {"width", width},  {"height", height},
                     {"from", o.from},  {"to", o.to},
                     {"seed", seed},    {"fps", o.fps},
                     {"model", s.model}};
    hash_loras(s.loras.used);
    if (!s.loras.used.empty()) row["lora"] = loras_json(s.loras.used);
    std::cout << io::json_text(row) << std::endl;
  } else {
    std::cout << path << std::endl;
  }
  watch.bar.finish();
}

}  // namespace

void add_interpolate(CLI::App& program) {
  auto* command = program.add_subcommand("interpolate", "Walk from one prompt to another, as an animation");
  auto o = std::make_shared<InterpolateOptions>();
  o->sampling.output = "walk.gif";
  o->sampling.batch = 4;
  command->add_option("from", o->from, "The prompt of the first picture")->required();
  command->add_option("to", o->to, "The prompt of the last one")->required();
  command->add_option("-o,--output", o->sampling.output, "The animation: .gif or .webp")->capture_default_str();
  add_force(*command, o->sampling);
  command->add_option("--frames", o->frames, "How many pictures the walk has")
      ->capture_default_str()
      ->check(CLI::Range(2, 10000));
  command->add_option("--fps", o->fps, "Pictures per second")->capture_default_str();
  command->add_option("--loop", o->loop, "How often it plays; 0 is for ever")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  command
      ->add_option("--to-seed", o->to_seed, "Walk from --seed's noise to this seed's too; without it the noise stays")
      ->check(CLI::Range(int64_t(0), INT64_MAX - 1));
  command->add_flag("--back", o->back, "And back again, so that it loops without a jump");
  add_sampling_options(*command, o->sampling);
  command->footer(R"(Examples:
  scaffolding interpolate "red apple, fluent 3d" "green apple, fluent 3d" --seed 1
  scaffolding interpolate "cat face, noto" "dog face, noto" --frames 48 --fps 24 --back --output pets.webp
  scaffolding interpolate "sun" "moon" --seed 1 --to-seed 2 --loop 1 -o night.gif)");
  command->callback([o] { interpolate(*o); });
}

}  // namespace sf::cli
