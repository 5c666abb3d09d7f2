// `scaffolding inpaint`: a part of a picture made anew.
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/generation.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/image_processor.h"

namespace sf::cli {

void add_inpaint(CLI::App& program) {
  auto* command = program.add_subcommand("inpaint", "Make a part of a picture anew");
  auto s = std::make_shared<GenerationSettings>();
  s->strength = 1;
  add_generation_options(*command, *s, {diffusion::Task::Inpainting});
  command->add_option("-i,--image", s->image, "The picture: PNG, JPEG or WebP");
  command->add_option("--mask", s->mask,
                      "A picture of the same size: white where it is made anew, black where it stays");
  command->add_option("--strength", s->strength, "How much of the part may change: above 0, to 1")
      ->capture_default_str();
  command->footer("Example:\n  scaffolding inpaint \"a blue hat\" --image cat.png --mask hat.png");
  command->callback([command, s] {
    read_like(*command, *s);
    Tensor picture = input_picture("--image", s->image, io::ImageMode::RGB),
           mask = input_picture("--mask", s->mask, io::ImageMode::L);
    SF_CHECK(picture.size(1) == mask.size(1) && picture.size(2) == mask.size(2),
             "--mask: must have the picture's size ", picture.size(2), "x", picture.size(1), ", got ", mask.size(2),
             "x", mask.size(1));
    if (s->model.empty()) s->model = shipped_model();
    auto pipeline = load_model("inpaint", *s, {diffusion::Task::Inpainting});
    diffusion::ImageProcessorOptions o{.vae_scale_factor = pipeline->vae_scale_factor()};
    diffusion::PreprocessOptions size{.height = s->height, .width = s->width};
    Tensor image = diffusion::VaeImageProcessor(o).preprocess(Tensors{picture}, size);
    o.do_normalize = false;
    o.do_binarize = o.do_convert_grayscale = true;
    Tensor mask_image = diffusion::VaeImageProcessor(o).preprocess(Tensors{mask}, size);
    s->height = image.size(2), s->width = image.size(3);
    generate("inpaint", *s, *pipeline, {{"image", image}, {"mask_image", mask_image}});
  });
}

}  // namespace sf::cli
