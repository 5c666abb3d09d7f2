// Fine-tunes the UNet of a Stable Diffusion model on captioned pictures.
//   train_text_to_image MODEL PICTURES OUTPUT [resolution] [steps] [learning_rate]
// MODEL: a folder in diffusers' layout. PICTURES: a folder with metadata.jsonl (file_name and text) or picture.txt
// beside picture.png, or a tar of either. Latents and embedded captions are computed once, into OUTPUT/latents; the
// trained network is written to OUTPUT/unet. Ctrl-C saves and the same call goes on.
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "scaffolding/diffusion/diffusion.h"
#include "scaffolding/models/models.h"
#include "scaffolding/scaffolding.h"

namespace data = sf::data;
namespace diffusion = sf::diffusion;
namespace models = sf::models;

namespace {

struct Arguments {
  std::string model, pictures, output;
  int64_t resolution = 512, steps = 1000;
  double learning_rate = 1e-5;
};

template <class M> std::unique_ptr<M> component(const std::string& folder, const std::string& name) {
  auto model = models::load_model(folder, {.subfolder = name, .dtype = sf::kFloat32}, M::kName);
  return std::unique_ptr<M>(dynamic_cast<M*>(model.release()));
}

// The embedded captions [B, N, C].
sf::Tensor embed(const sf::tokenizers::CLIPTokenizer& tokenizer, const models::CLIPTextModel& text_encoder,
                 const std::vector<std::string>& captions) {
  const int64_t length = text_encoder.options.max_position_embeddings;
  std::vector<int64_t> ids;
  for (auto& encoding : tokenizer.encode_batch(captions, tokenizer.fixed_length(length)))
    ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
  return text_encoder.forward(sf::tensor(ids, {int64_t(captions.size()), length}))[0];
}

// Writes latents and embedded captions of all pictures into `folder`, unless they are there.
// Returns the empty caption's embedding.
sf::Tensor cache(const Arguments& a, const std::string& folder) {
  sf::autograd::NoGrad off;
  auto tokenizer = sf::tokenizers::CLIPTokenizer::from_pretrained(a.model + "/tokenizer");
  auto text_encoder = component<models::CLIPTextModel>(a.model, "text_encoder");
  sf::Tensor no_caption = embed(tokenizer, *text_encoder, {""});
  const std::string about = a.pictures + " at " + std::to_string(a.resolution) + " by " + a.model;
  if (std::filesystem::exists(folder + "/rows.json")) {
    data::CachedRows rows(folder, about);  // refuses those of other pictures
    return no_caption;
  }

  auto vae = component<models::AutoencoderKL>(a.model, "vae");
  namespace t = data::transforms;
  data::ImageOptions options;
  options.transform = t::compose({t::resize({a.resolution}, data::Filter::Bicubic), t::center_crop({a.resolution}),
                                  t::to_float(), t::normalize({0.5}, {0.5})});
  std::shared_ptr<const data::Dataset> pictures;
  if (a.pictures.ends_with(".tar")) pictures = std::make_shared<data::WebDataset>(std::vector{a.pictures}, options);
  else pictures = std::make_shared<data::ImageFolder>(a.pictures, options);
  data::DataLoader loader(pictures, {.batch_size = 4});
  data::RowWriter rows(folder, 256, about);
  for (data::Batch& batch : loader)
    rows.add({{"latents", vae->encode(batch.image).sample() * vae->options.scaling_factor},
              {"encoder_hidden_states", embed(tokenizer, *text_encoder, batch.caption)}});
  rows.finish();
  return no_caption;
}

// The noise that the model knows: whatever sampler the folder names, with its betas.
std::unique_ptr<diffusion::Scheduler> training_scheduler(const std::string& folder) {
  sf::io::Object config = sf::io::read_config_file(folder + "/scheduler/scheduler_config.json");
  auto* name = config.find("_class_name");
  bool flow =
      name && name->is(sf::io::Object::String) && name->text() == diffusion::FlowMatchEulerDiscreteScheduler::kName;
  return diffusion::make_scheduler(
      flow ? diffusion::FlowMatchEulerDiscreteScheduler::kName : diffusion::DDPMScheduler::kName, config);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) {
    std::fprintf(stderr, "train_text_to_image MODEL PICTURES OUTPUT [resolution] [steps] [learning_rate]\n");
    return 2;
  }
  Arguments a{argv[1], argv[2], argv[3]};
  if (argc > 4) a.resolution = std::atoll(argv[4]);
  if (argc > 5) a.steps = std::atoll(argv[5]);
  if (argc > 6) a.learning_rate = std::atof(argv[6]);

  sf::manual_seed(0);
  sf::Tensor no_caption = cache(a, a.output + "/latents");
  auto rows = std::make_shared<data::CachedRowsDataset>(a.output + "/latents");
  data::DataLoader loader(rows, {.batch_size = 4, .shuffle = true});
  auto scheduler = training_scheduler(a.model);
  auto unet = component<models::UNet2DConditionModel>(a.model, "unet");
  unet->train();
  sf::optim::AdamW optimizer(sf::nn::parameters(*unet), {.lr = a.learning_rate});

  const diffusion::TrainingOptions objective{
      .snr_gamma = scheduler->alphas_cumprod().empty() ? std::nullopt : std::optional(5.0), .condition_dropout = 0.1};
  auto step = [&](data::Batch& batch) {
    auto model = [&](const sf::Tensor& x, const sf::Tensor& t, const sf::Tensor& text) {
      return unet->forward(x, t, text);
    };
    return diffusion::diffusion_loss(model, *scheduler, batch.image, batch.target, objective, {}, no_caption);
  };
  sf::train::TrainerOptions options;
  options.run.output_dir = a.output;
  options.run.max_steps = a.steps;
  options.run.max_grad_norm = 1;
  options.seed = 0;
  options.resume = "latest";
  sf::train::Trainer trainer(*unet, optimizer, loader, step, options);
  sf::train::FitResult result = trainer.fit();
  models::save_model(*unet, a.output + "/unet");
  std::printf("%lld steps on %lld pictures, last loss %.4f; %s/unet\n", static_cast<long long>(result.step),
              static_cast<long long>(rows->size()), result.loss, a.output.c_str());
  return 0;
} catch (const sf::Error& e) {
  std::fprintf(stderr, "train_text_to_image: %s\n", e.what());
  return 1;
}
