#include "scaffolding/diffusion/pipelines/pipeline_files.h"

#include <algorithm>
#include <filesystem>

#include "scaffolding/core/error.h"
#include "scaffolding/io/model_folder.h"
#include "scaffolding/io/upload_ring.h"
#include "scaffolding/models/single_file/single_file.h"
#include "scaffolding/nn/closest.h"
#include "scaffolding/tokenizers/clip_tokenizer.h"

namespace sf::diffusion {

namespace fs = std::filesystem;

namespace {

constexpr const char* kIndexFile = "model_index.json";
// What checks and describes pictures, and makes none.
constexpr const char* kGuidanceKey = "_guidance_scale";
constexpr const char* kIgnored[] = {"CLIPImageProcessor",           "CLIPFeatureExtractor", "StableDiffusionSafetyChecker", "CLIPVisionModelWithProjection",
                                    "StableDiffusionXLWatermarker", "SiglipImageProcessor"};
constexpr const char* kTokenizers[] = {"CLIPTokenizer", "CLIPTokenizerFast"};

std::string text_or_nothing(const io::Object& o, const std::string& where) {
  if (o.is(io::Object::None)) return {};
  SF_CHECK(o.is(io::Object::String), where, " must be [library, class] or [null, null]");
  return o.text();
}

bool is_one_of(const std::string& name, const auto& list) { return std::find(std::begin(list), std::end(list), name) != std::end(list); }

}  // namespace

PipelineIndex read_pipeline_index(const std::string& folder) {
  std::string path = (fs::path(folder) / kIndexFile).string();
  std::error_code error;
  SF_CHECK(fs::is_regular_file(path, error), "pipeline: there is no file ", path, "; a pipeline's folder holds ", kIndexFile,
           " and a folder for each component");
  io::Object dict = io::read_config_file(path);
  PipelineIndex index;
  auto* name = dict.find("_class_name");
  SF_CHECK(name && name->is(io::Object::String), path, ": has no _class_name");
  index.class_name = name->text();
  std::vector<io::Object> rest;
  auto& items = dict.items();
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const std::string& key = items[i].text();
    const io::Object& value = items[i + 1];
    std::string where = path + ": '" + key + "'";
    if (key == kGuidanceKey) {
      SF_CHECK(value.is(io::Object::Int) || value.is(io::Object::Float), where, " must be a number");
      index.guidance_scale = value.as_float();
      SF_CHECK(std::isfinite(*index.guidance_scale), where, " must be finite");
    }
    if (key.starts_with("_")) continue;
    if (!value.is_sequence()) {
      rest.insert(rest.end(), {items[i], value});
      continue;
    }
    SF_CHECK(value.items().size() == 2, where, " must be [library, class] or [null, null]");
    SF_CHECK(key.find('/') == key.npos && key != "..", where, " is no name of a folder");
    index.rows.push_back({key, text_or_nothing(value.items()[0], where), text_or_nothing(value.items()[1], where)});
  }
  index.config = io::Object::container(io::Object::Dict, std::move(rest));
  return index;
}

void write_pipeline_index(const PipelineIndex& index, const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  SF_CHECK(fs::is_directory(folder, error), "pipeline: cannot make the folder ", folder);
  // diffusers reads the version to know which old mistakes a file may have.
  std::vector<io::Object> items{"_class_name", io::Object(std::string_view(index.class_name)), "_diffusers_version", "0.31.0"};
  if (index.guidance_scale) items.insert(items.end(), {kGuidanceKey, io::Object(*index.guidance_scale)});
  items.insert(items.end(), index.config.items().begin(), index.config.items().end());
  for (auto& row : index.rows) {
    auto text = [](const std::string& s) { return s.empty() ? io::Object() : io::Object(std::string_view(s)); };
    items.insert(items.end(), {io::Object(std::string_view(row.name)), io::Object::container(io::Object::List, {text(row.library), text(row.class_name)})});
  }
  io::write_config_file(io::Object::container(io::Object::Dict, std::move(items)), (fs::path(folder) / kIndexFile).string());
}

