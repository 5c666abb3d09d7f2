#include "scaffolding/io/config.h"
#include "scaffolding/models/single_file/row_list.h"

namespace sf::models {

namespace {

constexpr const char* kWho = "AutoencoderKL";

struct VaeList : RowList {
  void resnet(const std::string& name, const std::string& source, int64_t in, int64_t out) {
    affine(name + ".norm1", source + ".norm1", in);
    conv(name + ".conv1", source + ".conv1", out, in, 3);
    affine(name + ".norm2", source + ".norm2", out);
    conv(name + ".conv2", source + ".conv2", out, out, 3);
    if (in != out) conv(name + ".conv_shortcut", source + ".nin_shortcut", out, in, 1);
  }
  void middle(const std::string& part, int64_t c) {
    std::string attention = part + ".mid_block.attentions.0", source = part + ".mid.attn_1";
    resnet(part + ".mid_block.resnets.0", part + ".mid.block_1", c, c);
    affine(attention + ".group_norm", source + ".norm", c);
    const char* const layers[][2] = {{".to_q", ".q"}, {".to_k", ".k"}, {".to_v", ".v"}, {".to_out.0", ".proj_out"}};
    for (auto& [to, from] : layers) {
      add(attention + to + ".weight", source + from + ".weight", {c, c}, KeyChange::Flatten);
      add(attention + to + ".bias", source + from + ".bias", {c});
    }
    resnet(part + ".mid_block.resnets.1", part + ".mid.block_2", c, c);
  }
};

std::string at(const std::string& list, int64_t i) { return list + "." + std::to_string(i); }

}  // namespace

KeyRows vae_rows(const io::Object& config) {
  int64_t in_channels = 3, out_channels = 3, latent = 4, layers = 1;
  std::vector<int64_t> channels = {64};
  std::vector<std::string> down_types = {"DownEncoderBlock2D"}, up_types = {"UpDecoderBlock2D"};
  bool quant = true, post_quant = true;
  io::read_fields(kWho,
                  {{"in_channels", &in_channels},
                   {"out_channels", &out_channels},
                   {"latent_channels", &latent},
                   {"layers_per_block", &layers},
                   {"block_out_channels", &channels},
                   {"down_block_types", &down_types},
                   {"up_block_types", &up_types},
                   {"use_quant_conv", &quant},
                   {"use_post_quant_conv", &post_quant}},
                  config);
  int64_t n = int64_t(channels.size());
  SF_CHECK(n >= 1 && n <= 16 && layers >= 1 && layers <= 64, kWho, ": needs 1 to 16 block_out_channels and 1 to 64 layers_per_block, got ", n, " and ", layers);
  for (int64_t c : channels) SF_CHECK(c > 0 && c <= (1 << 20), kWho, ": block_out_channels must be positive, got ", c);
  for (auto& t : down_types) SF_CHECK_AS(NotSupported, t == "DownEncoderBlock2D", kWho, ": no LDM checkpoint has a block '", t, "'");
  for (auto& t : up_types) SF_CHECK_AS(NotSupported, t == "UpDecoderBlock2D", kWho, ": no LDM checkpoint has a block '", t, "'");

  VaeList list;
  list.conv("encoder.conv_in", "encoder.conv_in", channels[0], in_channels, 3);
  for (int64_t i = 0; i < n; ++i) {
    std::string block = at("encoder.down_blocks", i), source = at("encoder.down", i);
    for (int64_t j = 0; j < layers; ++j)
      list.resnet(at(block + ".resnets", j), at(source + ".block", j), channels[size_t(j > 0 || i == 0 ? i : i - 1)], channels[size_t(i)]);
    if (i + 1 < n) list.conv(block + ".downsamplers.0.conv", source + ".downsample.conv", channels[size_t(i)], channels[size_t(i)], 3);
  }
  list.middle("encoder", channels.back());
  list.affine("encoder.conv_norm_out", "encoder.norm_out", channels.back());
  list.conv("encoder.conv_out", "encoder.conv_out", 2 * latent, channels.back(), 3);  // mean and log of the variance
  list.conv("decoder.conv_in", "decoder.conv_in", channels.back(), latent, 3);
  list.middle("decoder", channels.back());
  for (int64_t i = 0; i < n; ++i) {  // LDM counts up-blocks by resolution, diffusers by order
    std::string block = at("decoder.up_blocks", i), source = at("decoder.up", n - 1 - i);
    int64_t out = channels[size_t(n - 1 - i)], before = channels[size_t(i == 0 ? n - 1 : n - i)];
    for (int64_t j = 0; j <= layers; ++j) list.resnet(at(block + ".resnets", j), at(source + ".block", j), j == 0 ? before : out, out);
    if (i + 1 < n) list.conv(block + ".upsamplers.0.conv", source + ".upsample.conv", out, out, 3);
  }
  list.affine("decoder.conv_norm_out", "decoder.norm_out", channels[0]);
  list.conv("decoder.conv_out", "decoder.conv_out", out_channels, channels[0], 3);
  if (quant) list.conv("quant_conv", "quant_conv", 2 * latent, 2 * latent, 1);
  if (post_quant) list.conv("post_quant_conv", "post_quant_conv", latent, latent, 1);
  return std::move(list.rows);
}

}  // namespace sf::models
