#include <algorithm>

#include "scaffolding/io/config.h"
#include "scaffolding/models/single_file/row_list.h"

namespace sf::models {

namespace {

constexpr const char* kWho = "UNet2DConditionModel";

struct UNetFields {
  int64_t in_channels = 4, out_channels = 4, layers_per_block = 2;
  std::vector<int64_t> block_out_channels = {320, 640, 1280, 1280};
  std::vector<std::string> down_block_types = {"CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"};
  std::vector<std::string> up_block_types = {"UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"};
  int64_t cross_attention_dim = 1280;
  io::Object transformer_layers_per_block = int64_t(1);
  bool use_linear_projection = false;
  std::optional<std::string> addition_embed_type, class_embed_type;
  std::optional<int64_t> projection_class_embeddings_input_dim;

  io::Fields fields() {
    return {{"in_channels", &in_channels},
            {"out_channels", &out_channels},
            {"layers_per_block", &layers_per_block},
            {"block_out_channels", &block_out_channels},
            {"down_block_types", &down_block_types},
            {"up_block_types", &up_block_types},
            {"cross_attention_dim", &cross_attention_dim},
            {"transformer_layers_per_block", &transformer_layers_per_block},
            {"use_linear_projection", &use_linear_projection},
            {"addition_embed_type", &addition_embed_type},
            {"class_embed_type", &class_embed_type},
            {"projection_class_embeddings_input_dim", &projection_class_embeddings_input_dim}};
  }
};

bool crosses(const std::string& type, const char* with, const char* without) {
  SF_CHECK_AS(NotSupported, type == with || type == without, kWho, ": no LDM checkpoint has a block '", type, "'");
  return type == with;
}

struct UNetList : RowList {
  int64_t time = 0, context = 0;
  bool linear_projection = false;

  void resnet(const std::string& name, const std::string& source, int64_t in, int64_t out) {
    affine(name + ".norm1", source + ".in_layers.0", in);
    conv(name + ".conv1", source + ".in_layers.2", out, in, 3);
    linear(name + ".time_emb_proj", source + ".emb_layers.1", out, time);
    affine(name + ".norm2", source + ".out_layers.0", out);
    conv(name + ".conv2", source + ".out_layers.3", out, out, 3);
    if (in != out) conv(name + ".conv_shortcut", source + ".skip_connection", out, in, 1);
  }

