#include "scaffolding/models/transformers/tora_transformer_3d.h"

#include "scaffolding/models/parts/config_checks.h"

namespace sf::models {

io::Fields ToraTransformer3DConfig::fields() {
  io::Fields all = CogVideoXTransformer3DConfig::fields();
  all.push_back({"flow_in_channels", &flow_in_channels});
  all.push_back({"flow_channels", &flow_channels});
  all.push_back({"flow_resnets", &flow_resnets});
  return all;
}

namespace {

const char* const kWho = ToraTransformer3DModel::kName;
constexpr int64_t kMostResnets = 16;

ToraTransformer3DConfig checked(ToraTransformer3DConfig c) {
  check_sizes(kWho, {{"flow_in_channels", c.flow_in_channels}, {"flow_channels", c.flow_channels}});
  SF_CHECK(c.flow_resnets >= 1 && c.flow_resnets <= kMostResnets, kWho, ": flow_resnets must be between 1 and ",
           kMostResnets, ", got ", c.flow_resnets);
  check_sizes(kWho, {{"num_attention_heads", c.num_attention_heads}, {"attention_head_dim", c.attention_head_dim}});
  SF_CHECK(token_channels(c) % 32 == 0, kWho,
           ": num_attention_heads * attention_head_dim must be a multiple of 32, the groups of the fusers' norm, got ",
           token_channels(c));
  return c;
}

}  // namespace

ToraBlock::ToraBlock(const CogVideoXTransformer3DConfig& c, int64_t flow_channels)
    : CogVideoXBlock(c), fuser(std::make_shared<MGF>(flow_channels, token_channels(c))) {}

Tensor ToraBlock::guided(const Tensor& norm_hidden_states, const Tensor& guide) const {
  return guide ? (*fuser)(norm_hidden_states, guide) : norm_hidden_states;
}

ToraTransformer3DModel::ToraTransformer3DModel(Config config)
    : CogVideoXTransformer3DModel(checked(config),
                                  [&](const CogVideoXTransformer3DConfig& c, int64_t) {
                                    return std::make_shared<ToraBlock>(c, config.flow_channels);
                                  }),
      tora_options(config),
      traj_extractor({.in_channels = config.flow_in_channels,
                      .channels = config.flow_channels,
                      .features = config.num_layers,
                      .resnets_per_feature = config.flow_resnets,
                      .patch_size = config.patch_size,
                      .patch_size_t = config.patch_size_t.value_or(1)}) {
  for (auto& block : transformer_blocks) fuser.push_back(static_cast<ToraBlock&>(block).fuser);
}

Tensor ToraTransformer3DModel::forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                                       const Tensor& timestep, const Tensor& video_flow, const Tensor& ofs,
                                       const Tensor& image_rotary_emb) const {
  if (!video_flow) return predict(hidden_states, encoder_hidden_states, timestep, ofs, image_rotary_emb, {});
  patch_embed.check(kWho, encoder_hidden_states, hidden_states);
  const Shape &x = hidden_states.shape(), &flow = video_flow.shape();
  SF_CHECK(flow.size() == 5 && (flow[0] == x[0] || flow[0] == 1) && flow[1] == x[1] &&
               flow[2] == tora_options.flow_in_channels && flow[3] == x[3] && flow[4] == x[4],
           kWho, ": video_flow must be [", x[0], ", ", x[1], ", ", tora_options.flow_in_channels, ", ", x[3], ", ",
           x[4], "] or one sample of that, got ", flow);
  return predict(hidden_states, encoder_hidden_states, timestep, ofs, image_rotary_emb,
                 traj_extractor(video_flow, frame_batch));
}

void ToraTransformer3DModel::set_trainable(const std::string& part) {
  SF_CHECK(part == "tora" || part == "all" || part == "none", kWho,
           ": set_trainable takes 'tora', 'all' or 'none', got '", part, "'");
  for (auto& p : nn::named_parameters(*this)) {
    const bool own = p.name.starts_with("traj_extractor.") || p.name.starts_with("fuser.");
    p.tensor.requires_grad_(part == "all" || (part == "tora" && own));
  }
}

SF_MODEL(ToraTransformer3DModel)
    .doc(
        "Tora's transformer: CogVideoX's, steered by the latents of a flow's clip [B, T, C, H, W], which may be left "
        "out.")
    .forward<&ToraTransformer3DModel::forward>(
        "hidden_states, encoder_hidden_states, timestep, video_flow=None, ofs=None, image_rotary_emb=None")
    .field<&ToraTransformer3DModel::frame_batch>("frame_batch");

}  // namespace sf::models
