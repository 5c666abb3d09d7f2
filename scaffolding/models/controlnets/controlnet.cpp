#include "scaffolding/models/controlnets/controlnet.h"

#include <cmath>
#include <map>

#include "scaffolding/core/error.h"
#include "scaffolding/core/stopping.h"
#include "scaffolding/io/config.h"
#include "scaffolding/models/parts/attention.h"
#include "scaffolding/models/parts/time_shifts.h"
#include "scaffolding/nn/init.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Fields ControlNetConfig::fields() {
  return {{"in_channels", &in_channels},
          {"conditioning_channels", &conditioning_channels},
          {"flip_sin_to_cos", &flip_sin_to_cos},
          {"freq_shift", &freq_shift},
          {"down_block_types", &down_block_types},
          {"mid_block_type", &mid_block_type},
          {"only_cross_attention", &only_cross_attention},
          {"block_out_channels", &block_out_channels},
          {"layers_per_block", &layers_per_block},
          {"downsample_padding", &downsample_padding},
          {"mid_block_scale_factor", &mid_block_scale_factor},
          {"act_fn", &act_fn},
          {"norm_num_groups", &norm_num_groups},
          {"norm_eps", &norm_eps},
          {"cross_attention_dim", &cross_attention_dim},
          {"transformer_layers_per_block", &transformer_layers_per_block},
          {"encoder_hid_dim", &encoder_hid_dim},
          {"encoder_hid_dim_type", &encoder_hid_dim_type},
          {"attention_head_dim", &attention_head_dim},
          {"num_attention_heads", &num_attention_heads},
          {"use_linear_projection", &use_linear_projection},
          {"class_embed_type", &class_embed_type},
          {"addition_embed_type", &addition_embed_type},
          {"addition_time_embed_dim", &addition_time_embed_dim},
          {"num_class_embeds", &num_class_embeds},
          {"upcast_attention", &upcast_attention},
          {"resnet_time_scale_shift", &resnet_time_scale_shift},
          {"projection_class_embeddings_input_dim", &projection_class_embeddings_input_dim},
          {"controlnet_conditioning_channel_order", &controlnet_conditioning_channel_order},
          {"conditioning_embedding_out_channels", &conditioning_embedding_out_channels},
          {"global_pool_conditions", &global_pool_conditions},
          {"addition_embed_type_num_heads", &addition_embed_type_num_heads}};
}

namespace {

// The fields that both configs have, from the one to the other, but for two that are lists in one of them alone.
void copy_fields(const io::Fields& from, const io::Fields& to) {
  const io::Object all = io::write_fields(from);
  io::Object common = io::Object::container(io::Object::Dict);
  for (auto& field : to) {
    const std::string name = field.name;
    const io::Object* value = name == "layers_per_block" || name == "cross_attention_dim" ? nullptr : all.find(name);
    if (value) common.items().insert(common.items().end(), {io::Object(name), *value});
  }
  io::read_fields(ControlNetModel::kName, to, common);
}

// The one number of a UNet's field that a ControlNet has no list for.
int64_t one_number(const char* field, const io::Object& value) {
  if (!value.is_sequence()) return value.as_int();
  const auto& items = value.items();
  for (auto& item : items)
    SF_CHECK_AS(NotSupported, !items.empty() && !item.is_sequence() && item.as_int() == items[0].as_int(),
                ControlNetModel::kName, ": the UNet's ", field, " must be the same in all of its levels");
  SF_CHECK(!items.empty(), ControlNetModel::kName, ": the UNet's ", field, " is an empty list");
  return items[0].as_int();
}

ControlNetConfig checked(ControlNetConfig c) {
  constexpr const char* who = ControlNetModel::kName;
  SF_CHECK(c.mid_block_type, who, ": mid_block_type must be UNetMidBlock2DCrossAttn or UNetMidBlock2D, got None");
  SF_CHECK_AS(NotSupported, !c.encoder_hid_dim && !c.encoder_hid_dim_type, who,
              ": encoder_hid_dim and encoder_hid_dim_type are not supported");
  SF_CHECK_AS(NotSupported, c.class_embed_type != "simple_projection", who,
              ": class_embed_type 'simple_projection' is not supported");
  const std::string& order = c.controlnet_conditioning_channel_order;
  SF_CHECK(order == "rgb" || order == "bgr", who,
           ": controlnet_conditioning_channel_order must be 'rgb' or 'bgr', got '", order, "'");
  SF_CHECK(c.conditioning_channels > 0 && c.conditioning_channels <= kMostChannels, who,
           ": conditioning_channels must be positive, got ", c.conditioning_channels);
  const auto& channels = c.conditioning_embedding_out_channels;
  SF_CHECK(!channels.empty() && channels.size() <= 16, who,
           ": conditioning_embedding_out_channels must have from 1 to 16 entries, got ", channels.size());
  for (int64_t n : channels)
    SF_CHECK(n > 0 && n <= kMostChannels, who, ": conditioning_embedding_out_channels must be positive, got ", n);
  checked_unet_config(who, c.unet());
  return c;
}

nn::Conv2d zero_convolution(int64_t in, int64_t out, int64_t kernel) {
  nn::Conv2d conv(in, out, kernel, conv_of_same_size(kernel));
  if (!conv.weight.device().is_meta()) nn::init::zeros_(conv.weight), nn::init::zeros_(conv.bias);
  return conv;
}

}  // namespace