std::string component_kind(const PipelineIndex::Row& row) {
  if (row.class_name.empty()) return "none";
  if (models::find_model(row.class_name)) return "model";
  if (is_one_of(row.class_name, scheduler_names())) return "scheduler";
  if (is_one_of(row.class_name, kTokenizers)) return "tokenizer";
  if (is_one_of(row.class_name, kIgnored)) return "ignored";
  std::vector<std::string> known = scheduler_names();
  for (auto& entry : models::all_models()) known.push_back(entry.name);
  known.insert(known.end(), std::begin(kTokenizers), std::end(kTokenizers));
  fail("pipeline: there is no class '", row.class_name, "' for '", row.name, "'", nn::closest_hint(row.class_name, known));
}

bool has_weights(const std::string& folder, const std::string& library, const std::string& variant) {
  std::error_code error;
  std::string stem = library == "transformers" ? "model" : "diffusion_pytorch_model";
  std::string part = variant.empty() ? "" : "." + variant;
  for (auto& entry : fs::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    bool starts = name.starts_with(stem) || (library == "transformers" && name.starts_with("pytorch_model"));
    if (starts && (part.empty() || name.find(part + ".") != name.npos)) return true;
  }
  return false;
}

namespace {

void take(PipelineComponents& c, const std::string& name, std::shared_ptr<models::Model> model) {
  if (name == "unet") c.unet = denoiser(std::move(model));
  else if (name == "vae") c.vae = autoencoder(std::move(model));
  else if (name == "text_encoder") c.text_encoder = text_encoder(std::move(model));
  else if (name == "text_encoder_2") c.text_encoder_2 = text_encoder(std::move(model));
}

void take_flags(PipelineComponents& c, const io::Object& config) {
  auto flag = [&](const char* name, bool otherwise) {
    auto* value = config.find(name);
    return value && value->is(io::Object::Bool) ? value->as_bool() : otherwise;
  };
  c.force_zeros_for_empty_prompt = flag("force_zeros_for_empty_prompt", true);
  c.requires_aesthetics_score = flag("requires_aesthetics_score", false);
}

std::shared_ptr<const tokenizers::CLIPTokenizer> clip_tokenizer(const std::string& folder) {
  return std::make_shared<const tokenizers::CLIPTokenizer>(tokenizers::CLIPTokenizer::from_pretrained(folder));
}

}  // namespace

LoadedPipeline load_pipeline(const std::string& name_or_folder, const LoadPipelineOptions& o) {
  std::string folder = io::resolve_model_folder(name_or_folder, {.hub = o.hub, .variant = o.variant, .use_safetensors = o.use_safetensors});
  PipelineIndex index = read_pipeline_index(folder);
  LoadedPipeline out;
  out.class_name = index.class_name;
  auto ring = io::UploadRing::of(o.device);  // one for all components
  bool any_variant = o.variant.empty();
  for (auto& row : index.rows)
    if (component_kind(row) == "model") any_variant = any_variant || has_weights((fs::path(folder) / row.name).string(), row.library, o.variant);
  SF_CHECK(any_variant, "pipeline: no component in ", folder, " has files of the variant '", o.variant, "'");
  PipelineComponents& c = out.components;
  for (auto& row : index.rows) {
    std::string kind = component_kind(row), place = (fs::path(folder) / row.name).string();
    if (kind == "ignored") out.ignored.push_back(row.name);
    if (kind == "scheduler" && row.name == "scheduler") c.scheduler = load_scheduler(place);
    if (kind == "tokenizer") {
      if (row.name == "tokenizer") c.tokenizer = clip_tokenizer(place);
      if (row.name == "tokenizer_2") c.tokenizer_2 = clip_tokenizer(place);
    }
    if (kind != "model") continue;
    bool known = is_one_of(row.name, std::initializer_list<const char*>{"unet", "vae", "text_encoder", "text_encoder_2"});
    if (!known) {
      out.ignored.push_back(row.name);
      continue;
    }
    models::LoadModelOptions options{.dtype = o.dtype, .device = o.device, .use_safetensors = o.use_safetensors};
    if (!o.variant.empty() && has_weights(place, row.library, o.variant)) options.variant = o.variant;
    take(c, row.name, models::load_model(place, options, row.class_name));
  }
  c.guidance_scale = index.guidance_scale;
  take_flags(c, index.config);
  return out;
}

