#include "scaffolding/models/unets/unet_2d_condition.h"

#include "scaffolding/core/error.h"
#include "scaffolding/core/stopping.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/models/parts/time_shifts.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Fields UNet2DConditionConfig::fields() {
  return {{"sample_size", &sample_size},
          {"in_channels", &in_channels},
          {"out_channels", &out_channels},
          {"center_input_sample", &center_input_sample},
          {"flip_sin_to_cos", &flip_sin_to_cos},
          {"freq_shift", &freq_shift},
          {"down_block_types", &down_block_types},
          {"mid_block_type", &mid_block_type},
          {"up_block_types", &up_block_types},
          {"only_cross_attention", &only_cross_attention},
          {"block_out_channels", &block_out_channels},
          {"layers_per_block", &layers_per_block},
          {"downsample_padding", &downsample_padding},
          {"mid_block_scale_factor", &mid_block_scale_factor},
          {"dropout", &dropout},
          {"act_fn", &act_fn},
          {"norm_num_groups", &norm_num_groups},
          {"norm_eps", &norm_eps},
          {"cross_attention_dim", &cross_attention_dim},
          {"transformer_layers_per_block", &transformer_layers_per_block},
          {"reverse_transformer_layers_per_block", &reverse_transformer_layers_per_block},
          {"encoder_hid_dim", &encoder_hid_dim},
          {"encoder_hid_dim_type", &encoder_hid_dim_type},
          {"attention_head_dim", &attention_head_dim},
          {"num_attention_heads", &num_attention_heads},
          {"dual_cross_attention", &dual_cross_attention},
          {"use_linear_projection", &use_linear_projection},
          {"class_embed_type", &class_embed_type},
          {"addition_embed_type", &addition_embed_type},
          {"addition_time_embed_dim", &addition_time_embed_dim},
          {"num_class_embeds", &num_class_embeds},
          {"upcast_attention", &upcast_attention},
          {"resnet_time_scale_shift", &resnet_time_scale_shift},
          {"resnet_skip_time_act", &resnet_skip_time_act},
          {"resnet_out_scale_factor", &resnet_out_scale_factor},
          {"time_embedding_type", &time_embedding_type},
          {"time_embedding_dim", &time_embedding_dim},
          {"time_embedding_act_fn", &time_embedding_act_fn},
          {"timestep_post_act", &timestep_post_act},
          {"time_cond_proj_dim", &time_cond_proj_dim},
          {"conv_in_kernel", &conv_in_kernel},
          {"conv_out_kernel", &conv_out_kernel},
          {"projection_class_embeddings_input_dim", &projection_class_embeddings_input_dim},
          {"attention_type", &attention_type},
          {"class_embeddings_concat", &class_embeddings_concat},
          {"mid_block_only_cross_attention", &mid_block_only_cross_attention},
          {"cross_attention_norm", &cross_attention_norm},
          {"addition_embed_type_num_heads", &addition_embed_type_num_heads}};
}

namespace {
Shape spatial(const Tensor& t) { return {t.size(2), t.size(3)}; }
}  // namespace

UNet2DConditionModel::UNet2DConditionModel(Config config)
    : ConfiguredModel(checked_unet_config(kName, std::move(config))),
      UNet2DConditionEncoder(kName, options),
      conv_norm_out(*options.norm_num_groups, options.block_out_channels[0], options.norm_eps),
      conv_out(options.block_out_channels[0], options.out_channels, options.conv_out_kernel,
               conv_of_same_size(options.conv_out_kernel)) {
  const auto& c = options;
  const UNetLevels levels(kName, c);
  const auto& channels = c.block_out_channels;
  const size_t n = channels.size(), last = n - 1;
  if (c.encoder_hid_dim) encoder_hid_proj.emplace(*c.encoder_hid_dim, levels.cross_attention_dim[0]);
  for (size_t i = 0; i < n; ++i) {
    const size_t level = last - i;
    UNetBlockOptions o = unet_block_options(c, levels, level);
    o.in_channels = channels[i == 0 ? last : level + 1], o.out_channels = channels[level],
    o.skip_channels = channels[level == 0 ? 0 : level - 1];
    o.num_layers = levels.layers[level] + 1;
    o.resample = i != last;
    if (c.up_block_types[i] == "UpBlock2D") {
      up_blocks.emplace_back<UpBlock2D>(o);
    } else {
      o.transformer_layers =
          transformer_layers_of(kName, "reverse_transformer_layers_per_block", levels.up_transformers[i], o.num_layers);
      up_blocks.emplace_back<CrossAttnUpBlock2D>(o);
    }
  }
}