UNet2DConditionConfig ControlNetConfig::unet() const {
  UNet2DConditionConfig unet;
  copy_fields(ControlNetConfig(*this).fields(), unet.fields());
  unet.layers_per_block = layers_per_block;
  unet.cross_attention_dim = cross_attention_dim;
  unet.up_block_types.assign(down_block_types.size(), "UpBlock2D");  // which it has not
  return unet;
}

ControlNetConfig ControlNetModel::config_beside(const UNet2DConditionConfig& unet) {
  Config c;
  copy_fields(UNet2DConditionConfig(unet).fields(), c.fields());
  c.addition_embed_type_num_heads = Config().addition_embed_type_num_heads;  // as diffusers has it
  c.layers_per_block = one_number("layers_per_block", unet.layers_per_block);
  c.cross_attention_dim = one_number("cross_attention_dim", unet.cross_attention_dim);
  return c;
}

ControlNetConditioningEmbedding::ControlNetConditioningEmbedding(int64_t channels, int64_t conditioning_channels,
                                                                 const std::vector<int64_t>& block_out_channels)
    : conv_in(conditioning_channels, block_out_channels[0], 3, conv_of_same_size(3)),
      conv_out(zero_convolution(block_out_channels.back(), channels, 3)) {
  for (size_t i = 0; i + 1 < block_out_channels.size(); ++i) {
    blocks.emplace_back(block_out_channels[i], block_out_channels[i], 3, conv_of_same_size(3));
    blocks.emplace_back(block_out_channels[i], block_out_channels[i + 1], 3,
                        nn::ConvOptions{.stride = 2, .padding = 1});
  }
}

Tensor ControlNetConditioningEmbedding::forward(const Tensor& conditioning) const {
  Tensor h = silu(conv_in(to_channels_last(conditioning)));
  for (auto& block : blocks) h = silu(block(h));
  return conv_out(h);
}

ControlNetModel::ControlNetModel(Config config)
    : ConfiguredModel(checked(std::move(config))),
      UNet2DConditionEncoder(kName, options.unet()),
      controlnet_cond_embedding(options.block_out_channels[0], options.conditioning_channels,
                                options.conditioning_embedding_out_channels),
      controlnet_mid_block(zero_convolution(options.block_out_channels.back(), options.block_out_channels.back(), 1)) {
  const auto& channels = options.block_out_channels;
  auto add = [&](int64_t n) { controlnet_down_blocks.emplace_back(zero_convolution(n, n, 1)); };
  add(channels[0]);
  for (size_t i = 0; i < channels.size(); ++i)
    for (int64_t j = options.layers_per_block + (i + 1 < channels.size() ? 1 : 0); j > 0; --j) add(channels[i]);
}

