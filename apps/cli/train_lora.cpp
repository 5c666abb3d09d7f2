// `scaffolding train-lora`: a LoRA of one's own pictures, beside any text-to-image model.
#include <filesystem>
#include <iostream>

#include "apps/cli/commands.h"
#include "apps/cli/generation.h"
#include "apps/cli/load_model.h"
#include "apps/cli/output_file.h"
#include "apps/cli/quantize_option.h"
#include "scaffolding/core/error.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/train/interrupt.h"
#include "scaffolding/train/lora/lora_training.h"

namespace sf::cli {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFile = "pytorch_lora_weights.safetensors";  // diffusers' name

struct Options {
  GenerationSettings model;
  train::LoraRecipe recipe;
  std::string data, output;
  std::optional<double> alpha;
  std::vector<std::string> samples;
  bool force = false;
};

std::unique_ptr<data::ImageDataset> pictures_of(const std::string& path, int64_t resolution) {
  std::error_code error;
  const data::ImageOptions options = train::training_pictures(resolution);
  if (fs::is_directory(path, error)) return std::make_unique<data::ImageFolder>(path, options);
  SF_CHECK(path.ends_with(".tar"), "--data: must be a folder of pictures or a WebDataset .tar, got '", path, "'");
  return std::make_unique<data::WebDataset>(std::vector<std::string>{path}, options);
}

// A picture of each prompt, as the LoRA is now.
void write_samples(const Options& o, diffusion::DiffusionPipeline& pipeline, int64_t step) {
  if (o.samples.empty()) return;
  const fs::path folder = fs::path(o.output) / "samples";
  fs::create_directories(folder);
  for (size_t i = 0; i < o.samples.size(); ++i) {
    const diffusion::AnyOptions options = pipeline.make_options();
    options.at<std::vector<std::string>>("prompt") = {o.samples[i]};
    options.at<double>("guidance_scale") = *o.model.guidance;
    options.at<int64_t>("num_inference_steps") = o.model.steps;
    auto& generators = options.at<diffusion::Generators>("generator");
    generators.push_back(make_generator());
    generators.back()->manual_seed(o.recipe.seed + i);
    auto run = pipeline.start(options);
    while (!run->done()) run->step();
    const auto file = folder / ("step-" + std::to_string(step) + "-" + std::to_string(i) + ".png");
    io::write_image(file.string(), diffusion::VaeImageProcessor::pictures(run->finish().images)[0]);
  }
}

void run(Options& o) {
  GenerationSettings& s = o.model;
  if (s.model.empty()) s.model = shipped_model();
  o.recipe.lora.lora_alpha = o.alpha.value_or(double(o.recipe.lora.r));
  o.recipe.check();
  const std::string file = (fs::path(o.output) / kFile).string();
  const bool goes_on = fs::exists(file) || fs::exists(fs::path(o.output) / "metrics.jsonl");
  if (!o.force) check_run_folder(o.output, goes_on);
  auto tell = [&](const std::string& text) {
    if (!s.quiet) std::cerr << text << std::endl;
  };
  const auto pipeline = load_model("train-lora", s, {diffusion::Task::TextToImage});
  const int64_t resolution = train::training_resolution(o.recipe, *pipeline);
  const auto pictures = pictures_of(o.data, resolution);
  SF_CHECK(pictures->has_captions() || !o.recipe.caption.empty(), "train-lora: the pictures in '", o.data,
           "' have no captions: picture.txt beside picture.png, a metadata.jsonl, or --caption for all of them");
  tell("latents of " + std::to_string(pictures->size()) + " pictures of " + std::to_string(resolution) + " pixels");
  std::shared_ptr<train::EncodedPictures> encoded;
  {
    train::StopOnInterrupt interrupt;
    encoded = std::make_shared<train::EncodedPictures>(
        *pictures, *pipeline,
        train::EncodedPictures::Options{o.recipe.caption, o.recipe.flip, o.recipe.seed,
                                        [&](int64_t, int64_t) { return !interrupt.asked(); }});
  }
  for (auto& skipped : encoded->skipped()) tell("left out: " + skipped.name + ": " + skipped.reason);
  train::LoraTraining training(o.recipe, *pipeline, encoded);
  training.options.run.output_dir = o.output;
  training.options.quiet = s.quiet;
  training.options.on_checkpoint = [&](train::Trainer& trainer, const std::string&) {
    training.save(file);
    training.show([&] { write_samples(o, *pipeline, trainer.step()); });
  };
  if (training.train()) std::cout << file << "\n";
  else std::cerr << "stopped; the same command goes on from here\n";
}

}  // namespace

