// `scaffolding txt2vid`: clips from a prompt.
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/drawing.h"
#include "apps/cli/prompt_file.h"
#include "scaffolding/core/error.h"
#include "scaffolding/io/hub/shipped_models.h"

namespace sf::cli {

using diffusion::Task;

static const auto kTxt2VidTasks = {Task::TextToVideo};
static void add_txt2vid_options(CLI::App& c, GenerationSettings& s) {
  add_clip_options(c, s, kTxt2VidTasks);
  add_prompts_option(c, s);
}

void add_txt2vid(CLI::App& program) {
  auto* command = program.add_subcommand("txt2vid", "Make clips from a prompt");
  auto s = std::make_shared<GenerationSettings>();
  s->output = "{seed}.mp4";
  add_txt2vid_options(*command, *s);
  command->footer(R"(Examples:
  scaffolding txt2vid "a rocket over the sea" --model ~/models/CogVideoX-2b --num-frames 49 -o rocket.mp4
  scaffolding txt2vid "a cat" --model ~/models/CogVideoX-5b --profile auto --dtype bfloat16 --steps 30 -o cat.webp)");
  command->callback([command, s] {
    const bool has_prompt = !s->prompt.empty() || command->count("--prompt") > 0;
    SF_CHECK(has_prompt || !s->prompts.empty(), "txt2vid: needs a prompt");
    if (s->model.empty()) s->model = io::default_model(io::ShippedKind::Clips);
    draw(
        {.command = "txt2vid", .tasks = kTxt2VidTasks, .add_options = add_txt2vid_options, .needs_prompt = !has_prompt},
        *s);
  });
}

}  // namespace sf::cli
