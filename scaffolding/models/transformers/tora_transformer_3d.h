// ToraTransformer3DModel: CogVideoX's transformer, steered by flow (Zhang et al. 2024, arXiv 2407.21705): the latents
// of a clip that shows in colours where things go become features, one for each block, which its fuser puts into the
// video's tokens before the attention. Without flow it is CogVideoX.
#pragma once
#include "scaffolding/models/transformers/cogvideox_transformer_3d.h"
#include "scaffolding/models/transformers/tora_motion.h"

namespace sf::models {

struct ToraTransformer3DConfig : CogVideoXTransformer3DConfig {
  // of the flow's latents, of the features, and residual blocks before each of them
  int64_t flow_in_channels = 16, flow_channels = 128, flow_resnets = 2;
  io::Fields fields();
};

struct ToraBlock : CogVideoXBlock {
  std::shared_ptr<MGF> fuser;  // the model names it
  ToraBlock(const CogVideoXTransformer3DConfig& c, int64_t flow_channels);

 protected:
  Tensor guided(const Tensor& norm_hidden_states, const Tensor& guide) const override;
};

struct ToraTransformer3DModel : CogVideoXTransformer3DModel {
  using Config = ToraTransformer3DConfig;
  static constexpr const char* kName = "ToraTransformer3DModel";
  Config tora_options;
  TrajExtractor traj_extractor;
  nn::ModuleList<MGF> fuser;  // of each block
  int64_t frame_batch = 4;    // steps in time that the extractor, which is per frame, takes at once; 0: all
  SF_MODULE(ToraTransformer3DModel, traj_extractor, fuser, patch_embed, embedding_dropout, time_embedding,
            ofs_embedding, transformer_blocks, norm_final, norm_out, proj_out)
  explicit ToraTransformer3DModel(Config config = {});
  io::Fields fields() override { return tora_options.fields(); }
  // CogVideoX's arguments, and video_flow[B, T, flow_in_channels, H, W] or [1, ...] for the whole batch, latents of the
  // flow's clip as large as hidden_states; absent: no steering.
  Tensor forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states, const Tensor& timestep,
                 const Tensor& video_flow = {}, const Tensor& ofs = {}, const Tensor& image_rotary_emb = {}) const;
  // What gets gradients: "tora" (the extractor and the fusers alone, as Tora is trained), "all" or "none".
  void set_trainable(const std::string& part);
};

}  // namespace sf::models
