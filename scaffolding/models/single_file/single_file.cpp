#include "scaffolding/models/single_file/single_file.h"

#include <algorithm>
#include <set>

#include "scaffolding/core/default_device.h"
#include "scaffolding/io/config.h"
#include "scaffolding/io/formats/torch_file.h"
#include "scaffolding/io/scaled_checkpoint.h"
#include "scaffolding/io/stored_blocks.h"
#include "scaffolding/models/names/named_checkpoint.h"
#include "scaffolding/models/single_file/family.h"
#include "scaffolding/models/single_file/identity_tensors.h"

namespace sf::models {

namespace {

// v2's 512-base.ckpt was saved after this step and predicts noise;
// what came later predicts velocity (diffusers goes by it too).
constexpr int64_t kStepOfV2Base = 875000;

std::string ema_name(const std::string& name) {  // model.diffusion_model.a.0.b: model_ema.diffusion_modela0b
  std::string flat = name.substr(name.find('.') + 1);
  flat.erase(std::remove(flat.begin(), flat.end(), '.'), flat.end());
  return "model_ema." + flat;
}

// The step at which a .ckpt was saved; -1 where it does not say.
int64_t global_step(const io::Checkpoint& file, const std::string& path) {
  if (std::string_view(file.kind()) != "torch") return -1;
  const io::Object tree = io::load_torch(path, {.placeholders = true});
  const io::Object* step = tree.is_dict() ? tree.find("global_step") : nullptr;
  return step && step->is(io::Object::Int) ? step->as_int() : -1;
}

io::Object with(const io::Object& config, const char* key, const io::Object& value) {
  std::vector<io::Object> items;
  bool found = false;
  for (size_t i = 0; i + 1 < config.items().size(); i += 2) {
    bool here = config.items()[i].is(io::Object::String) && config.items()[i].text() == key;
    found |= here;
    items.push_back(config.items()[i]);
    items.push_back(here ? value : config.items()[i + 1]);
  }
  if (!found) items.insert(items.end(), {key, value});
  return io::Object::container(io::Object::Dict, std::move(items));
}

std::unique_ptr<Model> meta_model(const std::string& class_name, const io::Object& config) {
  DefaultDevice nowhere{Device(Device::Meta)};
  return make_model(class_name, config);
}

}  // namespace

// What all names of a training's file begin with.
static std::string outer_of(const io::Checkpoint& file) {
  auto names = file.names();
  bool nested = std::any_of(names.begin(), names.end(), [](auto& n) { return n.rfind("state_dict.", 0) == 0; });
  return nested ? "state_dict." : "";
}

bool SingleFile::is_alone(const std::string& path, const std::string& class_name) {
  auto has_class = [&](const SingleFilePart& part) { return part.class_name == class_name; };
  auto& kinds = single_file_kinds();
  if (std::none_of(kinds.begin(), kinds.end(), [&](auto& kind) {
        return kind.networks_alone && std::any_of(kind.parts.begin(), kind.parts.end(), has_class);
      }))
    return false;
  const auto file = io::open_checkpoint(path);
  return packed_files(file->metadata(), path).empty() && !find_single_file_kind(*file, outer_of(*file));
}

SingleFile::SingleFile(const std::string& path, const SingleFileOptions& options)
    : path_(path), file_(io::with_scales(io::open_checkpoint(path), path)) {
  const std::string outer = outer_of(*file_);
  const PackedFiles files = packed_files(file_->metadata(), path);
  if (!files.empty()) packed_ = packed_kind(files, *file_, path);
  kind_ = packed_ ? &*packed_ : &recognise_single_file(*file_, outer, path);
  const std::string& only = options.class_name;
  auto is_of_class = [&](const SingleFilePart& p) { return only.empty() || p.class_name == only; };
  SF_CHECK(options.configs.empty() || std::any_of(kind_->parts.begin(), kind_->parts.end(), is_of_class), path, ": is ",
           kind_->title, ", which has no ", only, " that a config could be for");
  for (auto& [name, config] : options.configs)
    SF_CHECK(!only.empty() || options.configs_of_pipeline ||
                 std::any_of(kind_->parts.begin(), kind_->parts.end(), [&, n = name](auto& p) { return p.name == n; }),
             path, ": is ", kind_->title, ", which has no part '", name, "' that a config could be for");
  for (auto& part : kind_->parts)
    if (options.parts.empty() || part.places.empty() ||
        (is_of_class(part) && std::count(options.parts.begin(), options.parts.end(), part.name)))
      add_part(part, outer, options);
  std::string wanted;
  for (auto& name : options.parts) wanted += (wanted.empty() ? "" : " or ") + name;
  SF_CHECK(!names_.empty(), path, ": is ", kind_->title, " without a ", wanted.empty() ? "part that is known" : wanted);
  bool base = kind_->name == "v2" && options.prediction_type.empty() && global_step(*file_, path) == kStepOfV2Base;
  std::string prediction = base ? "epsilon" : options.prediction_type;
  SF_CHECK(prediction.empty() || prediction == "epsilon" || prediction == "v_prediction", path,
           ": prediction_type must be 'epsilon' or 'v_prediction', got '", prediction, "'");
  for (auto& part : parts_) {
    if (part.name == "scheduler" && !prediction.empty())
      part.config = with(part.config, "prediction_type", prediction.c_str());
    if (part.name == "unet" && base && !options.configs.count("unet"))
      part.config = with(part.config, "sample_size", int64_t(64)), made_.erase(part.name);
  }
}

void SingleFile::add_part(const SingleFilePart& part, const std::string& outer, const SingleFileOptions& options) {
  auto given = options.configs.find(part.name);
  const io::Object& config = given != options.configs.end() ? given->second : part.config;
  if (part.places.empty()) {
    parts_.push_back({part.name, part.library, part.class_name, config});
    return;
  }
  auto model = meta_model(part.class_name, config);
  std::map<std::string, NameTable> layouts;
  std::optional<NameTable> table;
  for (auto& [layout, prefix] : part.places) {
    auto found = layouts.find(layout);
    if (found == layouts.end()) found = layouts.emplace(layout, name_table(*model, part.class_name, layout)).first;
    const std::string place = outer + prefix;
    auto& sources = found->second.sources();
    if (std::none_of(sources.begin(), sources.end(), [&](auto& s) { return file_->contains(place + s.name); }))
      continue;
    table = std::move(found->second);
    table->rename_sources([&](const std::string& name) {
      std::string out;
      out.reserve(place.size() + name.size());
      out.append(place).append(name);
      return out;
    });
    break;
  }
  SF_CHECK(table || !packed_, path_, ": has the config of a ", part.name, " and none of its tensors");
  if (!table) return;
  const bool ema = options.extract_ema && part.name == "unet";
  if (ema) table->rename_sources([&](const std::string& name) { return outer + ema_name(name.substr(outer.size())); });
  SF_CHECK(!ema || table->differences(*file_).missing.size() < table->sources().size(), path_,
           ": has no averaged weights (model_ema.*); load it without extract_ema");
  const auto file = files_[part.name] = with_identities(file_, *table, part.identities);
  check_sources(*table, *file, path_ + ": is " + kind_->title + ", but its " + part.name);
  names_.emplace(part.name, std::move(*table));
  made_.emplace(part.name, std::move(model));
  parts_.push_back({part.name, part.library, part.class_name, config});
}

const SingleFile::Part& SingleFile::part(const std::string& name) const {
  std::string have;
  for (auto& p : parts_) {
    if (p.name == name) return p;
    have += (have.empty() ? "" : ", ") + p.name;
  }
  fail(path_, ": has no ", name, "; it has ", have);
}

const NameTable& SingleFile::names(const std::string& name) const {
  static const NameTable none(TensorList(std::vector<TensorList::Entry>()), {}, "");
  part(name);
  auto found = names_.find(name);
  return found == names_.end() ? none : found->second;
}

io::Object SingleFile::model_index() const {
  io::Object out = kind_->model_index;
  for (auto& p : parts_)
    out = with(out, p.name.c_str(),
               io::Object::container(io::Object::List, {io::Object(std::string_view(p.library)),
                                                        io::Object(std::string_view(p.class_name))}));
  return out;
}

Tensor SingleFile::tensor(const std::string& part_name, const std::string& name) const {
  const NameTable& table = names(part_name);
  const NamedTensor* t = table.find(name);
  SF_CHECK(t, path_, ": its ", part_name, " has no tensor '", name, "'");
  return table.read(*t, [&](const std::string& source) { return files_.at(part_name)->get(source); });
}

// Weights in few bits have no dtype of their own: those of all parts are one, so that they go together.
static bool has_few_bits(const io::Checkpoint& file) {
  auto* stored = dynamic_cast<const io::StoresBlocks*>(&file);
  const auto names = stored ? file.names() : std::vector<std::string>();
  return std::any_of(names.begin(), names.end(), [&](auto& name) { return bool(stored->blocks(name)); });
}

std::unique_ptr<Model> SingleFile::load(const std::string& name, const LoadModelOptions& given) const {
  const Part& p = part(name);
  SF_CHECK(names_.count(name), path_, ": its ", name, " is no model");
  LoadModelOptions options = given;
  if (!options.dtype && has_few_bits(*file_)) options.dtype = kFloat32;
  const NamedCheckpoint weights(files_.at(name), names_.at(name), path_ + ": its " + name);
  auto made = made_.extract(name);
  if (made && options.overrides.items().empty()) return load_model(weights, std::move(made.mapped()), options);
  return load_model(weights, p.class_name, p.config, options);
}

std::vector<std::string> SingleFile::unused() const {
  std::set<std::string_view> used;
  for (auto& [name, table] : names_)
    for (auto& source : table.sources()) used.insert(source.name);
  std::vector<std::string> out;
  for (auto& n : file_->names())
    if (!used.count(n)) out.push_back(n);
  return out;
}

NameTable single_file_names(const SingleFilePart& part, const io::Object& config) {
  NameTable table = name_table(*meta_model(part.class_name, config), part.class_name, part.places[0].layout);
  table.rename_sources([&](const std::string& name) { return part.places[0].prefix + name; });
  return table;
}

const SingleFileKind* kind_of_parts(const std::map<std::string, ModelPart>& parts) {
  auto is_written_as = [&](const SingleFilePart& part) {
    auto found = parts.find(part.name);
    if (found == parts.end() || found->second.class_name != part.class_name) return false;
    const NameTable table = single_file_names(part, part.config);
    auto& tensors = found->second.tensors;
    return table.tensors().size() == tensors.size() && std::all_of(tensors.begin(), tensors.end(), [&](auto& tensor) {
             const NamedTensor* t = table.find(tensor.first);
             return t && t->shape == tensor.second.shape();
           });
  };
  for (auto& kind : single_file_kinds()) {
    size_t models = 0, fitting = 0;
    for (auto& part : kind.parts) {
      if (part.places.empty()) continue;
      ++models;
      if (!is_written_as(part)) break;
      ++fitting;
    }
    if (fitting == models && models == parts.size()) return &kind;
  }
  return nullptr;
}

std::map<std::string, Tensor> to_single_file(const std::string& kind_name,
                                             const std::map<std::string, std::map<std::string, Tensor>>& parts,
                                             const std::map<std::string, io::Object>& configs) {
  const SingleFileKind& kind = single_file_kind(kind_name);
  std::map<std::string, Tensor> out;
  for (auto& [name, tensors] : parts) {
    auto part = std::find_if(kind.parts.begin(), kind.parts.end(),
                             [&, n = name](auto& p) { return p.name == n && !p.places.empty(); });
    SF_CHECK(part != kind.parts.end(), "single file: ", kind.title, " has no part '", name, "' with tensors");
    auto given = configs.find(name);
    const NameTable table = single_file_names(*part, given != configs.end() ? given->second : part->config);
    for (auto& [key, t] : tensors) {
      // 0 ... 76, in files of old transformers
      bool buffer = key.size() >= 12 && key.compare(key.size() - 12, 12, "position_ids") == 0;
      SF_CHECK(buffer || table.find(key), "single file: '", key, "' is no tensor of the ", name, " of ", kind.title);
    }
    out.merge(table.write(tensors, "single file: the " + name));
  }
  return out;
}

}  // namespace sf::models