Tensors ControlNetModel::forward(const Tensor& sample, const Tensor& timestep, const Tensor& encoder_hidden_states,
                                 const Tensor& controlnet_cond, const Tensor& conditioning_scale,
                                 const Tensor& class_labels, const Tensor& timestep_cond, const Tensor& attention_mask,
                                 const Tensor& text_embeds, const Tensor& time_ids, bool guess_mode) const {
  check_inputs(sample, timestep, encoder_hidden_states);
  SF_CHECK(controlnet_cond && controlnet_cond.ndim() == 4 && controlnet_cond.size(1) == options.conditioning_channels &&
               controlnet_cond.size(0) == sample.size(0),
           kName, ": controlnet_cond must be [", sample.size(0), ", ", options.conditioning_channels,
           ", height, width], got ", controlnet_cond ? controlnet_cond.shape() : Shape());
  const Tensor mask = attention_bias(kName, "attention_mask", attention_mask, sample.dtype());
  const Tensor emb = embed(sample, timestep, class_labels, timestep_cond, encoder_hidden_states, text_embeds, time_ids);
  const TimeShifts shifts(emb, timed_blocks());

  const bool bgr = options.controlnet_conditioning_channel_order == "bgr";
  const Tensor seen = controlnet_cond_embedding(bgr ? flip(controlnet_cond, {1}) : controlnet_cond);
  // Channels last from here on, so that pixels are tokens without a copy.
  Tensor h = conv_in(to_channels_last(sample));
  SF_CHECK(seen.shape() == h.shape(), kName, ": controlnet_cond of ", controlnet_cond.size(2), " x ",
           controlnet_cond.size(3), " becomes ", seen.size(2), " x ", seen.size(3), " latents, and sample has ",
           h.size(2), " x ", h.size(3));
  h = h + seen;
  Tensors out{h};
  for (auto& block : down_blocks) {
    stop_here(kName);
    Tensors skips = block(h, emb, encoder_hidden_states, mask);
    h = skips.back();
    out.insert(out.end(), skips.begin(), skips.end());
  }
  stop_here(kName);
  h = (*mid_block)(h, emb, encoder_hidden_states, mask);
  for (size_t i = 0; i < out.size(); ++i) out[i] = controlnet_down_blocks[i](out[i]);
  out.push_back(controlnet_mid_block(h));

  // diffusers' torch.logspace(-1, 0, n): each of them less by a power of ten
  const bool less = guess_mode && !options.global_pool_conditions;
  for (size_t i = 0; i < out.size(); ++i) {
    const DType dtype = out[i].dtype();
    if (less) {
      const double share = std::pow(10.0, double(i) / double(out.size() - 1) - 1);
      out[i] = (out[i] * (conditioning_scale ? conditioning_scale * share : scalar_tensor(share, kFloat32))).to(dtype);
    } else if (conditioning_scale) {
      out[i] = (out[i] * conditioning_scale).to(dtype);
    }
    if (options.global_pool_conditions) out[i] = mean(out[i], {2, 3}, true);
  }
  return out;
}

std::unique_ptr<ControlNetModel> controlnet_from_unet(const UNet2DConditionModel& unet, const ControlNetConfig& config,
                                                      bool load_weights) {
  auto made = std::make_unique<ControlNetModel>(config);
  if (!load_weights) return made;
  std::map<std::string, Tensor> of_unet;
  for (auto& [key, t] : nn::state_dict(const_cast<UNet2DConditionModel&>(unet))) of_unet.emplace(key, t);
  std::map<std::string, Tensor> state;
  for (auto& [key, t] : nn::state_dict(*made)) {
    if (key.starts_with("controlnet_")) continue;
    auto at = of_unet.find(key);
    SF_CHECK(at != of_unet.end() && at->second.shape() == t.shape(), ControlNetModel::kName,
             ": the UNet has no layer '", key, "' of the shape ", t.shape(), "; its config must be the UNet's");
    state.emplace(key, at->second);
  }
  nn::load_state_dict(*made, state, {.strict = false});
  return made;
}

SF_MODEL(ControlNetModel)
    .doc(
        "diffusers' ControlNetModel, for Stable Diffusion 1.x, 2.x and XL: beside a UNet it sees latents [B, C, H, W] "
        "and a picture [B, 3, 8 H, 8 W], and gives what the UNet adds to its skips and, the last one, to its middle.")
    .forward<&ControlNetModel::forward>(
        "sample, timestep, encoder_hidden_states, controlnet_cond, conditioning_scale=None, class_labels=None, "
        "timestep_cond=None, attention_mask=None, text_embeds=None, time_ids=None, guess_mode=False");

}  // namespace sf::models
