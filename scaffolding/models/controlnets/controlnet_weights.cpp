// ControlNetModel's config from the names and shapes of a file's tensors: the files of the first ControlNets, and some
// of SDXL's, have no config beside them.
#include <algorithm>
#include <map>
#include <numeric>

#include "scaffolding/core/error.h"
#include "scaffolding/io/checkpoint.h"
#include "scaffolding/models/controlnets/controlnet.h"

namespace sf::models {

namespace {

constexpr int64_t kHeadSize = 64;        // of Stable Diffusion 2 and XL; 1 has eight heads whatever their size
constexpr int64_t kSizesEmbedded = 256;  // SDXL's addition_time_embed_dim

struct FileTensors {
  std::map<std::string, Shape> shapes;

  // Those whose names begin with what stands before `known` there. False: there is no such name.
  bool take(const std::vector<io::CheckpointEntry>& all, std::string_view known) {
    auto has = [&](const io::CheckpointEntry& e) { return std::string_view(e.name).ends_with(known); };
    auto at = std::find_if(all.begin(), all.end(), has);
    if (at == all.end()) return false;
    const std::string prefix = at->name.substr(0, at->name.size() - known.size());
    for (auto& e : all)
      if (e.name.starts_with(prefix)) shapes.emplace(e.name.substr(prefix.size()), e.shape);
    return true;
  }
  const Shape* find(const std::string& name) const {
    auto at = shapes.find(name);
    return at == shapes.end() || at->second.size() == 0 ? nullptr : &at->second;
  }
  int64_t rows(const std::string& name) const {
    const Shape* shape = find(name);
    return shape ? (*shape)[0] : 0;
  }
  int64_t columns(const std::string& name) const {
    const Shape* shape = find(name);
    return shape && shape->size() > 1 ? (*shape)[1] : 0;
  }
};

struct Level {
  int64_t channels = 0, layers = 0;
  std::string attention;  // the name of its first transformer; "": it has none
};

std::vector<Level> levels_of_folders(const FileTensors& t) {
  std::vector<Level> levels;
  for (size_t i = 0; i < size_t(kMostLayers); ++i) {
    const std::string level = "down_blocks." + std::to_string(i);
    const int64_t channels = t.rows(level + ".resnets.0.conv1.weight");
    if (channels == 0) break;
    levels.push_back({channels, 0, ""});
    while (levels[i].layers < kMostLayers &&
           t.find(level + ".resnets." + std::to_string(levels[i].layers) + ".conv1.weight"))
      ++levels[i].layers;
    if (t.find(level + ".attentions.0.proj_in.weight")) levels[i].attention = level + ".attentions.0";
  }
  return levels;
}

std::vector<Level> levels_of_rows(const FileTensors& t) {
  std::vector<Level> levels(1);
  for (int64_t k = 1; k < kMostLayers; ++k) {
    const std::string block = "input_blocks." + std::to_string(k);
    if (t.find(block + ".0.op.weight")) {
      levels.emplace_back();
      continue;
    }
    const int64_t channels = t.rows(block + ".0.in_layers.2.weight");
    if (channels == 0) break;
    levels.back().channels = channels, ++levels.back().layers;
    if (levels.back().attention.empty() && t.find(block + ".1.proj_in.weight")) levels.back().attention = block + ".1";
  }
  return levels;
}

std::vector<int64_t> embedding_channels(const FileTensors& t, bool folders) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < kMostLayers; ++i) {
    // every other convolution makes more channels
    const std::string name = folders ? i == 0 ? "controlnet_cond_embedding.conv_in"
                                              : "controlnet_cond_embedding.blocks." + std::to_string(2 * i - 1)
                                     : "input_hint_block." + std::to_string(4 * i);
    const std::string next = "input_hint_block." + std::to_string(4 * i + 2);
    const int64_t channels = t.rows(name + ".weight");
    if (channels == 0 || (!folders && i > 0 && !t.find(next + ".weight"))) break;
    out.push_back(channels);
  }
  return out;
}

}  // namespace

io::Object ControlNetModel::config_of_weights(const std::vector<io::CheckpointEntry>& entries) {
  FileTensors t;
  const bool folders = t.take(entries, "controlnet_cond_embedding.conv_in.weight");
  SF_CHECK(folders || t.take(entries, "input_hint_block.0.weight"), kName,
           ": a file of one has a tensor controlnet_cond_embedding.conv_in.weight or input_hint_block.0.weight");
  const std::vector<Level> levels = folders ? levels_of_folders(t) : levels_of_rows(t);
  SF_CHECK(!levels.empty() && levels.front().layers > 0 && levels.back().channels > 0, kName,
           ": the file has no residual blocks of a UNet's way down");
  Config c;
  c.block_out_channels.clear(), c.down_block_types.clear();
  c.layers_per_block = levels.front().layers;
  std::vector<io::Object> transformers, heads;
  int64_t groups = *c.norm_num_groups;
  for (auto& level : levels) {
    groups = std::gcd(groups, level.channels);
    c.block_out_channels.push_back(level.channels);
    c.down_block_types.push_back(level.attention.empty() ? "DownBlock2D" : "CrossAttnDownBlock2D");
    int64_t layers = 0;
    auto layer = [&](int64_t i) { return level.attention + ".transformer_blocks." + std::to_string(i); };
    while (layers < kMostLayers && t.find(layer(layers) + ".attn2.to_k.weight")) ++layers;
    transformers.push_back(std::max<int64_t>(layers, 1));
    heads.push_back(std::max<int64_t>(level.channels / kHeadSize, 1));
    if (layers == 0) continue;
    c.cross_attention_dim = t.columns(layer(0) + ".attn2.to_k.weight");
    c.use_linear_projection = t.find(level.attention + ".proj_in.weight")->size() == 2;
  }
  c.norm_num_groups = groups;
  // the middle's transformer has the last level's layers, whether that one has transformers of its own or not
  const std::string middle = folders ? "mid_block.attentions.0" : "middle_block.1";
  int64_t layers = 0;
  while (layers < kMostLayers &&
         t.find(middle + ".transformer_blocks." + std::to_string(layers) + ".attn2.to_k.weight"))
    ++layers;
  if (layers > 0) transformers.back() = layers;
  const bool alike = std::all_of(transformers.begin(), transformers.end(),
                                 [&](auto& n) { return n.as_int() == transformers[0].as_int(); });
  c.transformer_layers_per_block = alike ? transformers[0] : io::Object::container(io::Object::List, transformers);
  if (c.use_linear_projection) c.attention_head_dim = io::Object::container(io::Object::List, heads);
  if (const int64_t told = t.columns((folders ? "add_embedding.linear_1" : "label_emb.0.0") + std::string(".weight"))) {
    c.addition_embed_type = "text_time", c.addition_time_embed_dim = kSizesEmbedded;
    c.projection_class_embeddings_input_dim = told;
  }
  c.in_channels = t.columns(folders ? "conv_in.weight" : "input_blocks.0.0.weight");
  c.conditioning_channels =
      t.columns(folders ? "controlnet_cond_embedding.conv_in.weight" : "input_hint_block.0.weight");
  c.conditioning_embedding_out_channels = embedding_channels(t, folders);
  return io::write_fields(c.fields());
}

}  // namespace sf::models