std::vector<const ResnetBlock2D*> UNet2DConditionModel::timed_blocks() const {
  std::vector<const ResnetBlock2D*> blocks = UNet2DConditionEncoder::timed_blocks();
  for (auto& block : up_blocks)
    for (auto& resnet : block.resnets) blocks.push_back(&resnet);
  return blocks;
}

Tensor UNet2DConditionModel::forward(const Tensor& input, const Tensor& timestep, const Tensor& encoder_hidden_states,
                                     const Tensor& class_labels, const Tensor& timestep_cond,
                                     const Tensor& attention_mask, const Tensor& encoder_attention_mask,
                                     const Tensor& text_embeds, const Tensor& time_ids, const Tensors& control_down,
                                     const Tensor& control_mid, const Tensors& adapter) const {
  check_inputs(input, timestep, encoder_hidden_states);
  SF_CHECK(control_down.empty() == !control_mid, kName,
           ": down_block_additional_residuals and mid_block_additional_residual come together");
  const Tensor mask = attention_bias(kName, "attention_mask", attention_mask, input.dtype());
  const Tensor context_mask = attention_bias(kName, "encoder_attention_mask", encoder_attention_mask, input.dtype());
  const Tensor emb = embed(input, timestep, class_labels, timestep_cond, encoder_hidden_states, text_embeds, time_ids);
  const TimeShifts shifts(emb, timed_blocks());
  const Tensor context =
      encoder_hid_proj ? project_text(*encoder_hid_proj, encoder_hidden_states) : encoder_hidden_states;

  // Channels last from here on, so that pixels are tokens without a copy.
  Tensor h = conv_in(to_channels_last(options.center_input_sample ? 2 * input - 1 : input));
  Tensors skips{h};
  size_t adapted = 0;
  for (auto& block : down_blocks) {
    stop_here(kName);
    // diffusers adds behind the last attention, or else behind the downsampler
    const bool inside = !block.attentions.empty();
    const Tensor extra = adapted < adapter.size() ? adapter[adapted++] : Tensor();
    Tensors out = block(h, emb, context, mask, context_mask, inside ? extra : Tensor());
    if (extra && !inside) out.back() = out.back() + extra;
    h = out.back();
    skips.insert(skips.end(), out.begin(), out.end());
  }
  if (control_mid) {
    SF_CHECK(control_down.size() == skips.size(), kName, ": needs ", skips.size(),
             " down_block_additional_residuals, got ", control_down.size());
    for (size_t i = 0; i < skips.size(); ++i) skips[i] = skips[i] + control_down[i];
  }
  if (mid_block) {
    stop_here(kName);
    h = (*mid_block)(h, emb, context, mask, context_mask);
    if (adapted < adapter.size() && adapter[adapted].shape() == h.shape()) h = h + adapter[adapted++];
  }
  SF_CHECK(adapted == adapter.size(), kName, ": takes ", adapted, " down_intrablock_additional_residuals here, got ",
           adapter.size());
  if (control_mid) h = h + control_mid;
  for (auto& block : up_blocks) {
    stop_here(kName);
    const size_t n = block.resnets.size();
    Tensors taken(skips.end() - int64_t(n), skips.end());
    skips.erase(skips.end() - int64_t(n), skips.end());
    // An odd size was rounded up on the way down: the skips know what it was.
    h = block(h, taken, emb, context, skips.empty() ? Shape() : spatial(skips.back()), mask, context_mask);
  }
  h = conv_out(norm_silu(conv_norm_out, h));
  return input.is_contiguous() ? contiguous(h) : h;
}

SF_MODEL(UNet2DConditionModel)
    .doc(
        "diffusers' UNet2DConditionModel, the denoiser of Stable Diffusion 1.x, 2.x and XL: latents [B, C, H, W] at a "
        "timestep, with text [B, M, D].")
    .forward<&UNet2DConditionModel::forward>(
        "sample, timestep, encoder_hidden_states, class_labels=None, timestep_cond=None, attention_mask=None, "
        "encoder_attention_mask=None, text_embeds=None, "
        "time_ids=None, down_block_additional_residuals=[], mid_block_additional_residual=None, "
        "down_intrablock_additional_residuals=[]");

}  // namespace sf::models
