#include "scaffolding/diffusion/pipelines/pipeline_files.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "scaffolding/core/error.h"
#include "scaffolding/io/hub/model_folder.h"
#include "scaffolding/io/object_entries.h"
#include "scaffolding/io/replacing_folder.h"
#include "scaffolding/io/upload_ring.h"
#include "scaffolding/nn/closest.h"
#include "scaffolding/nn/quantize.h"
#include "scaffolding/tokenizers/pretrained.h"

namespace sf::diffusion {

namespace fs = std::filesystem;

namespace {

constexpr const char* kIndexFile = "model_index.json";
constexpr const char* kGuidanceKey = "_guidance_scale";
constexpr const char* kSeveral = "MultiControlNetModel";  // of a component that is several networks, in rows of it

std::string text_or_nothing(const io::Object& o, const std::string& where) {
  if (o.is(io::Object::None)) return {};
  SF_CHECK(o.is(io::Object::String), where, " must be [library, class] or [null, null]");
  return o.text();
}

bool is_one_of(const std::string& name, const auto& list) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

}  // namespace

PipelineIndex read_pipeline_index(const std::string& folder) {
  std::string path = (fs::path(folder) / kIndexFile).string();
  std::error_code error;
  SF_CHECK(fs::is_regular_file(path, error), "pipeline: there is no file ", path, "; a pipeline's folder holds ",
           kIndexFile, " and a folder for each component");
  return parse_pipeline_index(io::read_config_file(path), path);
}

PipelineIndex parse_pipeline_index(const io::Object& dict, const std::string& path) {
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
  io::write_config_file(pipeline_index_dict(index), (fs::path(folder) / kIndexFile).string());
}

io::Object pipeline_index_dict(const PipelineIndex& index) {
  // diffusers reads the version to know which old mistakes a file may have.
  std::vector<io::Object> items{"_class_name", io::Object(std::string_view(index.class_name)), "_diffusers_version",
                                "0.31.0"};
  if (index.guidance_scale) items.insert(items.end(), {kGuidanceKey, io::Object(*index.guidance_scale)});
  items.insert(items.end(), index.config.items().begin(), index.config.items().end());
  for (auto& row : index.rows) {
    auto text = [](const std::string& s) { return s.empty() ? io::Object() : io::Object(std::string_view(s)); };
    items.insert(items.end(), {io::Object(std::string_view(row.name)),
                               io::Object::container(io::Object::List, {text(row.library), text(row.class_name)})});
  }
  return io::Object::container(io::Object::Dict, std::move(items));
}

ComponentKind component_kind(const PipelineIndex::Row& row) {
  if (row.class_name.empty()) return ComponentKind::None;
  if (models::find_model(row.class_name)) return ComponentKind::Model;
  std::vector<std::string> known = scheduler_names(), tokenizers = tokenizers::tokenizer_classes();
  if (is_one_of(row.class_name, known)) return ComponentKind::Scheduler;
  if (is_one_of(row.class_name, tokenizers)) return ComponentKind::Tokenizer;
  for (auto& entry : models::all_models()) known.push_back(entry.name);
  known.insert(known.end(), tokenizers.begin(), tokenizers.end());
  fail("pipeline: there is no class '", row.class_name, "' for '", row.name, "'",
       nn::closest_hint(row.class_name, known));
}

// ---- plans

namespace {

// Of another library: the full name of the module that it was written in.
bool is_own_class(const PipelineIndex::Row& row) {
  return !row.library.empty() && row.library != "diffusers" && row.library != "transformers";
}

bool has_weights(const std::string& folder, const std::string& library, const std::string& variant) {
  std::error_code error;
  std::string stem = library == "transformers" ? "model" : "diffusion_pytorch_model";
  for (auto& entry : fs::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    bool starts = name.starts_with(stem) || (library == "transformers" && name.starts_with("pytorch_model"));
    if (starts && name.find("." + variant + ".") != name.npos) return true;
  }
  return false;
}

std::string in_folder(const std::string& folder, const std::string& name) { return (fs::path(folder) / name).string(); }

// The entries of a model_index.json that are fields of the pipeline and say something.
io::Object fields_in(const PipelineEntry& entry, const io::Object& dict) {
  io::Object out = io::Object::container(io::Object::Dict);
  auto made = entry.make();
  for (auto& field : made->fields())
    if (auto* value = dict.find(field.name); value && !value->is(io::Object::None))
      io::set_entry(out, field.name, *value);
  return out;
}

std::vector<std::string> folders_with_config(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (auto& entry : fs::directory_iterator(folder, error))
    if (fs::is_regular_file(entry.path() / "config.json", error)) names.push_back(entry.path().filename().string());
  return names;
}

bool fits(const ComponentSlot& slot, ComponentKind kind) {
  if (kind == ComponentKind::Model) return slot.is_network();
  if (kind == ComponentKind::Scheduler) return slot.as<Ref<Scheduler>>();
  return kind == ComponentKind::Tokenizer && slot.as<Ref<const tokenizers::Tokenizer>>();
}

void check_class(const PipelineEntry& entry, const std::string& component, const std::string& class_name,
                 const std::string& where) {
  try {
    entry.check_type(component, class_name.c_str());
  } catch (const TypeError& e) {
    fail(where, ": ", e.what());
  }
}

// A row of several networks becomes one for each of them, which lie in folders beside each other: "controlnet",
// "controlnet_1". made: has a place for each then.
void spread_networks(PipelineIndex& index, const std::string& folder, DiffusionPipeline& made,
                     const std::vector<std::string>& passed) {
  for (size_t i = 0; i < index.rows.size(); ++i) {
    const PipelineIndex::Row several = index.rows[i];
    if (several.class_name != kSeveral || is_one_of(several.name, passed)) continue;
    auto class_in = [&](const std::string& name) {
      const io::Object config = models::load_model_config(in_folder(folder, name));
      auto* said = config.find("_class_name");
      SF_CHECK(said && said->is(io::Object::String), in_folder(folder, name), ": config.json has no _class_name");
      return said->text();
    };
    index.rows[i].class_name = class_in(several.name);
    std::error_code error;
    for (size_t n = 1;; ++n) {
      const std::string name = several.name + "_" + std::to_string(n);
      if (!fs::is_directory(in_folder(folder, name), error) || !made.add_slot(name)) break;
      index.rows.insert(index.rows.begin() + int64_t(i + n), {name, several.library, class_in(name)});
    }
  }
}

}  // namespace

LoadPlan plan_pipeline(const std::string& folder, const PlanOptions& o) {
  PipelineIndex index = read_pipeline_index(folder);
  const std::string where = in_folder(folder, kIndexFile);
  LoadPlan plan{.entry = &pipeline_entry(o.class_name.empty() ? index.class_name : o.class_name)};
  auto made = plan.entry->make();
  spread_networks(index, folder, *made, o.passed);
  auto slots = made->components();
  auto is_unused = [&](const std::string& name) {
    return std::any_of(slots.begin(), slots.end(),
                       [&](auto& s) { return s.name == name && std::holds_alternative<Unused*>(s.place); });
  };
  auto is_pythons = [&](const PipelineIndex::Row& row) {
    return is_own_class(row) && std::any_of(slots.begin(), slots.end(), [&](auto& s) {
             return s.name == row.name && s.template as<Ref<Scheduler>>();
           });
  };
  std::vector<ComponentKind> kinds;  // what checks and describes pictures may be of any class
  for (auto& row : index.rows)
    kinds.push_back(is_unused(row.name) || row.class_name.empty() || row.class_name == kSeveral ? ComponentKind::None
                    : is_pythons(row) ? ComponentKind::Scheduler
                                      : component_kind(row));
  for (auto& row : index.rows) plan.listed.push_back(row.name);
  bool any_model = false, any_variant = false;
  auto variant_of = [&](const PipelineIndex::Row& row) {
    return !o.variant.empty() && has_weights(in_folder(folder, row.name), row.library, o.variant) ? o.variant
                                                                                                  : std::string();
  };
  for (size_t i = 0; i < index.rows.size(); ++i) {
    if (kinds[i] != ComponentKind::Model) continue;
    any_model = true, any_variant = any_variant || !variant_of(index.rows[i]).empty();
  }
  SF_CHECK(o.variant.empty() || !any_model || any_variant, "DiffusionPipeline: no component in ", folder,
           " has files of the variant '", o.variant, "'");
  for (auto& slot : slots) {
    auto row = std::find_if(index.rows.begin(), index.rows.end(), [&](auto& r) { return r.name == slot.name; });
    if (is_one_of(slot.name, o.passed)) continue;
    if (row == index.rows.end()) {
      SF_CHECK(plan.entry->is_optional(slot.name), plan.entry->name, ": ", where, " is of a ", index.class_name,
               " and has no '", slot.name, "'");
      continue;
    }
    if (row->class_name.empty()) continue;
    if (is_unused(slot.name)) {
      plan.ignored.push_back(slot.name);
      continue;
    }
    const ComponentKind kind = kinds[size_t(row - index.rows.begin())];
    SF_CHECK(fits(slot, kind), where, ": '", slot.name, "' cannot be a ", row->class_name);
    ComponentSource source{
        .name = slot.name, .kind = kind, .class_name = row->class_name, .folder = in_folder(folder, row->name)};
    if (is_pythons(*row)) source.library = row->library;
    if (kind == ComponentKind::Model) {
      source.config = models::load_model_config(source.folder);
      source.class_name = models::model_class(row->class_name, source.config);
      source.variant = variant_of(*row);
    }
    check_class(*plan.entry, slot.name, source.class_name, where);
    plan.components.push_back(std::move(source));
  }
  plan.config = fields_in(*plan.entry, index.config);
  plan.guidance_scale = index.guidance_scale;
  return plan;
}

namespace {

// The tokenizer that goes with a file: its own, or that of its kind, whose ids its text encoder must know.
std::shared_ptr<const tokenizers::Tokenizer> tokenizer_for(const models::SingleFile& file, const std::string& path,
                                                           const std::string& name, const io::Object* encoder) {
  auto& known = file.kind().tokenizers;
  auto found = std::find_if(known.begin(), known.end(), [&](auto& t) { return t.name == name; });
  if (found == known.end()) return nullptr;
  auto made = tokenizers::load_tokenizer(found->class_name, {in_folder(path, name), found->files});
  const io::Object* ids = encoder && !file.has_configs() ? encoder->find("vocab_size") : nullptr;
  SF_CHECK(!ids || !ids->is(io::Object::Int) || ids->as_int() >= int64_t(made->size()),
           "from_single_file: the text encoder of ", path, " knows ", ids->as_int(), " tokens, and the ", name,
           " of such models has ", made->size(), ": its own is another one; pass ", name,
           "= or config=folder (convert --config)");
  return made;
}

}  // namespace

LoadPlan plan_single_file(const std::string& path, const SingleFilePlanOptions& o) {
  std::error_code error;
  SF_CHECK(o.config.empty() || fs::is_directory(o.config, error),
           "from_single_file: config must be a pipeline's folder, got '", o.config, "'");
  auto of_config = [&](const std::string& name) {
    return !o.config.empty() && fs::is_directory(in_folder(o.config, name), error);
  };
  models::SingleFileOptions options = o.file;
  for (auto& name : o.config.empty() ? std::vector<std::string>() : folders_with_config(o.config))
    options.configs[name] = models::load_model_config(o.config, name);
  options.configs_of_pipeline = true;
  LoadPlan plan;
  // Networks that the caller brings are not looked for in the file.
  if (!o.class_name.empty()) {
    constexpr int kMostNetworks = 16;  // of a component that may be several
    auto made = pipeline_entry(o.class_name).make();
    for (auto& slot : made->components()) {
      if (!slot.is_network() || is_one_of(slot.name, o.passed)) continue;
      options.parts.push_back(slot.name);
      for (int i = 1; i < kMostNetworks; ++i)
        if (std::string next = slot.name + "_" + std::to_string(i); made->add_slot(next)) options.parts.push_back(next);
    }
  }
  plan.file = std::make_shared<models::SingleFile>(path, options);
  const io::Object index = plan.file->model_index();
  // What a file brings along is a stranger's.
  const bool checked = plan.file->has_configs();
  if (checked) plan.guidance_scale = parse_pipeline_index(index, path).guidance_scale;
  plan.entry = &pipeline_entry(o.class_name.empty() ? index.find("_class_name")->text() : o.class_name);
  plan.config = fields_in(*plan.entry, index);
  auto& parts = plan.file->parts();
  auto part_of = [&](const std::string& name) {
    return std::find_if(parts.begin(), parts.end(), [&](auto& p) { return p.name == name; });
  };
  auto is_left_out = [&](const std::string& name) {  // [null, null]
    const io::Object* row = checked ? index.find(name) : nullptr;
    return row && row->is_sequence() && row->items()[1].is(io::Object::None);
  };
  auto made = plan.entry->make();
  for (auto& part : parts) {
    const auto slots = made->components();
    if (std::none_of(slots.begin(), slots.end(), [&](auto& s) { return s.name == part.name; }))
      made->add_slot(part.name);
  }
  for (auto& slot : made->components()) {
    if (is_one_of(slot.name, o.passed)) continue;
    auto part = part_of(slot.name);
    if (checked && part != parts.end()) {
      SF_CHECK(fits(slot, component_kind({part->name, part->library, part->class_name})), path, ": '", slot.name,
               "' cannot be a ", part->class_name);
      check_class(*plan.entry, slot.name, part->class_name, path);
    }
    if (slot.as<Ref<Scheduler>>()) {
      if (of_config(slot.name))
        plan.components.push_back(
            {.name = slot.name, .kind = ComponentKind::Scheduler, .folder = in_folder(o.config, slot.name)});
      else if (part != parts.end())
        plan.components.push_back({.name = slot.name,
                                   .kind = ComponentKind::Scheduler,
                                   .class_name = part->class_name,
                                   .config = part->config});
      else SF_CHECK(is_left_out(slot.name), "from_single_file: ", path, " has no ", slot.name);
    } else if (slot.as<Ref<const tokenizers::Tokenizer>>()) {
      // A tokenizer goes with the text encoder of its number.
      const std::string encoder = "text_encoder" + slot.name.substr(std::string("tokenizer").size());
      auto knows = part_of(encoder);
      if (!checked && knows == parts.end() && !is_one_of(encoder, o.passed)) continue;
      ComponentSource source{.name = slot.name, .kind = ComponentKind::Tokenizer};
      if (of_config(slot.name)) {
        source.folder = in_folder(o.config, slot.name);
        source.class_name = tokenizers::tokenizer_class_of(source.folder);
      } else {
        source.tokenizer = tokenizer_for(*plan.file, path, slot.name, knows == parts.end() ? nullptr : &knows->config);
        if (!source.tokenizer && is_left_out(slot.name)) continue;
        SF_CHECK(source.tokenizer, "from_single_file: ", path, " has no ", slot.name, "; pass ", slot.name,
                 "= or config=folder");
        source.class_name = source.tokenizer->class_name();
      }
      plan.components.push_back(std::move(source));
    } else if (part != parts.end()) {
      plan.components.push_back({.name = slot.name, .kind = ComponentKind::Model, .class_name = part->class_name});
    } else {
      SF_CHECK(plan.entry->is_optional(slot.name) || is_left_out(slot.name), plan.entry->name,
               ".from_single_file: ", path, " is a ", plan.file->kind().name, " checkpoint and has no '", slot.name,
               "'; pass ", slot.name, "=");
    }
  }
  return plan;
}

// ---- loading

QuantizeConfigs quantize_all(const char* who, const std::string& word) {
  if (word.empty()) return {};
  return {{"", std::make_shared<const nn::QuantizeConfig>(nn::QuantizeConfig::named(who, word))}};
}

// What a component's weights become; null: nothing else.
static std::shared_ptr<const nn::QuantizeConfig> quantize_config_of(const QuantizeConfigs& all,
                                                                    const std::string& name) {
  if (auto own = all.find(name); own != all.end()) return own->second;
  auto rest = all.find("");
  const bool stays = name.ends_with("vae") || name == "vocoder";  // small, and of convolutions
  return rest == all.end() || stays ? nullptr : rest->second;
}

static LoadedPipeline carried_out(const LoadPlan& plan, const models::LoadModelOptions& how,
                                  const QuantizeConfigs& quantize) {
  for (auto& [name, config] : quantize)
    SF_CHECK(
        name.empty() || std::any_of(plan.components.begin(), plan.components.end(),
                                    [&, &n = name](auto& c) { return c.name == n && c.kind == ComponentKind::Model; }),
        plan.entry->name, ": quantization_config names '", name, "', which is no network of the pipeline");
  LoadedPipeline out{plan.entry->make(), plan.ignored};
  auto ring = io::UploadRing::of(how.device);  // one for all components
  for (auto& source : plan.components) {
    const auto now = out.pipeline->components();
    if (std::none_of(now.begin(), now.end(), [&](auto& s) { return s.name == source.name; }))
      out.pipeline->add_slot(source.name);
  }
  auto slots = out.pipeline->components();
  for (auto& source : plan.components) {
    auto& slot = *std::find_if(slots.begin(), slots.end(), [&](auto& s) { return s.name == source.name; });
    if (source.kind == ComponentKind::Scheduler) {
      SF_CHECK_AS(NotSupported, source.library.empty(), plan.entry->name, ": its ", source.name, " is ", source.library,
                  ".", source.class_name, ", a class of Python, which only Python can load");
      auto made =
          source.folder.empty() ? make_scheduler(source.class_name, source.config) : load_scheduler(source.folder);
      *slot.as<Ref<Scheduler>>() = std::move(made);
    } else if (source.kind == ComponentKind::Tokenizer) {
      *slot.as<Ref<const tokenizers::Tokenizer>>() =
          source.tokenizer ? source.tokenizer : tokenizers::load_tokenizer(source.class_name, source.folder);
    } else {
      models::LoadModelOptions options = how;
      options.variant = source.variant;
      if (!plan.file) options.config = source.config;
      options.quantize = quantize_config_of(quantize, source.name);
      slot.take(plan.file ? plan.file->load(source.name, options)
                          : models::load_model(source.folder, options, source.class_name));
    }
  }
  out.pipeline->take_components();
  io::read_fields(plan.entry->name.c_str(), out.pipeline->fields(), plan.config);
  out.pipeline->advised_guidance_scale = plan.guidance_scale;
  return out;
}

LoadedPipeline load_pipeline(const std::string& name_or_folder, const LoadPipelineOptions& o) {
  std::string folder = io::resolve_model_folder(
      name_or_folder, {.hub = o.hub, .variant = o.variant, .use_safetensors = o.use_safetensors});
  return carried_out(
      plan_pipeline(folder, {.class_name = o.class_name, .variant = o.variant}),
      {.dtype = o.dtype, .device = o.device, .use_safetensors = o.use_safetensors, .keep_half_from = o.keep_half_from},
      o.quantize);
}

LoadedPipeline load_single_file_pipeline(const std::string& path_or_link, const LoadSingleFileOptions& o) {
  SingleFilePlanOptions options{.config = o.config,
                                .file = {.prediction_type = o.prediction_type, .extract_ema = o.extract_ema}};
  return carried_out(
      plan_single_file(io::resolve_model_file(path_or_link, o.hub), options),
      {.dtype = o.dtype, .device = o.device, .keep_blocks = o.keep_blocks, .keep_half_from = o.keep_half_from},
      o.quantize);
}

void save_pipeline(const DiffusionPipeline& p, const std::string& folder, const models::SaveModelOptions& options) {
  auto& pipeline = const_cast<DiffusionPipeline&>(p);
  io::ReplacingFolder files(folder, kIndexFile);
  PipelineIndex index{.class_name = p.name(),
                      .guidance_scale = p.advised_guidance_scale,
                      .config = io::write_fields(pipeline.fields())};
  const auto one_of_each = pipeline_entry(p.name()).make();
  const ComponentSlots listed = one_of_each->components();
  for (auto& slot : pipeline.components()) {
    PipelineIndex::Row row{slot.name, "", ""};
    const std::string place = in_folder(folder, slot.name);
    if (Component* network = slot.network()) {
      SF_CHECK_AS(NotSupported, network->model(), "pipeline: ", slot.name,
                  " is no model of this library, and cannot be saved from here");
      models::save_model(*network->model(), place, options);
      row = {slot.name, network->model()->library(), network->model()->type()};
    } else if (auto* scheduler = slot.as<Ref<Scheduler>>(); scheduler && *scheduler) {
      save_scheduler(**scheduler, place);
      row = {slot.name, "diffusers", (*scheduler)->name()};
    } else if (auto* tokenizer = slot.as<Ref<const tokenizers::Tokenizer>>(); tokenizer && *tokenizer) {
      (*tokenizer)->save_pretrained(place);
      row = {slot.name, "transformers", (*tokenizer)->class_name()};
    }
    // the second network of a component, which its row stands for
    if (std::none_of(listed.begin(), listed.end(), [&](auto& s) { return s.name == slot.name; })) {
      const std::string first = slot.name.substr(0, slot.name.rfind('_'));
      for (auto& before : index.rows)
        if (before.name == first) before.class_name = kSeveral;
      continue;
    }
    index.rows.push_back(std::move(row));
  }
  write_pipeline_index(index, folder);
  files.commit();
}

}  // namespace sf::diffusion
