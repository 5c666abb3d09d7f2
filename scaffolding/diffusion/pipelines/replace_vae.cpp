#include "scaffolding/diffusion/pipelines/replace_vae.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/io/object_entries.h"
#include "scaffolding/models/single_file/kinds.h"
#include "scaffolding/models/single_file/single_model.h"

namespace sf::diffusion {

namespace fs = std::filesystem;

namespace {

// What belongs to the latents and not to the network, so that a file of weights does not say it.
constexpr const char* kOfLatents[] = {"scaling_factor", "shift_factor", "latents_mean", "latents_std", "force_upcast"};

// The pipeline's own config, and those of published models of the class with what belongs to its latents.
std::vector<io::Object> possible_configs(const std::string& class_name, const io::Object& own) {
  std::vector<io::Object> out{own};
  for (auto& kind : models::single_file_kinds())
    for (auto& part : kind.parts) {
      if (part.name != "vae" || part.class_name != class_name) continue;
      io::Object config = part.config;
      for (const char* key : kOfLatents)
        if (auto* value = own.find(key)) io::set_entry(config, key, *value);
      out.push_back(std::move(config));
    }
  return out;
}

int64_t latent_channels(const io::Object& config) {
  auto* channels = config.find("latent_channels");
  return channels && channels->is(io::Object::Int) ? channels->as_int() : 4;
}

// Of the tensor that takes the latents, in a file that has one.
std::optional<int64_t> latent_channels_in(const io::Checkpoint& file) {
  for (auto& name : file.names())
    if (name.ends_with("decoder.conv_in.weight"))
      if (const Shape shape = file.entry(name).shape; shape.size() >= 2) return shape[1];
  return {};
}

void check_channels(const std::string& path, int64_t got, int64_t wanted) {
  SF_CHECK(got == wanted, "vae: '", path, "' has latents of ", got, " channels, and the model's have ", wanted,
           "; take an autoencoder of the model's family");
}

// The tensor of a tiny autoencoder's file (TAESD, TAEF1 as diffusers has them) that takes the latents.
constexpr const char* kTinyLatents = "decoder.layers.0.weight";

std::shared_ptr<models::Model> tiny_from_file(const std::string& path, const Shape& takes_latents,
                                              const models::Model& old, const models::LoadModelOptions& how) {
  const int64_t channels = takes_latents.size() == 4 ? takes_latents[1] : 0;
  check_channels(path, channels, latent_channels(const_cast<models::Model&>(old).config()));
  io::Object config = io::Object::container(io::Object::Dict, {});
  io::set_entry(config, "latent_channels", io::Object(channels));
  return models::load_single_model(path, "AutoencoderTiny", config, how);
}

std::shared_ptr<models::Model> from_file(const std::string& path, const models::Model& old,
                                         const models::LoadModelOptions& how) {
  const io::Object own = const_cast<models::Model&>(old).config();
  const auto file = io::open_checkpoint(path);
  if (const auto names = file->names(); std::find(names.begin(), names.end(), kTinyLatents) != names.end())
    return tiny_from_file(path, file->entry(kTinyLatents).shape, old, how);
  if (const auto channels = latent_channels_in(*file)) check_channels(path, *channels, latent_channels(own));
  std::string why;
  for (auto& config : possible_configs(old.type(), own)) {
    try {
      return models::load_single_model(path, old.type(), config, how);
    } catch (const ValueError& e) {
      if (why.empty()) why = e.what();
    }
  }
  fail("vae: ", why);
}

}  // namespace

void replace_vae(DiffusionPipeline& pipeline, const std::string& path, const models::LoadModelOptions& how) {
  auto slots = pipeline.components();
  auto slot = std::find_if(slots.begin(), slots.end(), [](auto& s) { return s.template as<Ref<Autoencoder>>(); });
  Component* old = slot == slots.end() ? nullptr : slot->network();
  SF_CHECK(old && old->model(), "vae: a ", pipeline.name(), " has no autoencoder that another could replace");
  std::error_code error;
  std::shared_ptr<models::Model> made;
  bool has_config = false;
  if (fs::is_directory(path, error)) {
    const fs::path below = fs::path(path) / "vae";
    const bool whole = !fs::exists(fs::path(path) / "config.json", error) && fs::exists(below / "config.json", error);
    made = models::load_model(whole ? below.string() : path, how);
    has_config = true;
  } else {
    made = from_file(path, *old->model(), how);
  }
  const auto now = pipeline_entry(pipeline.name());
  now.check_type(slot->name, made->type());
  const Ref<Autoencoder> fresh = autoencoder(made);
  Autoencoder& before = *pipeline.the_autoencoder();
  check_channels(path, fresh->config_int("latent_channels", 4), before.config_int("latent_channels", 4));
  SF_CHECK(fresh->scale_factor() == before.scale_factor(), "vae: '", path, "' has ", fresh->scale_factor(),
           " pixels for a latent, and the model's has ", before.scale_factor());
  // Another class may have latents that are scaled already.
  const bool alike = has_config && std::string_view(made->type()) == old->model()->type();
  for (const char* field : {"scaling_factor", "shift_factor"}) {
    const double usual = std::string_view(field) == "scaling_factor" ? 0.18215 : 0;
    const double a = fresh->config_float(field, usual), b = before.config_float(field, usual);
    SF_CHECK(!alike || std::abs(a - b) <= 1e-6, "vae: '", path, "' has a ", field, " of ", a, ", and the model's is ",
             b, ": its latents are another model's");
  }
  slot->take(made);
}

}  // namespace sf::diffusion
