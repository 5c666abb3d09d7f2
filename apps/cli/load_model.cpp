#include "apps/cli/load_model.h"

#include <algorithm>
#include <filesystem>

#include "apps/cli/controlnets.h"
#include "apps/cli/files.h"
#include "apps/cli/memory_profile.h"
#include "apps/cli/model_names.h"
#include "apps/cli/samplers.h"
#include "apps/cli/suggestions.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/replace_vae.h"
#include "scaffolding/diffusion/pipelines/textual_inversion.h"
#include "scaffolding/io/hub/hub.h"
#include "scaffolding/io/hub/hub_cache.h"
#include "scaffolding/io/hub/shipped_models.h"

namespace sf::cli {

namespace fs = std::filesystem;

std::string shipped_model() { return io::default_model(); }

// Weights of large models that are stored in 16 bits stay so beside float32, unless they are to be looked at.
static std::optional<int64_t> half_kept_from(std::string_view command) {
  if (command == "quantize") return {};
  return int64_t(128) << 20;
}

// "concept.pt", or "concept.pt:word". Paths may have colons of their own.
static diffusion::ConceptSource embedding_of(const std::string& given) {
  std::error_code error;
  diffusion::ConceptSource out{io::expand_user(given)};
  const size_t colon = given.rfind(':');
  if (!fs::exists(out.path, error) && colon != given.npos && given.find('/', colon) == given.npos)
    out = {io::expand_user(given.substr(0, colon)), given.substr(colon + 1)};
  SF_CHECK(fs::is_regular_file(out.path, error), "--embedding: there is no file '", out.path, "'",
           did_you_mean_path(out.path));
  return out;
}

std::shared_ptr<diffusion::DiffusionPipeline> load_model(const char* command, GenerationSettings& s,
                                                         std::initializer_list<diffusion::Task> tasks) {
  SF_CHECK(!s.model.empty(), command,
           ": needs a model: --model with a folder in diffusers' layout, or a name on the hub");
  std::error_code error;
  s.model = located_model("--model", s.model);
  if (!s.vae.empty()) s.vae = located_model("--vae", s.vae, io::ModelUse::Vae);
  find_loras(s.loras, lora_tags(s));
  std::vector<diffusion::ConceptSource> embeddings;
  for (auto& given : s.embeddings) embeddings.push_back(embedding_of(given));
  diffusion::LoadedPipeline loaded;
  DType dtype = dtype_of("--dtype", s.dtype);
  Device device(s.device);
  const auto half = half_kept_from(command);
  const auto quantize = diffusion::quantize_all("--quantize", s.quantize);
  if (fs::is_regular_file(s.model, error)) {
    SF_CHECK(!is_picture(s.model), "--model: '", s.model, "' is a picture");
    loaded = diffusion::load_single_file_pipeline(
        s.model, {.dtype = dtype, .quantize = quantize, .keep_blocks = true, .keep_half_from = half});
  } else {
    bool path =
        s.model.starts_with('/') || s.model.starts_with('.') || std::count(s.model.begin(), s.model.end(), '/') != 1;
    SF_CHECK(!path || io::is_shipped_model(s.model) || fs::is_directory(s.model, error), "--model: there is no '",
             s.model, "'", did_you_mean_path(s.model));
    diffusion::LoadPipelineOptions options;
    options.dtype = dtype;
    options.keep_half_from = half;
    options.quantize = quantize;
    try {
      loaded = diffusion::load_pipeline(loaded_from(s.model), options);
    } catch (const io::HubError& e) {
      throw io::HubError(e.reason, e.what() + nearest_models(s.model));
    }
  }
  std::shared_ptr<diffusion::DiffusionPipeline> pipeline = loaded.pipeline;
  if (!s.vae.empty())
    diffusion::replace_vae(*pipeline, vae_loaded_from(s.vae), {.dtype = dtype, .keep_half_from = half});
  const auto& family = diffusion::pipeline_entry(pipeline->name()).family_name;
  SF_CHECK_AS(NotSupported, diffusion::pipeline_entry(pipeline->name()).its_task != diffusion::Task::Unconditional,
              command, ": '", s.model, "' makes pictures without being told what; in Python: DiffusionPipeline",
              ".from_pretrained('", s.model, "')().images[0].save('picture.png')");
  auto can = [&](diffusion::Task task) { return diffusion::find_pipeline(family, task) != nullptr; };
  auto task = std::find_if(tasks.begin(), tasks.end(), can);
  const auto& entry =
      diffusion::pipeline_for(std::string(command), pipeline->name(), task == tasks.end() ? *tasks.begin() : *task);
  if (!s.controlnets.empty()) {
    const auto networks = load_controlnets(s, dtype, half);
    pipeline = diffusion::controlled_pipeline("--controlnet", *pipeline, entry.its_task, networks);
  } else if (entry.name != pipeline->name()) {
    std::shared_ptr<diffusion::DiffusionPipeline> made = entry.make();
    diffusion::share_components(*pipeline, *made);
    pipeline = made;
  }
  for (auto& embedding : embeddings) diffusion::load_textual_inversion(*pipeline, embedding);
  if (device != Device() && !is_planned(s)) pipeline->to({.device = device});
  if (!s.loras.used.empty()) diffusion::use_loras(*pipeline, sources_of(s.loras.used));
  settle(s, *pipeline);
  auto scheduler = pipeline->the_scheduler();
  SF_CHECK(scheduler, "--model: '", s.model, "' has no scheduler");
  if (!s.sampler.empty() || !s.scheduler_options.empty())
    pipeline->set_scheduler(make_sampler(s.sampler, *scheduler, s.scheduler_options));
  if (is_planned(s)) carry_out_plan(command, s, *pipeline);
  return pipeline;
}

std::shared_ptr<diffusion::StableDiffusionPipeline> load_stable_diffusion(const char* command, GenerationSettings& s) {
  auto pipeline = load_model(command, s, {diffusion::Task::TextToImage});
  auto typed = std::dynamic_pointer_cast<diffusion::StableDiffusionPipeline>(pipeline);
  SF_CHECK_AS(NotSupported, typed, command, ": '", s.model, "' is a ", pipeline->name(),
              ", which this command does not take");
  return typed;
}

}  // namespace sf::cli
