// ControlNetModel: a copy of a UNet's way down that sees a picture besides - edges, depths, a pose - and tells the UNet
// what to add to its skips (Zhang et al. 2023, arXiv 2302.05543).
#pragma once
#include "scaffolding/models/unets/unet_2d_condition.h"

namespace sf::models {

// diffusers' fields. Object: a number, or a list with one for each level.
struct ControlNetConfig {
  int64_t in_channels = 4, conditioning_channels = 3;
  bool flip_sin_to_cos = true;
  int64_t freq_shift = 0;
  std::vector<std::string> down_block_types{"CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D",
                                            "DownBlock2D"};
  std::optional<std::string> mid_block_type = "UNetMidBlock2DCrossAttn";
  io::Object only_cross_attention = false;
  std::vector<int64_t> block_out_channels{320, 640, 1280, 1280};
  int64_t layers_per_block = 2, downsample_padding = 1;
  double mid_block_scale_factor = 1;
  std::string act_fn = "silu";
  std::optional<int64_t> norm_num_groups = 32;
  double norm_eps = 1e-5;
  int64_t cross_attention_dim = 1280;
  io::Object transformer_layers_per_block = int64_t(1);
  std::optional<int64_t> encoder_hid_dim;
  std::optional<std::string> encoder_hid_dim_type;
  io::Object attention_head_dim = int64_t(8);  // the number of heads, by a mistake that all configs keep
  io::Object num_attention_heads;              // where it is given, instead
  bool use_linear_projection = false;
  std::optional<std::string> class_embed_type, addition_embed_type;
  std::optional<int64_t> addition_time_embed_dim, num_class_embeds;
  bool upcast_attention = false;
  std::string resnet_time_scale_shift = "default";
  std::optional<int64_t> projection_class_embeddings_input_dim;
  std::string controlnet_conditioning_channel_order = "rgb";
  std::vector<int64_t> conditioning_embedding_out_channels{16, 32, 96, 256};
  bool global_pool_conditions = false;
  int64_t addition_embed_type_num_heads = 64;
  io::Fields fields();

  UNet2DConditionConfig unet() const;  // whose way down it is
};

// A picture [B, C, H, W] to what is added to the first convolution's result [B, channels, H / 8, W / 8]: each entry of
// block_out_channels but the first halves it.
struct ControlNetConditioningEmbedding : nn::Module {
  nn::Conv2d conv_in;
  nn::ModuleList<nn::Conv2d> blocks;
  nn::Conv2d conv_out;
  SF_MODULE(ControlNetConditioningEmbedding, conv_in, blocks, conv_out)
  ControlNetConditioningEmbedding(int64_t channels, int64_t conditioning_channels,
                                  const std::vector<int64_t>& block_out_channels);
  Tensor forward(const Tensor& conditioning) const;
};

struct ControlNetModel : ConfiguredModel<ControlNetConfig>, UNet2DConditionEncoder {
  static constexpr const char* kName = "ControlNetModel";
  ControlNetConditioningEmbedding controlnet_cond_embedding;
  nn::ModuleList<nn::Conv2d> controlnet_down_blocks;
  nn::Conv2d controlnet_mid_block;
  SF_MODULE(ControlNetModel, conv_in, time_embedding, class_embedding, add_embedding, controlnet_cond_embedding,
            down_blocks, controlnet_down_blocks, controlnet_mid_block, mid_block)

  // What it adds is zero until it has learned or has a file's weights.
  explicit ControlNetModel(Config config = {});

  // What to add to each of the UNet's skips, the first one first, and behind these to its middle.
  // Arguments that UNet2DConditionModel has too are the same there, and
  //   controlnet_cond[B, conditioning_channels, 8 H, 8 W] in [0, 1]
  //   conditioning_scale: a number [], or what can be multiplied with [B, C, h, w]; absent: 1
  //   guess_mode: the upper skips get less, from 0.1 on, unless the config has global_pool_conditions
  Tensors forward(const Tensor& sample, const Tensor& timestep, const Tensor& encoder_hidden_states,
                  const Tensor& controlnet_cond, const Tensor& conditioning_scale = {}, const Tensor& class_labels = {},
                  const Tensor& timestep_cond = {}, const Tensor& attention_mask = {}, const Tensor& text_embeds = {},
                  const Tensor& time_ids = {}, bool guess_mode = false) const;

  // The config of a ControlNet beside such a UNet.
  static Config config_beside(const UNet2DConditionConfig& unet);
  // A config from a file's tensors, in diffusers' names or in those of the first ControlNets.
  static io::Object config_of_weights(const std::vector<io::CheckpointEntry>& tensors);
};

// A ControlNet that begins as the UNet's way down, with copies of its weights. `config`: config_beside(unet.options),
// changed where another picture is to be seen; ValueError where its layers are not the UNet's.
std::unique_ptr<ControlNetModel> controlnet_from_unet(const UNet2DConditionModel& unet, const ControlNetConfig& config,
                                                      bool load_weights = true);

}  // namespace sf::models