LoadedPipeline load_single_file_pipeline(const std::string& path_or_link, const LoadSingleFileOptions& o) {
  models::SingleFileOptions options{.prediction_type = o.prediction_type, .extract_ema = o.extract_ema};
  std::error_code error;
  auto in_config = [&](const std::string& name) { return (fs::path(o.config) / name).string(); };
  for (auto* name : {"unet", "vae", "text_encoder", "text_encoder_2"})
    if (!o.config.empty() && fs::is_regular_file(in_config(name) + "/config.json", error)) options.configs[name] = models::load_model_config(o.config, name);
  models::SingleFile file(io::resolve_model_file(path_or_link, o.hub), options);
  io::Object index = file.model_index();
  LoadedPipeline out;
  out.class_name = index.find("_class_name")->text();
  PipelineComponents& c = out.components;
  auto tokenizer = [&](const std::string& name) {
    if (!o.config.empty()) return clip_tokenizer(in_config(name));
    io::HubOptions hub = o.hub;
    hub.allow_patterns = {name + "/*"};
    return clip_tokenizer((fs::path(io::snapshot_download(file.kind().repository, hub)) / name).string());
  };
  auto ring = io::UploadRing::of(o.device);  // one for all components
  for (auto& part : file.parts()) {
    if (part.name == "scheduler" && !o.config.empty() && fs::is_directory(in_config(part.name), error)) c.scheduler = load_scheduler(in_config(part.name));
    else if (part.name == "scheduler") c.scheduler = make_scheduler(part.class_name, part.config);
    else take(c, part.name, file.load(part.name, {.dtype = o.dtype, .device = o.device}));
    if (part.name == "text_encoder") c.tokenizer = tokenizer("tokenizer");
    if (part.name == "text_encoder_2") c.tokenizer_2 = tokenizer("tokenizer_2");
  }
  take_flags(c, index);
  return out;
}

void save_pipeline(const DiffusionPipeline& p, const std::string& folder, const models::SaveModelOptions& options) {
  PipelineIndex index{.class_name = p.name()};
  auto place = [&](const char* name) { return (fs::path(folder) / name).string(); };
  auto model = [&](const char* name, Component* component) {
    if (!component) return index.rows.push_back({name, "", ""});
    SF_CHECK_AS(NotSupported, component->model(), "pipeline: ", name, " is no model of this library, and cannot be saved from here");
    models::save_model(*component->model(), place(name), options);
    index.rows.push_back({name, component->model()->library(), component->model()->type()});
  };
  auto tokenizer = [&](const char* name, const tokenizers::CLIPTokenizer* t) {
    if (!t) return index.rows.push_back({name, "", ""});
    t->save_pretrained(place(name));
    index.rows.push_back({name, "transformers", "CLIPTokenizer"});
  };
  std::string_view name = p.name();
  bool xl = name.find("XL") != name.npos;
  model("vae", p.vae.get());
  model("text_encoder", p.text_encoder.get());
  tokenizer("tokenizer", p.tokenizer.get());
  if (xl) model("text_encoder_2", p.text_encoder_2.get()), tokenizer("tokenizer_2", p.tokenizer_2.get());
  model("unet", p.unet.get());
  if (p.scheduler) save_scheduler(*p.scheduler, place("scheduler"));
  index.rows.push_back({"scheduler", p.scheduler ? "diffusers" : "", p.scheduler ? p.scheduler->name() : ""});
  index.rows.push_back({"feature_extractor", "", ""});
  index.rows.push_back({"image_encoder", "", ""});
  std::vector<io::Object> config;
  if (xl) config = {"force_zeros_for_empty_prompt", io::Object(p.force_zeros_for_empty_prompt)};
  else config = {"requires_safety_checker", io::Object(false)};
  if (xl && name.find("Img2Img") != name.npos) config.insert(config.end(), {"requires_aesthetics_score", io::Object(p.requires_aesthetics_score)});
  if (!xl) index.rows.push_back({"safety_checker", "", ""});
  index.config = io::Object::container(io::Object::Dict, std::move(config));
  index.guidance_scale = p.guidance_scale;
  write_pipeline_index(index, folder);
}

}  // namespace sf::diffusion
