// `scaffolding train`: a text-to-image or text-to-video model of one's own from a recipe.
#include <filesystem>
#include <iostream>
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/output_file.h"
#include "scaffolding/core/error.h"
#include "scaffolding/train/pretrained.h"
#include "scaffolding/train/text_to_image/autoencoder_stage.h"
#include "scaffolding/train/text_to_image/denoiser_stage.h"
#include "scaffolding/train/text_to_image/text_encoder_stage.h"
#include "scaffolding/train/text_to_video/stage.h"

namespace sf::cli {

namespace fs = std::filesystem;

namespace {

struct TrainOptions {
  std::string config, output, data, pretrained, device = "cpu";
  bool smoke = false, quiet = false, cuda_graph = false, force = false;
};

template <class Run> void train(const TrainOptions& o, Run run, const char* denoiser) {
  run.quiet = o.quiet;
  run.device = Device(o.device);
  run.cuda_graph = o.cuda_graph;
  if (!o.quiet) run.say = [](const std::string& text) { std::cerr << text << std::endl; };
  if (!o.pretrained.empty()) train::take_pretrained(run, o.pretrained, denoiser, run.recipe.autoencoder);
  const bool done = train::train_tokenizer(run) && train::train_autoencoder(run) && train::cache_latents(run) &&
                    train::train_text_encoder(run) && train::train_denoiser(run);
  if (done) std::cout << run.place("pipeline") << "\n";
  else std::cerr << "stopped; the same command goes on from here\n";
}

void train(const TrainOptions& o) {
  const Device device(o.device);
  if (!o.force) check_run_folder(o.output, fs::is_directory(fs::path(o.output) / "pipeline"));
  SF_CHECK(!o.cuda_graph || device.is_cuda(), "train: --cuda-graph needs --device cuda, got ", device);
  if (train::VideoRecipe::recognises(o.config)) {
    SF_CHECK_AS(NotSupported, !o.cuda_graph,
                "train: --cuda-graph does not go with clips: T5 makes its positions on the host in each step");
    train::VideoRecipe recipe = train::VideoRecipe::read(o.config);
    if (!o.data.empty()) recipe.data.path = o.data;
    if (o.smoke) recipe.make_smoke();
    return train(o, train::TextToVideoRun(std::move(recipe), o.output), "transformer");
  }
  train::Recipe recipe = train::Recipe::read(o.config);
  if (!o.data.empty()) recipe.data = o.data;
  if (o.smoke) recipe.make_smoke();
  train(o, train::TextToImageRun(std::move(recipe), o.output), "unet");
}

}  // namespace

void add_train(CLI::App& program) {
  auto* command = program.add_subcommand("train", "Train a model of pictures or clips from a recipe");
  auto o = std::make_shared<TrainOptions>();
  command->add_option("--config", o->config, "The recipe, such as models/emoji-128/train.json")->required();
  command
      ->add_option("-o,--output", o->output,
                   "The folder of the run: checkpoints, logs and the model; a run that was stopped goes on")
      ->required();
  command->add_option("--data", o->data, "The tar of pictures or folder of clips, instead of the recipe's");
  command->add_option(
      "--pretrained", o->pretrained,
      "A pipeline's folder whose weights the run starts from: its denoiser and text encoder are trained on");
  command->add_option("--device", o->device, "Where the networks are trained: cpu, cuda or cuda:1")
      ->capture_default_str();
  command->add_flag("--cuda-graph", o->cuda_graph,
                    "On CUDA, for pictures: each step is one captured graph, which small models gain most from");
  command->add_flag("--smoke", o->smoke, "The whole chain in a minute with a tiny model, to see that everything works");
  command->add_flag("--force", o->force, "Take the folder also where it holds other files");
  command->add_flag("-q,--quiet", o->quiet, "No progress");
  command->footer(R"(Examples:
  scaffolding train --config models/emoji-128/train.json --output runs/emoji
  scaffolding train --config models/emoji-128/train.json --data emoji128.tar --output /tmp/smoke --smoke
  scaffolding train --config models/emoji-128/train.json --pretrained models/emoji-128 --output runs/further
  scaffolding train --config clips.json --data films --pretrained CogVideoX-2b --output runs/films

The same command goes on where a run was stopped or killed. tensorboard --logdir runs/emoji shows it learning.)");
  command->callback([o] { train(*o); });
}

}  // namespace sf::cli
