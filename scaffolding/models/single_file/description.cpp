#include "scaffolding/models/single_file/description.h"

#include <algorithm>
#include <filesystem>
#include <new>

#include "scaffolding/core/error.h"
#include "scaffolding/io/checkpoint_head.h"
#include "scaffolding/io/config.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/json_error.h"
#include "scaffolding/models/adapters/lora_file.h"
#include "scaffolding/models/single_file/family.h"

namespace sf::models {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMostConfig = 4 << 20;  // bytes of a config
constexpr size_t kMostFiles = 10'000;      // of a folder whose size is told
constexpr double kMixed = 0.05;            // the share of another dtype that is worth telling

using Entries = std::vector<io::CheckpointEntry>;

std::string dtype_name(const std::string& spelled) {
  const std::optional<DType> dtype = io::safetensors_dtype(spelled);
  return dtype ? std::string(name(*dtype)) : spelled;
}

int64_t sum(int64_t a, int64_t b) {
  int64_t out;
  return __builtin_add_overflow(a, b, &out) ? INT64_MAX : out;
}

int64_t elements(const Shape& shape) {
  int64_t out = 1;
  for (int64_t n : shape)
    if (__builtin_mul_overflow(out, n, &out)) return INT64_MAX;
  return out;
}

void count(const Entries& entries, ModelDescription& out) {
  std::map<std::string, int64_t> by_dtype;
  for (auto& e : entries) {
    int64_t& n = by_dtype[e.dtype];
    n = sum(n, elements(e.shape));
    out.parameters = sum(out.parameters, elements(e.shape));
  }
  std::vector<std::pair<std::string, int64_t>> order(by_dtype.begin(), by_dtype.end());
  std::stable_sort(order.begin(), order.end(), [](auto& a, auto& b) { return a.second > b.second; });
  for (size_t i = 0; i < order.size() && i < 2; ++i)
    if (i == 0 || double(order[i].second) > kMixed * double(out.parameters))
      out.precision += (i ? ", " : "") + dtype_name(order[i].first);
}

// ---- what is known by names

// What stands before a tensor of this name, in the first entry that ends with it; absent where none does.
std::optional<std::string> before(const Entries& entries, std::string_view name) {
  for (auto& e : entries)
    if (e.name.ends_with(name) && (e.name.size() == name.size() || e.name[e.name.size() - name.size() - 1] == '.'))
      return e.name.substr(0, e.name.size() - name.size());
  return {};
}

// The kinds whose denoisers attend to a text of this width.
std::string kind_of_width(int64_t width) {
  for (auto& kind : single_file_kinds())
    for (auto& part : kind.parts)
      if (auto* dim = part.name == "unet" ? part.config.find("cross_attention_dim") : nullptr;
          dim && dim->is(io::Object::Int) && dim->as_int() == width)
        return kind.title;
  return "";
}

// By the width of the text that its attention takes, which needs no model; `inspect` matches every layer.
std::string lora_title(const Entries& entries) {
  std::string other;
  for (auto& e : entries) {
    const LoraKeyName key = lora_key(e.name);
    if (key.part == LoraKeyName::Other && other.empty()) other = key.kind;
    const bool of_text = key.stem.find("attn2") != key.stem.npos && key.stem.find("to_k") != key.stem.npos;
    if (key.part != LoraKeyName::Down || !of_text || e.shape.size() < 2) continue;
    if (const std::string kind = kind_of_width(e.shape[1]); !kind.empty()) return "LoRA for " + kind;
  }
  return other.empty() ? "LoRA" : other;
}

std::string vae_title(const io::Checkpoint& file, const Entries& entries) {
  auto prefix = before(entries, "decoder.conv_in.weight");
  if (!prefix || !file.contains(*prefix + "decoder.conv_out.weight")) return "";
  const Shape shape = file.entry(*prefix + "decoder.conv_in.weight").shape;
  if (shape.size() < 4) return "";
  return std::string(shape.size() == 5 ? "video VAE" : "VAE") + " with " + std::to_string(shape[1]) +
         " latent channels";
}

std::string upscaler_title(const Entries& entries) {
  auto has = [&](std::string_view name) { return before(entries, name).has_value(); };
  for (const char* name : {"RDB1.conv1.0.weight", "rdb1.conv1.weight", "RDB1.conv1.weight"})
    if (has(name)) return "ESRGAN upscaler (RRDB)";
  if (has("conv_first.weight") && has("residual_group.blocks.0.norm1.weight")) return "SwinIR upscaler";
  if (has("body.0.weight") && has("body.1.weight") && has("body.2.weight") && !has("conv_first.weight"))
    return "Real-ESRGAN upscaler (compact)";
  return "";
}

// A network that does nothing alone.
std::string part_title(const Entries& entries) {
  constexpr std::pair<const char*, const char*> kParts[] = {
      {"text_model.final_layer_norm.weight", "CLIP text encoder"},
      {"vision_model.post_layernorm.weight", "CLIP image encoder"},
      {"encoder.block.0.layer.0.SelfAttention.q.weight", "T5 text encoder"},
      {"down_blocks.0.resnets.0.conv1.weight", "UNet in diffusers' names"},
      {"transformer_blocks.0.attn1.to_q.weight", "transformer in diffusers' names"}};
  for (auto& [name, title] : kParts)
    if (before(entries, name)) return title;
  return "";
}

bool is_embedding(const Entries& entries) {
  return entries.size() <= 4 && std::any_of(entries.begin(), entries.end(), [](auto& e) {
           return e.name == "emb_params" || e.name == "clip_l" || e.name == "clip_g" ||
                  e.name.starts_with("string_to_param");
         });
}

// ---- folders

io::Object small_config(const fs::path& path) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  SF_CHECK(!error && size <= kMostConfig, path.string(), ": is no config of at most ", kMostConfig, " bytes");
  return io::read_config_file(path.string());
}

