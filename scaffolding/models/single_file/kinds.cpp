#include "scaffolding/models/single_file/kinds.h"

#include <algorithm>

#include "scaffolding/io/config.h"
#include "scaffolding/models/adapters/lora_keys.h"
#include "scaffolding/models/configs/embedded_configs.h"
#include "scaffolding/models/single_file/family.h"

namespace sf::models {

namespace {

// ---- the files of models/configs

const io::Object& required(const io::Object& dict, const char* key) {
  const io::Object* found = dict.is_dict() ? dict.find(key) : nullptr;
  SF_CHECK(found, "models/configs: an entry lacks '", key, "'");
  return *found;
}

std::vector<SingleFileMark> marks(const io::Object& conditions, const char* key) {
  std::vector<SingleFileMark> out;
  const io::Object* list = conditions.find(key);
  if (!list) return out;
  for (auto& condition : list->items()) {
    auto& mark = out.emplace_back();
    mark.tensor = condition.items().at(0).text();
    if (condition.items().size() == 1) continue;
    mark.shape.emplace();
    for (auto& size : condition.items()[1].items())
      mark.shape->push_back(size.is(io::Object::None) ? std::nullopt : std::optional(size.as_int()));
  }
  return out;
}

SingleFileKind kind_of(const io::Object& json) {
  const io::Object& conditions = required(json, "recognised_by");
  SingleFileKind kind{required(json, "name").text(),
                      required(json, "title").text(),
                      required(json, "repository").text(),
                      marks(conditions, "all"),
                      marks(conditions, "any"),
                      marks(conditions, "none"),
                      required(json, "model_index"),
                      {},
                      {}};
  if (auto* alone = json.find("networks_alone")) kind.networks_alone = alone->as_bool();
  auto& parts = required(json, "parts").items();
  for (size_t i = 0; i + 1 < parts.size(); i += 2) {
    const io::Object& part = parts[i + 1];
    auto& out = kind.parts.emplace_back();
    out.name = parts[i].text();
    out.library = required(part, "library").text();
    out.class_name = required(part, "class").text();
    out.config = required(part, "config");
    if (auto* identities = part.find("identities"))
      for (auto& tensor : identities->items()) out.identities.push_back(tensor.text());
    if (auto* places = part.find("places"))
      for (auto& place : places->items())
        out.places.push_back({place.items().at(0).text(), place.items().at(1).text()});
  }
  auto& tokenizers = required(json, "tokenizers").items();
  for (size_t i = 0; i + 1 < tokenizers.size(); i += 2) {
    const io::Object& tokenizer = tokenizers[i + 1];
    kind.tokenizers.push_back({tokenizers[i].text(),
                               required(tokenizer, "class").text(),
                               {{"tokenizer_config.json", io::format_config(required(tokenizer, "config"))}}});
  }
  return kind;
}

// Another family, by tensors of which only it has one: with or without "model.diffusion_model." before them. None of a
// file with one of `none`, which is all of the model and one of the kinds.
struct Other {
  OtherFamily family;
  std::vector<SingleFileMark> any, none;
};

struct Known {
  std::vector<SingleFileKind> kinds;
  std::vector<Other> others;  // in the order in which they are asked for
};

const Known& known() {
  static const Known all = [] {
    Known read;
    for (auto& file : embedded_configs()) {
      const io::Object json = io::parse_config(file.text, std::string("models/configs/") + file.name + ".json");
      if (auto* others = json.find("not_supported"))
        for (auto& other : others->items())
          read.others.push_back(
              {{required(other, "title").text(), other.find("model_alone") ? other.find("model_alone")->text() : ""},
               marks(other, "any"),
               marks(other, "none")});
      else read.kinds.push_back(kind_of(json));
    }
    return read;
  }();
  return all;
}

// ---- recognition

bool is_lora_name(const std::string& name) {
  const LoraKeyName::Part part = lora_key(name).part;
  return part != LoraKeyName::None && part != LoraKeyName::Alpha;
}

// A checkpoint without the name of what is around its tensors.
// A denoiser alone may stand in a file under a shorter name, or none.
struct Contents {
  const io::Checkpoint& file;
  std::string outer, denoiser = kDenoiser;
  static constexpr const char* kDenoiser = "model.diffusion_model.";
  static constexpr const char* kFirst = "input_blocks.0.0.weight";
  static constexpr const char* kFirstOfSD3 = "joint_blocks.0.x_block.attn.qkv.weight";

