#include "scaffolding/models/model_files.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "scaffolding/core/default_device.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/release_threads.h"
#include "scaffolding/io/checkpoint.h"
#include "scaffolding/io/formats/sharded.h"
#include "scaffolding/io/formats/torch_file.h"
#include "scaffolding/io/replacing_folder.h"
#include "scaffolding/io/scaled_checkpoint.h"
#include "scaffolding/io/stored_blocks.h"
#include "scaffolding/io/upload_ring.h"
#include "scaffolding/models/files_of.h"
#include "scaffolding/models/kept_float32.h"
#include "scaffolding/models/quantized_folder.h"
#include "scaffolding/models/quantized_writer.h"
#include "scaffolding/nn/half_weights.h"
#include "scaffolding/nn/quantize.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/copy/copy.h"

namespace sf::models {

namespace fs = std::filesystem;

namespace {

std::string join(const std::string& folder, const std::string& name) {
  return name.empty() ? folder : (fs::path(folder) / name).string();
}

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// "diffusion_pytorch_model.safetensors" with a variant, and its index: ".fp16" stands before the extension, and before
// "index" in the names of shards' indexes.
std::string with_variant(const std::string& stem, const std::string& variant, const std::string& extension) {
  return stem + (variant.empty() ? "" : "." + variant) + extension;
}

std::string class_of(const io::Object& config, const std::string& where) {
  if (auto* name = config.find("_class_name"); name && name->is(io::Object::String)) return name->text();
  auto* list = config.find("architectures");
  SF_CHECK(list && list->is_sequence() && list->items().size() == 1 && list->items()[0].is(io::Object::String), where,
           ": names no class: it has neither _class_name nor architectures");
  return list->items()[0].text();
}

io::Object merged(const io::Object& config, const io::Object& overrides) {
  std::vector<io::Object> items;
  auto& have = config.items();
  for (size_t i = 0; i + 1 < have.size(); i += 2)
    if (!have[i].is(io::Object::String) || (!overrides.find(have[i].text()) && have[i].text() != "_use_default_values"))
      items.insert(items.end(), {have[i], have[i + 1]});
  items.insert(items.end(), overrides.items().begin(), overrides.items().end());
  return io::Object::container(io::Object::Dict, std::move(items));
}

io::Object without(const io::Object& config, std::string_view key) {
  std::vector<io::Object> items;
  auto& have = config.items();
  for (size_t i = 0; i + 1 < have.size(); i += 2)
    if (!have[i].is(io::Object::String) || have[i].text() != key) items.insert(items.end(), {have[i], have[i + 1]});
  return io::Object::container(io::Object::Dict, std::move(items));
}

}  // namespace

io::Object load_model_config(const std::string& folder, const std::string& subfolder) {
  std::string path = join(join(folder, subfolder), "config.json");
  SF_CHECK(is_file(path), "load_model: there is no file ", path,
           "; a model's folder holds config.json and its weights");
  return io::read_config_file(path);
}

// The names of weights, or of their shards' index, in the order in which they are looked for.
static std::vector<std::string> safetensors_names(const std::string& stem, const std::string& variant) {
  return {with_variant(stem, variant, ".safetensors"), with_variant(stem + ".safetensors.index", variant, ".json"),
          with_variant(stem, variant, ".safetensors.index.json")};
}

static std::vector<std::string> bin_names(const std::string& stem, const std::string& variant) {
  const std::string bin = stem == "model" ? "pytorch_model" : stem;
  return {with_variant(bin, variant, ".bin"), with_variant(bin + ".bin.index", variant, ".json"),
          with_variant(bin, variant, ".bin.index.json")};
}

std::string find_weights(const std::string& folder, const std::string& stem, const LoadModelOptions& options) {
  std::string place = join(folder, options.subfolder);
  std::string looked;
  auto exists = [&](const std::string& name) {
    looked += (looked.empty() ? "" : ", ") + name;
    return is_file(join(place, name));
  };
  if (options.use_safetensors.value_or(true))
    for (const std::string& name : safetensors_names(stem, options.variant))
      if (exists(name)) return join(place, name);
  if (!options.use_safetensors.value_or(false))
    for (const std::string& name : bin_names(stem, options.variant))
      if (exists(name)) return join(place, name);
  std::string lora = is_file(join(place, "pytorch_lora_weights.safetensors"))
                         ? "; pytorch_lora_weights.safetensors is a LoRA, which changes a model and is none"
                         : "";
  fail("load_model: there are no weights in ", place, "; looked for ", looked, lora);
}

// config.json's, or where there is none and the class can tell, that of the weights.
static io::Object found_config(const std::string& folder, const LoadModelOptions& options,
                               const std::string& class_name) {
  auto* entry = find_model(class_name);
  if (options.config || !entry || !entry->config_of_weights ||
      is_file(join(join(folder, options.subfolder), "config.json"))) {
    io::Object config = options.config ? *options.config : load_model_config(folder, options.subfolder);
    return entry && entry->flat_config ? entry->flat_config(config) : config;
  }
  auto file = io::open_checkpoint(find_weights(folder, "model", options));
  std::vector<io::CheckpointEntry> tensors;
  for (auto& name : file->names()) tensors.push_back(file->entry(name));
  return entry->config_of_weights(tensors);
}

namespace {

// A file's tensor in another dtype, piece by piece: the file's pages go as soon as they are converted, so that a model
// is never in memory twice.
Tensor converted(const Tensor& t, DType dtype) {
  constexpr int64_t kPiece = 1 << 22;  // elements
  constexpr int64_t kSmall = 1 << 17;  // bytes: letting go of them takes longer than they are worth
  if (!t.is_contiguous() || t.nbytes() < kSmall) return to_dtype(t, dtype);
  Tensor out = empty(t.shape(), dtype), from = t.view({t.numel()}), to = out.view({t.numel()});
  for (int64_t at = 0; at < t.numel(); at += kPiece) {
    int64_t n = std::min(kPiece, t.numel() - at);
    Tensor piece = from.narrow(0, at, n);
    to.narrow(0, at, n).copy_(piece);
    io::release_mapped(piece.data_ptr(), piece.nbytes());
  }
  return out;
}

// A LoRA's file in a model's place is worth a better message than a thousand missing keys.
void refuse_lora(const std::string& path, const std::vector<std::string>& names, Model& model) {
  auto lora =
      std::find_if(names.begin(), names.end(), [](const std::string& name) { return name.find("lora") != name.npos; });
  if (lora == names.end()) return;
  auto keys = nn::state_dict(model);
  for (auto& [key, t] : keys)
    if (std::find(names.begin(), names.end(), key) != names.end()) return;
  fail(path, ": holds a LoRA (tensors as '", *lora,
       "'), which changes a model and is none itself; load the model that it was made for");
}

}  // namespace

std::string model_class(const std::string& named, const io::Object& config) {
  const io::Object* norm = named == "Transformer2DModel" && config.is_dict() ? config.find("norm_type") : nullptr;
  if (!norm || !norm->is(io::Object::String)) return std::string(model_in_files_of(named));
  return norm->text() == "ada_norm_zero"     ? "DiTTransformer2DModel"
         : norm->text() == "ada_norm_single" ? "PixArtTransformer2DModel"
                                             : named;
}

// A model without memory; fill() gives it tensors.
static std::unique_ptr<Model> make_empty(const std::string& class_name, const io::Object& config) {
  DefaultDevice nowhere{Device(Device::Meta)};
  return make_model(class_name, config);
}

namespace {

// A layer of the file's own few bits in the place of one; null where they do not fit.
nn::Module* put_stored(nn::Module& layer, const io::StoredBlocks& stored, DType dtype) {
  return stored.scale ? nn::put_scaled(layer, stored.bytes, stored.scale, dtype)
                      : nn::put_gguf(layer, stored.format, stored.bytes, dtype);
}

// The layers whose weights are quantised while they are read, by their weights' keys.
std::map<std::string, nn::PlannedLayer> planned_layers(Model& model, const LoadModelOptions& options,
                                                       const KeptFloat32* kept) {
  std::map<std::string, nn::PlannedLayer> out;
  if (!options.quantize) return out;
  for (auto& p : nn::plan_quantization(model, options.quantize->format, options.quantize->options))
    if (std::string key = p.name + ".weight"; !kept || !kept->kept_float32(key)) out.emplace(std::move(key), p);
  SF_CHECK(!out.empty(), "load_model: quantization_config: a ", model.type(), " has no layer that it is for");
  return out;
}

// Puts a layer of few bits in the place of a planned one; its tensors become entries of the state dict.
void quantize_while_reading(const nn::PlannedLayer& p, const Tensor& stored, const LoadModelOptions& options,
                            std::map<std::string, Tensor>& state) {
  const DType dtype = options.dtype.value_or(stored.dtype());
  // As torch quantises: of the dtype that the model would have.
  const Tensor dense = stored.dtype() == dtype ? stored : converted(stored, dtype);
  nn::Module* made = nn::quantize_layer(*p.layer, p.format, dense, dtype, options.quantize->options);
  if (stored.is_contiguous()) io::release_mapped(stored.data_ptr(), stored.nbytes());
  for (auto& b : nn::named_buffers(*made))
    if (b.persistent) state.emplace(p.name + "." + b.name, to_device(b.tensor, options.device));
}

}  // namespace

static bool keeps_half(const io::Checkpoint& file, const LoadModelOptions& options) {
  if (!options.keep_half_from || options.dtype != kFloat32 || !options.device.is_cpu()) return false;
  int64_t bytes = 0;
  for (auto& e : file.entries())
    if (e.dtype.ends_with("F16") || e.dtype.ends_with("float16")) bytes += 2 * numel(e.shape);
  return bytes >= *options.keep_half_from;
}

// What config.json says of weights that the file has in few bits.
struct QuantizedFolder {
  io::Object how;
  std::string where, path;
};

// The dtype of a file's numbers that are as they were: of what layers of few bits compute in.
static DType plain_dtype(const io::Checkpoint& file) {
  for (auto& e : file.entries())
    if (e.name.ends_with(".bias") || e.name.ends_with("norm.weight"))
      if (const DType t = file.get(e.name).dtype(); is_floating(t)) return t;
  return kFloat32;
}

static void fill(Model& model, const io::Checkpoint& file, LoadModelOptions options,
                 const QuantizedFolder* few_bits = nullptr) {
  std::map<std::string, Tensor> state;
  std::set<std::string> used;
  if (few_bits) {
    QuantizedState taken =
        put_quantized_layers(model, file, few_bits->how, options.dtype ? *options.dtype : plain_dtype(file),
                             few_bits->where, few_bits->path);
    for (auto& [key, t] : taken.tensors) state.emplace(key, to_device(t, options.device));
    used = std::move(taken.used);
  }
  auto ring = io::UploadRing::of(options.device);
  // Blocks have no dtype of their own, and what is beside them may be of any: one for all.
  const auto* stored = dynamic_cast<const io::StoresBlocks*>(&file);
  auto names = stored && !options.dtype ? file.names() : std::vector<std::string>();
  if (std::any_of(names.begin(), names.end(), [&](auto& name) { return bool(stored->blocks(name)); }))
    options.dtype = kFloat32;
  const auto* kept = options.dtype == kFloat16 ? dynamic_cast<const KeptFloat32*>(&model) : nullptr;
  std::map<std::string, nn::Module*> layers;
  const bool keep_half = keeps_half(file, options);
  if ((options.keep_blocks && stored) || keep_half)
    for (auto& m : nn::named_modules(model))
      // Other tables are read past calls of them.
      if (std::string_view(m.module->type()) != "Embedding" || m.name.ends_with("token_embedding"))
        layers.emplace(m.name + ".weight", m.module);
  const auto planned = planned_layers(model, options, kept);
  for (auto& name : file.names()) {
    if (used.count(name)) continue;
    std::string key = model.current_key(name);
    if (key.empty()) continue;
    if (auto layer = layers.find(key); layer != layers.end())
      if (auto blocks = options.keep_blocks && stored ? stored->blocks(name) : std::nullopt)
        if (auto* made = put_stored(*layer->second, *blocks, options.dtype.value_or(kFloat32))) {
          const std::string place = key.substr(0, key.rfind('.') + 1);
          for (auto& b : nn::named_buffers(*made))
            if (b.persistent) state.emplace(place + b.name, to_device(b.tensor, options.device));
          continue;
        }
    const std::optional<DType> dtype = kept && kept->kept_float32(key) ? kFloat32 : options.dtype;
    Tensor t = file.get(name);
    auto plan = planned.find(key);
    if (plan != planned.end() && is_floating(t.dtype()) && plan->second.shape == t.shape()) {
      quantize_while_reading(plan->second, t, options, state);
      continue;
    }
    if (auto layer = layers.find(key); keep_half && layer != layers.end() && nn::put_half(*layer->second, t, *dtype)) {
      state.emplace(std::move(key), t);
      continue;
    }
    if (ring) t = ring->upload(t, dtype);
    else if (dtype && is_floating(t.dtype())) t = t.dtype() == *dtype ? t : converted(t, *dtype);
    state.emplace(std::move(key), ring ? std::move(t) : to_device(t, options.device));
  }
  if (ring) ring->finish();  // other streams may use the model from now on
  nn::load_state_dict(model, state, {.strict = true, .assign = true});
  model.eval();
  release_threads();  // whoever loads need not be who computes
}

std::unique_ptr<Model> load_model(const std::string& folder, const LoadModelOptions& options,
                                  const std::string& class_name) {
  io::Object config = merged(found_config(folder, options, class_name), options.overrides);
  std::string where = join(join(folder, options.subfolder), "config.json");
  std::optional<QuantizedFolder> few_bits;
  if (auto* how = config.find("quantization_config"); how && !how->is(io::Object::None)) {
    SF_CHECK(!options.quantize, "load_model: ", where,
             ": the weights are quantised already; load them without quantization_config");
    few_bits = QuantizedFolder{*how, where, {}};
  }
  config = without(config, "quantization_config");
  auto model = make_empty(class_name.empty() ? model_class(class_of(config, where), config) : class_name, config);
  std::string path = find_weights(folder, model->weights_stem(), options);
  auto file = io::open_checkpoint(path);
  refuse_lora(path, file->names(), *model);
  io::refuse_svdquant(*file, path);
  if (few_bits) few_bits->path = path;
  try {
    fill(*model, *file, options, few_bits ? &*few_bits : nullptr);
  } catch (const NotSupported&) {
    throw;
  } catch (const RuntimeError& e) {
    fail<RuntimeError>(path, ": ", e.what());
  }
  return model;
}

std::unique_ptr<Model> load_model(const io::Checkpoint& weights, const std::string& class_name,
                                  const io::Object& config, const LoadModelOptions& options) {
  return load_model(weights, make_empty(class_name, merged(config, options.overrides)), options);
}

std::unique_ptr<Model> load_model(const io::Checkpoint& weights, std::unique_ptr<Model> made,
                                  const LoadModelOptions& options) {
  fill(*made, weights, options);
  return made;
}

void save_model(Model& model, const std::string& folder, const SaveModelOptions& options) {
  std::map<std::string, Tensor> state;
  for (auto& [name, t] : nn::state_dict(model)) state.emplace(name, t);
  const auto few_bits = put_quantized_entries(model, state);
  SF_CHECK(!few_bits || options.safe_serialization,
           "save_model: quantised weights are saved as safetensors; pass safe_serialization=True");
  io::Object config = model.saved_config();
  if (few_bits) config.items().insert(config.items().end(), {"quantization_config", few_bits->config});
  io::ReplacingFolder files(folder, "config.json");
  std::error_code error;
  fs::create_directories(folder, error);
  SF_CHECK(fs::is_directory(folder, error), "save_model: cannot make the folder ", folder);
  const std::string stem = model.weights_stem();
  std::string written;
  if (options.safe_serialization) {
    std::map<std::string, std::string> metadata{{"format", "pt"}};
    if (few_bits) metadata.insert(few_bits->metadata.begin(), few_bits->metadata.end());
    written = io::save_sharded_safetensors(state, join(folder, safetensors_names(stem, options.variant)[0]),
                                           options.max_shard_size, metadata);
  } else {
    std::vector<io::Object> items;
    for (auto& [name, t] : nn::state_dict(model))
      items.insert(items.end(), {io::Object(std::string_view(name)), io::Object(t)});
    written = join(folder, bin_names(stem, options.variant)[0]);
    io::save_torch(io::Object::container(io::Object::OrderedDict, std::move(items)), written);
  }
  // Weights of an earlier save that would be found before these.
  std::vector<std::string> names = safetensors_names(stem, options.variant);
  for (auto& name : bin_names(stem, options.variant)) names.push_back(name);
  for (auto& name : names) {
    if (join(folder, name) == written) break;
    io::ReplacingFolder::remove(join(folder, name));
  }
  io::write_config_file(config, join(folder, "config.json"));
  files.commit();
}

}  // namespace sf::models
