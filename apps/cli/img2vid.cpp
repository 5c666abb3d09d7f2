// `scaffolding img2vid`: clips that begin with a picture.
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/generation.h"
#include "apps/cli/load_model.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/image_processor.h"

namespace sf::cli {

using diffusion::Task;

void add_img2vid(CLI::App& program) {
  auto* command = program.add_subcommand("img2vid", "Make a picture move by a prompt");
  auto s = std::make_shared<GenerationSettings>();
  s->output = "{seed}.mp4";
  add_clip_options(*command, *s, {Task::ImageToVideo});
  command->add_option("-i,--image", s->image,
                      "The picture that the clip begins with: PNG, JPEG or WebP; it is resized");
  command->get_option("--model")->description("A folder in diffusers' layout, or organisation/name on the hub");
  command->footer(R"(Examples:
  scaffolding img2vid "the boat sails away" --image boat.png --model ~/models/CogVideoX-5b-I2V -o boat.mp4)");
  command->callback([s] {
    const Tensor picture = input_picture("--image", s->image, io::ImageMode::RGB);
    auto pipeline = load_model("img2vid", *s, {Task::ImageToVideo});
    diffusion::AnyOptions options = pipeline->make_options();
    if (auto* crf = options.find("image_crf"); crf && s->options.contains("image_crf"))
      diffusion::set_from_text("--image-crf", *crf, s->options["image_crf"]);
    const auto [height, width] = pipeline->size(s->height, s->width);
    diffusion::VaeImageProcessor processor(
        {.vae_scale_factor = pipeline->vae_scale_factor(), .resample = data::filter(pipeline->picture_resample())});
    generate("img2vid", *s, *pipeline,
             {{"image", processor.preprocess(Tensors{pipeline->told_picture(picture, options)},
                                             {.height = height, .width = width})}});
  });
}

}  // namespace sf::cli