std::string text_in(const io::Object& dict, const char* key) {
  const io::Object* found = dict.is_dict() ? dict.find(key) : nullptr;
  if (found && found->is_sequence() && !found->items().empty()) found = &found->items()[0];  // architectures
  return found && found->is(io::Object::String) ? found->text().substr(0, 100) : "";
}

std::vector<fs::path> inside(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end && out.size() < kMostFiles;
       it.increment(error))
    out.push_back(it->path());
  std::sort(out.begin(), out.end());
  return out;
}

uint64_t bytes_below(const fs::path& folder, int depth = 0) {
  uint64_t out = 0;
  std::error_code error;
  for (auto& path : inside(folder)) {
    if (fs::is_regular_file(path, error)) out += fs::file_size(path, error);
    else if (depth < 2 && !fs::is_symlink(path, error) && fs::is_directory(path, error))
      out += bytes_below(path, depth + 1);
  }
  return out;
}

// Of the weights in a folder the file that a loader takes first; of shards the first.
std::string weights_in(const fs::path& folder) {
  std::error_code error;
  for (const char* suffix : {".safetensors", ".bin"})
    for (auto& path : inside(folder))
      if (path.extension() == suffix && fs::is_regular_file(path, error)) return path.string();
  fail(folder.string(), ": has no weights");
}

void describe_weights(const std::string& path, ModelDescription& out) {
  count(io::open_checkpoint_head(path)->entries(), out);
}

void describe_pipeline(const fs::path& folder, ModelDescription& out) {
  const io::Object index = small_config(folder / "model_index.json");
  out.kind = "pipeline";
  out.title = text_in(index, "_class_name");
  SF_CHECK(!out.title.empty(), folder.string(), ": its model_index.json has no _class_name");
  std::error_code error;
  for (const char* denoiser : {"unet", "transformer", "prior"})
    if (fs::is_directory(folder / denoiser, error)) return describe_weights(weights_in(folder / denoiser), out);
  fail(folder.string(), ": has neither a unet nor a transformer");
}

void describe_part(const fs::path& folder, ModelDescription& out) {
  std::error_code error;
  const std::string weights = weights_in(folder);
  if (fs::is_regular_file(folder / "adapter_config.json", error)) {
    const auto file = io::open_checkpoint_head(weights);
    out.kind = "lora", out.title = lora_title(file->entries());
    return count(file->entries(), out);
  }
  const io::Object config = small_config(folder / "config.json");
  out.title = text_in(config, "_class_name");
  if (out.title.empty()) out.title = text_in(config, "architectures");
  if (out.title.empty()) out.title = "a network without a class";
  out.kind = out.title.starts_with("Autoencoder") ? "vae" : "part";
  describe_weights(weights, out);
}

}  // namespace

