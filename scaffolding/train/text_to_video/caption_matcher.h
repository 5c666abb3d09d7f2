// CaptionMatcher: how a text encoder learns to tell clips by their captions before there is a transformer: both are
// matched (Radford et al. 2021, arXiv 2103.00020).
#pragma once
#include "scaffolding/models/text_encoders/t5.h"
#include "scaffolding/nn/conv.h"
#include "scaffolding/nn/linear.h"

namespace sf::train {

// Captions and clips as vectors that are alike where they belong together.
struct CaptionMatcher : nn::Module {
  static constexpr int64_t kWidth = 64;
  std::shared_ptr<models::T5EncoderModel> text_encoder;
  nn::Linear text_projection;
  nn::Conv2d conv1, conv2, conv3;  // of the latents of each frame
  nn::Linear clip_projection;
  Tensor logit_scale;  // the logarithm of what similarities are multiplied by
  SF_MODULE(CaptionMatcher, text_encoder, text_projection, conv1, conv2, conv3, clip_projection, logit_scale)
  CaptionMatcher(std::shared_ptr<models::T5EncoderModel> text, int64_t latent_channels);
  Tensor texts(const Tensor& ids) const;      // [B, M] -> [B, d_model] of unit length
  Tensor clips(const Tensor& latents) const;  // [B, T, C, h, w] -> [B, d_model] of unit length, wherever things are
  // Of ids[B, M] and latents[B, T, C, h, w]: how badly each is found among the others. Equal captions all belong to
  // each other's clips.
  Tensor forward(const Tensor& ids, const Tensor& latents) const;
};

}  // namespace sf::train