  Contents(const io::Checkpoint& f, std::string o) : file(f), outer(std::move(o)) {
    for (auto* prefix : {kDenoiser, "diffusion_model.", ""})
      for (auto* first : {kFirst, kFirstOfSD3})
        if (denoiser == kDenoiser && file.contains(outer + prefix + first)) denoiser = prefix;
  }
  std::string in_file(const std::string& name) const {
    const std::string prefix = kDenoiser;
    return outer + (name.compare(0, prefix.size(), prefix) == 0 ? denoiser + name.substr(prefix.size()) : name);
  }
  bool has(const std::string& name) const { return file.contains(in_file(name)); }
  bool has(const SingleFileMark& mark) const {
    if (!has(mark.tensor)) return false;
    if (!mark.shape) return true;
    const Shape s = file.entry(in_file(mark.tensor)).shape;
    return size_t(s.size()) == mark.shape->size() &&
           std::equal(s.begin(), s.end(), mark.shape->begin(),
                      [](int64_t n, auto& wanted) { return !wanted || n == *wanted; });
  }
  bool is(const SingleFileKind& kind) const {
    auto there = [&](const SingleFileMark& mark) { return has(mark); };
    return std::all_of(kind.all.begin(), kind.all.end(), there) &&
           (kind.any.empty() || std::any_of(kind.any.begin(), kind.any.end(), there)) &&
           std::none_of(kind.none.begin(), kind.none.end(), there);
  }
};

OtherFamily other_family(const Contents& contents) {
  auto there = [&](const SingleFileMark& mark) { return contents.has(mark); };
  auto there_or_denoisers = [&](const SingleFileMark& mark) {
    return there(mark) || there({Contents::kDenoiser + mark.tensor, mark.shape});
  };
  for (auto& other : known().others)
    if (std::any_of(other.any.begin(), other.any.end(), there_or_denoisers) &&
        std::none_of(other.none.begin(), other.none.end(), there))
      return other.family;
  return {};
}

}  // namespace

const std::vector<SingleFileKind>& single_file_kinds() { return known().kinds; }

const SingleFileKind& single_file_kind(const std::string& name) {
  std::string have;
  for (auto& k : single_file_kinds()) {
    if (k.name == name) return k;
    have += (have.empty() ? "" : ", ") + k.name;
  }
  fail("single file: there is no kind '", name, "'; there are ", have);
}

const SingleFileKind& recognise_single_file(const io::Checkpoint& file, const std::string& outer,
                                            const std::string& path) {
  const Contents contents(file, outer);
  auto has = [&](const std::string& name) { return contents.has(name); };
  const std::string unet = Contents::kDenoiser, first = unet + Contents::kFirst;
  if (!has(first)) {
    const auto names = file.names();
    const size_t lora = size_t(std::count_if(names.begin(), names.end(), is_lora_name));
    SF_CHECK(lora == 0, path, ": is a LoRA (", lora, " of its ", names.size(),
             " tensors are named so), not a model; load the model first and the LoRA into it");
  }
  for (const char* n :
       {"control_model.time_embed.0.weight", "controlnet_cond_embedding.conv_in.weight", "input_hint_block.0.weight"})
    SF_CHECK_AS(NotSupported, !has(n) && !has(unet + n), path,
                ": is a ControlNet, which stands beside a model and is none: ControlNetModel.from_single_file reads "
                "it, and the program's --controlnet");
  for (const char* n : {"emb_params", "string_to_param.*", "clip_l", "clip_g"})
    SF_CHECK(!has(n), path, ": is a textual inversion (an embedding of words), not a model");
  const OtherFamily other = other_family(contents);
  SF_CHECK(other.model_alone.empty(), path, ": is the transformer of ", other.title, " alone; load it by ",
           other.model_alone, ".from_single_file, and its pipeline's folder with transformer=");
  SF_CHECK_AS(NotSupported, other.title.empty(), path, ": is ", other.title,
              ", which is not supported yet; supported are Stable Diffusion 1.x, 2.x, XL, 3, 3.5 and LTX-2");
  for (const char* n : {"down_blocks.0.resnets.0.conv1.weight", "encoder.down_blocks.0.resnets.0.conv1.weight",
                        "text_model.final_layer_norm.weight"})
    SF_CHECK(
        !has(n), path,
        ": is one part of a pipeline in diffusers' names, not a whole checkpoint; load its folder by from_pretrained");
  const Shape input = has(first) ? file.entry(contents.in_file(first)).shape : Shape{};
  const int64_t channels = input.size() > 1 ? input[1] : 0;
  SF_CHECK_AS(NotSupported, !has(first) || channels == 4 || channels == 9, path,
              ": is a Stable Diffusion variant with ", channels, " input channels",
              channels == 8   ? " (InstructPix2Pix)"
              : channels == 7 ? " (the x4 upscaler)"
              : channels == 5 ? " (from depth)"
                              : "",
              ", which is not supported yet; supported are 4 and, for inpainting, 9");
  for (auto& kind : single_file_kinds())
    if (contents.is(kind)) return kind;
  const auto names = file.names();
  fail(path, ": is no Stable Diffusion checkpoint: there is no tensor '", first,
       "' or another that belongs to one; it has ", names.size(), names.empty() ? "" : " tensors such as '",
       names.empty() ? "" : names.front(), names.empty() ? "" : "'");
}

const SingleFileKind* find_single_file_kind(const io::Checkpoint& file, const std::string& outer) {
  const Contents contents(file, outer);
  if (!other_family(contents).title.empty()) return nullptr;
  auto& kinds = single_file_kinds();
  auto found = std::find_if(kinds.begin(), kinds.end(), [&](auto& kind) { return contents.is(kind); });
  if (found == kinds.end()) return nullptr;
  const std::string first = contents.in_file(Contents::kDenoiser + std::string(Contents::kFirst));
  if (!file.contains(first)) return &*found;
  const Shape input = file.entry(first).shape;
  return input.size() > 1 && (input[1] == 4 || input[1] == 9) ? &*found : nullptr;
}

OtherFamily other_family(const io::Checkpoint& file, const std::string& outer) {
  return other_family(Contents(file, outer));
}

}  // namespace sf::models