void add_train_lora(CLI::App& program) {
  auto* command = program.add_subcommand("train-lora", "Train a LoRA of your own pictures, beside any model");
  auto o = std::make_shared<Options>();
  train::LoraRecipe& r = o->recipe;
  command->add_option("model,-m,--model", o->model.model,
                      "A folder, a checkpoint file or a repository of the hub; else the model that ships");
  command
      ->add_option("--data", o->data,
                   "A folder of pictures with picture.txt beside picture.png or a metadata.jsonl, or a WebDataset .tar")
      ->required();
  command
      ->add_option(
          "-o,--output", o->output,
          "The folder of the run: checkpoints, logs and pytorch_lora_weights.safetensors, which --lora takes; a "
          "run that was stopped goes on")
      ->required();
  command->add_option("--caption", r.caption, "Of all pictures, instead of their own: \"a photo of sks dog\"");
  command->add_option("--steps", r.max_steps, "Steps of the optimizer")->capture_default_str();
  command->add_option("--rank", r.lora.r, "The LoRA's width: more learns more and weighs more")->capture_default_str();
  command->add_option("--alpha", o->alpha, "Its strength is alpha / rank; else 1");
  command
      ->add_option("--target", r.lora.target_modules,
                   "Which layers, by the ends of their names, or all-linear; may be repeated")
      ->capture_default_str();
  command->add_option("--lr", r.learning_rate, "The learning rate")->capture_default_str();
  command->add_option("--schedule", r.schedule, "Of the learning rate: constant, linear, cosine, polynomial")
      ->capture_default_str();
  command->add_option("--warmup", r.warmup_steps, "Steps over which the learning rate rises")->capture_default_str();
  command->add_option("--resolution", r.resolution, "Pixels on a side; else what the model was trained on");
  command->add_option("--batch", r.batch_size, "Pictures of a step")->capture_default_str();
  command->add_option("--accumulate", r.gradient_accumulation_steps, "Batches whose gradients make one step")
      ->capture_default_str();
  command->add_flag("--flip", r.flip, "Half of the pictures are mirrored");
  command->add_option("--dropout", r.lora.lora_dropout, "Of the LoRA's input")->capture_default_str();
  command->add_option("--caption-dropout", r.caption_dropout, "The share of samples that see no caption")
      ->capture_default_str();
  command->add_option("--snr-gamma", r.snr_gamma, "Min-SNR weights of the loss, as 5");
  command->add_option("--noise-offset", r.noise_offset, "For very dark and very bright pictures, as 0.05")
      ->capture_default_str();
  command->add_option("--dtype", o->model.dtype, "Of the model's weights: float32, bfloat16 or float16")
      ->capture_default_str();
  add_quantize_option(*command, o->model.quantize);
  command->add_option("--mixed-precision", r.mixed_precision, "no, bf16 or fp16")->capture_default_str();
  command->add_flag("--gradient-checkpointing", r.gradient_checkpointing, "Less memory, a third more time");
  command->add_option("--save-every", r.checkpointing_steps, "Steps between checkpoints")->capture_default_str();
  command->add_option("--sample", o->samples,
                      "A prompt that is drawn at each checkpoint, into samples/; may be repeated");
  command->add_option("--sample-steps", o->model.steps, "Steps of these pictures")->capture_default_str();
  command->add_option("--seed", r.seed, "Of the LoRA's first numbers, the order and the noise")->capture_default_str();
  command->add_option("--device", o->model.device, "cpu, cuda or cuda:1")->capture_default_str();
  command->add_flag("--force", o->force, "Take the folder also where it holds other files");
  command->add_flag("-q,--quiet", o->model.quiet, "No progress");
  command->footer(R"(Examples:
  scaffolding train-lora --data my-icons --output runs/mine --steps 400 --lr 1e-3
  scaffolding train-lora stable-diffusion-v1-5 --data pictures --caption "a photo of sks dog" --output runs/dog
  scaffolding train-lora sdxl.safetensors --data pictures --quantize nf4 --gradient-checkpointing --output runs/style
  scaffolding txt2img "a photo of sks dog in a boat" --model stable-diffusion-v1-5 --lora runs/dog

The same command goes on where a run was stopped or killed. tensorboard --logdir runs/dog shows it learning.)");
  command->callback([o] { run(*o); });
}

}  // namespace sf::cli