  void transformer(const std::string& name, const std::string& source, int64_t c, int64_t depth) {
    auto same = [&](const std::string& layer, const char* project) {
      if (linear_projection) {
        linear(name + layer + project, source + layer + project, c, c);
      } else {
        conv(name + layer + project, source + layer + project, c, c, 1);
      }
    };
    affine(name + ".norm", source + ".norm", c);
    same("", ".proj_in");
    for (int64_t i = 0; i < depth; ++i) {
      std::string block = ".transformer_blocks." + std::to_string(i);
      auto layer = [&](const std::string& part, int64_t out, int64_t in, bool bias) { linear(name + block + part, source + block + part, out, in, bias); };
      for (bool cross : {false, true}) {
        std::string attn = cross ? ".attn2" : ".attn1";
        layer(attn + ".to_q", c, c, false);
        layer(attn + ".to_k", c, cross ? context : c, false);
        layer(attn + ".to_v", c, cross ? context : c, false);
        layer(attn + ".to_out.0", c, c, true);
      }
      layer(".ff.net.0.proj", 8 * c, c, true);  // GEGLU: value and gate of 4 * c
      layer(".ff.net.2", c, 4 * c, true);
      for (const char* norm : {".norm1", ".norm2", ".norm3"}) affine(name + block + norm, source + block + norm, c);
    }
    same("", ".proj_out");
  }
};

std::string at(const std::string& list, int64_t i) { return list + "." + std::to_string(i); }

}  // namespace

KeyRows unet_rows(const io::Object& config) {
  UNetFields f;
  io::read_fields(kWho, f.fields(), config);
  auto& channels = f.block_out_channels;
  int64_t n = int64_t(channels.size()), layers = f.layers_per_block;
  SF_CHECK(n >= 1 && n <= 16 && layers >= 1 && layers <= 64, kWho, ": needs 1 to 16 block_out_channels and 1 to 64 layers_per_block, got ", n, " and ", layers);
  SF_CHECK(int64_t(f.down_block_types.size()) == n && int64_t(f.up_block_types.size()) == n, kWho,
           ": block_out_channels, down_block_types and up_block_types must have one length, got ", n, ", ", f.down_block_types.size(), " and ",
           f.up_block_types.size());
  for (int64_t c : channels) SF_CHECK(c > 0 && c <= (1 << 20), kWho, ": block_out_channels must be positive, got ", c);
  auto depth = io::ints_for_blocks(kWho, "transformer_layers_per_block", f.transformer_layers_per_block, size_t(n));
  for (int64_t d : depth) SF_CHECK(d >= 0 && d <= 1024, kWho, ": transformer_layers_per_block must lie between 0 and 1024, got ", d);

  UNetList list;
  list.time = 4 * channels[0];
  list.context = f.cross_attention_dim;
  list.linear_projection = f.use_linear_projection;
  list.linear("time_embedding.linear_1", "time_embed.0", list.time, channels[0]);
  list.linear("time_embedding.linear_2", "time_embed.2", list.time, list.time);
  bool added = f.addition_embed_type.has_value(), classes = f.class_embed_type.has_value();
  SF_CHECK_AS(NotSupported, !added || f.addition_embed_type == "text_time", kWho, ": no LDM checkpoint has the addition_embed_type '", *f.addition_embed_type,
              "'");
  SF_CHECK_AS(NotSupported, !classes || f.class_embed_type == "projection", kWho, ": no LDM checkpoint has the class_embed_type '", *f.class_embed_type, "'");
  if (added || classes) {
    SF_CHECK(f.projection_class_embeddings_input_dim, kWho, ": needs projection_class_embeddings_input_dim beside its ",
             added ? "addition_embed_type" : "class_embed_type");
    std::string name = added ? "add_embedding" : "class_embedding";
    list.linear(name + ".linear_1", "label_emb.0.0", list.time, *f.projection_class_embeddings_input_dim);
    list.linear(name + ".linear_2", "label_emb.0.2", list.time, list.time);
  }

  list.conv("conv_in", "input_blocks.0.0", channels[0], f.in_channels, 3);
  for (int64_t i = 0; i < n; ++i) {
    std::string block = at("down_blocks", i);
    bool cross = crosses(f.down_block_types[size_t(i)], "CrossAttnDownBlock2D", "DownBlock2D");
    for (int64_t j = 0; j < layers; ++j) {
      std::string source = at("input_blocks", 1 + i * (layers + 1) + j);
      list.resnet(at(block + ".resnets", j), source + ".0", channels[size_t(j > 0 || i == 0 ? i : i - 1)], channels[size_t(i)]);
      if (cross) list.transformer(at(block + ".attentions", j), source + ".1", channels[size_t(i)], depth[size_t(i)]);
    }
    if (i + 1 < n) list.conv(block + ".downsamplers.0.conv", at("input_blocks", (i + 1) * (layers + 1)) + ".0.op", channels[size_t(i)], channels[size_t(i)], 3);
  }

  list.resnet("mid_block.resnets.0", "middle_block.0", channels.back(), channels.back());
  list.transformer("mid_block.attentions.0", "middle_block.1", channels.back(), depth.back());
  list.resnet("mid_block.resnets.1", "middle_block.2", channels.back(), channels.back());

  for (int64_t i = 0; i < n; ++i) {
    std::string block = at("up_blocks", i);
    bool cross = crosses(f.up_block_types[size_t(i)], "CrossAttnUpBlock2D", "UpBlock2D");
    int64_t out = channels[size_t(n - 1 - i)], before = channels[size_t(i == 0 ? n - 1 : n - i)], skip = channels[size_t(std::max<int64_t>(n - 2 - i, 0))];
    for (int64_t j = 0; j <= layers; ++j) {
      std::string source = at("output_blocks", i * (layers + 1) + j);
      list.resnet(at(block + ".resnets", j), source + ".0", (j == 0 ? before : out) + (j == layers ? skip : out), out);
      if (cross) list.transformer(at(block + ".attentions", j), source + ".1", out, depth[size_t(n - 1 - i)]);
      if (j == layers && i + 1 < n) list.conv(block + ".upsamplers.0.conv", source + (cross ? ".2.conv" : ".1.conv"), out, out, 3);
    }
  }
  list.affine("conv_norm_out", "out.0", channels[0]);
  list.conv("conv_out", "out.2", f.out_channels, channels[0], 3);
  return std::move(list.rows);
}

}  // namespace sf::models