const std::vector<std::string>& described_kinds() {
  static const std::vector<std::string> kinds = {"pipeline", "model",     "lora",  "vae",   "upscaler",
                                                 "part",     "embedding", "other", "broken"};
  return kinds;
}

ModelDescription describe_checkpoint(const io::Checkpoint& file, const std::string& path, io::ModelUse use) {
  ModelDescription out;
  const Entries entries = file.entries();
  count(entries, out);
  auto is = [&](const char* kind, const std::string& title) {
    if (title.empty()) return false;
    out.kind = kind, out.title = title;
    return true;
  };
  const auto metadata = file.metadata();
  if (auto packed = metadata.find("scaffolding:model_index.json"); packed != metadata.end()) {
    const std::string name = text_in(io::parse_config(packed->second, path), "_class_name");
    if (is("model", name.empty() ? name : name + " in one file")) return out;
  }
  if (is("embedding", is_embedding(entries) ? "textual inversion" : "")) return out;
  if (is("lora", LoraFile::recognises(file) ? lora_title(entries) : "")) return out;
  const bool nested =
      std::any_of(entries.begin(), entries.end(), [](auto& e) { return e.name.starts_with("state_dict."); });
  const std::string outer = nested ? "state_dict." : "";
  const auto [other, model_alone] = other_family(file, outer);
  if (other == "a ControlNet") return is("part", "ControlNet"), out;
  if (is("part", model_alone.empty() ? "" : other + ", its transformer alone")) return out;
  if (is("model", other.empty() ? other : other + " (not supported)")) return out;
  if (before(entries, "input_blocks.0.0.weight")) {
    if (const SingleFileKind* kind = find_single_file_kind(file, outer)) {
      const bool vae = before(entries, "decoder.conv_out.weight").has_value();
      const bool text = std::any_of(entries.begin(), entries.end(), [&](auto& e) {
        return e.name.starts_with(outer + "cond_stage_model.") || e.name.starts_with(outer + "conditioner.");
      });
      is(text ? "model" : "part", kind->title + (text && vae ? "" : text ? " without a VAE" : ", its UNet alone"));
      return out;
    }
  }
  if (is("upscaler", upscaler_title(entries)) || is("vae", vae_title(file, entries)) || is("part", part_title(entries)))
    return out;
  if (use == io::ModelUse::Upscaler && is("upscaler", "upscaler of another kind")) return out;
  is("other", entries.empty() ? "no tensors" : "tensors such as " + printable(entries[0].name.substr(0, 60)));
  return out;
}

ModelDescription describe_model(const io::LocalModel& model) {
  ModelDescription out;
  std::error_code error;
  auto broken = [&](std::string why) {
    if (why.starts_with(model.path + ": ")) why.erase(0, model.path.size() + 2);
    out.kind = "broken", out.problem = printable(why.substr(0, 300));
  };
  try {
    if (model.form == io::LocalModel::File) {
      out = describe_checkpoint(*io::open_checkpoint_head(model.path), model.path, model.use);
    } else if (model.form == io::LocalModel::Pipeline) {
      describe_pipeline(model.path, out);
    } else {
      describe_part(model.path, out);
    }
  } catch (const NotSupported& e) {
    broken(e.what());
    out.kind = "other", out.title = model.use == io::ModelUse::Upscaler ? "upscaler?" : "not looked into";
  } catch (const std::bad_alloc&) {
    broken("memory does not suffice to look into it");
  } catch (const Error& e) {
    broken(e.what());
  } catch (const std::exception& e) {
    broken(std::string_view(e.what()).starts_with("[json.") ? io::json_error(e) : e.what());
  }
  const bool folder = model.form != io::LocalModel::File;
  out.bytes = folder ? bytes_below(model.path) : uint64_t(fs::file_size(model.path, error));
  if (error) out.bytes = 0;
  out.title = printable(out.title);
  return out;
}

}  // namespace sf::models
