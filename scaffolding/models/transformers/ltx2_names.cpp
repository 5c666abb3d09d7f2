#include "scaffolding/models/names/name_rules.h"

// Lightricks' names of LTX-2's networks, as its checkpoints, ComfyUI's and GGUF files and LoRAs have them. diffusers'
// scripts/convert_ltx2_to_diffusers.py says which tensor is which.
namespace sf::models {

namespace {

NameRules attention_norms() { return NameRules().rename("norm_q", "q_norm").rename("norm_k", "k_norm"); }

NameRules ltx2_block() {
  NameRules rules;
  for (const char* attention :
       {"attn1", "audio_attn1", "attn2", "audio_attn2", "audio_to_video_attn", "video_to_audio_attn"})
    rules.inside(attention, attention, attention_norms());
  return rules.rename("video_a2v_cross_attn_scale_shift_table", "scale_shift_table_a2v_ca_video")
      .rename("audio_a2v_cross_attn_scale_shift_table", "scale_shift_table_a2v_ca_audio");
}

SF_NAMES(LTX2VideoTransformer3DModel,
         "ltx2") = NameRules()
                       .rename("proj_in", "patchify_proj")
                       .rename("audio_proj_in", "audio_patchify_proj")
                       .rename("time_embed", "adaln_single")
                       .rename("audio_time_embed", "audio_adaln_single")
                       .rename("prompt_adaln", "prompt_adaln_single")
                       .rename("audio_prompt_adaln", "audio_prompt_adaln_single")
                       .rename("av_cross_attn_video_scale_shift", "av_ca_video_scale_shift_adaln_single")
                       .rename("av_cross_attn_audio_scale_shift", "av_ca_audio_scale_shift_adaln_single")
                       .rename("av_cross_attn_video_a2v_gate", "av_ca_a2v_gate_adaln_single")
                       .rename("av_cross_attn_audio_v2a_gate", "av_ca_v2a_gate_adaln_single")
                       .same({"caption_projection", "audio_caption_projection", "scale_shift_table",
                              "audio_scale_shift_table", "proj_out", "audio_proj_out", "transformer_blocks"})
                       .inside("transformer_blocks.{i}", "transformer_blocks.{i}", ltx2_block());

// denoiser: what stands before the names of what a checkpoint has beside the denoiser's layers.
NameRules connectors(const std::string& denoiser) {
  NameRules rules;
  rules.rename("text_proj_in", "text_embedding_projection.aggregate_embed")
      .rename("video_text_proj_in", "text_embedding_projection.video_aggregate_embed")
      .rename("audio_text_proj_in", "text_embedding_projection.audio_aggregate_embed");
  for (const std::string stream : {"video", "audio"}) {
    const std::string ours = stream + "_connector", theirs = denoiser + stream + "_embeddings_connector";
    rules.rename(ours, theirs)
        .rename(ours + ".transformer_blocks", theirs + ".transformer_1d_blocks")
        .inside(ours + ".transformer_blocks.{i}.attn1", theirs + ".transformer_1d_blocks.{i}.attn1", attention_norms());
  }
  return rules;
}

SF_NAMES(LTX2TextConnectors, "ltx2") = connectors("model.diffusion_model.");
SF_NAMES(LTX2TextConnectors, "ltx2_connectors") = connectors("");  // of files that hold nothing else

}  // namespace
}  // namespace sf::models
