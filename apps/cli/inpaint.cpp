// `scaffolding inpaint`: a part of a picture made anew.
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/drawing.h"
#include "apps/cli/load_model.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/image_processor.h"

namespace sf::cli {

static const auto kInpaintTasks = {diffusion::Task::Inpainting};

static void add_inpaint_options(CLI::App& c, GenerationSettings& s) {
  add_generation_options(c, s, kInpaintTasks);
  c.add_option("-i,--image", s.image, "The picture: PNG, JPEG or WebP");
  c.add_option("--mask", s.mask, "A picture of the same size: white where it is made anew, black where it stays");
  c.add_option("--strength", s.strength, "How much of the part may change: above 0, to 1")->capture_default_str();
}

static Tensors read_inpaint_inputs(const GenerationSettings& s) {
  Tensor picture = input_picture("--image", s.image, io::ImageMode::RGB),
         mask = input_picture("--mask", s.mask, io::ImageMode::L);
  SF_CHECK(picture.size(1) == mask.size(1) && picture.size(2) == mask.size(2), "--mask: must have the picture's size ",
           picture.size(2), "x", picture.size(1), ", got ", mask.size(2), "x", mask.size(1));
  return {picture, mask};
}

static std::map<std::string, Tensor> prepare_inpaint_inputs(GenerationSettings& s,
                                                            const diffusion::DiffusionPipeline& pipeline,
                                                            const Tensors& inputs) {
  diffusion::ImageProcessorOptions o{.vae_scale_factor = pipeline.side_multiple()};
  diffusion::PreprocessOptions size{.height = s.height, .width = s.width};
  Tensor image = diffusion::VaeImageProcessor(o).preprocess(Tensors{inputs[0]}, size);
  o.do_normalize = false;
  o.do_binarize = o.do_convert_grayscale = true;
  Tensor mask_image = diffusion::VaeImageProcessor(o).preprocess(Tensors{inputs[1]}, size);
  s.height = image.size(2), s.width = image.size(3);
  return {{"image", image}, {"mask_image", mask_image}};
}

void add_inpaint(CLI::App& program) {
  auto* command = program.add_subcommand("inpaint", "Make a part of a picture anew");
  auto s = std::make_shared<GenerationSettings>();
  s->strength = 1;
  add_inpaint_options(*command, *s);
  command->footer("Example:\n  scaffolding inpaint \"a blue hat\" --image cat.png --mask hat.png");
  command->callback([command, s] {
    read_like(*command, *s);
    if (s->model.empty()) s->model = shipped_model();
    draw({.command = "inpaint",
          .tasks = kInpaintTasks,
          .add_options = add_inpaint_options,
          .read_inputs = read_inpaint_inputs,
          .prepare_inputs = prepare_inpaint_inputs},
         *s);
  });
}

}  // namespace sf::cli
