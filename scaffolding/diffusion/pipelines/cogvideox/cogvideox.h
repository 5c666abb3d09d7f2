// What CogVideoX's pipelines share (Yang et al. 2024, arXiv 2408.06072): prompts that T5 reads, clips, positions of
// their tokens, guidance that varies, and steps of their schedulers.
#pragma once
#include "scaffolding/diffusion/pipelines/text_to_image.h"

namespace sf::diffusion {

struct CogVideoXOptions : GenerationOptions {
  std::optional<int64_t> num_frames;  // 4 k + 1, where latents have 4 in one; absent: those it was trained on
  bool use_dynamic_cfg = false;       // guidance grows from step to step, as diffusers computes it
  int64_t max_sequence_length = 226;  // tokens of a prompt
  CogVideoXOptions();
  OptionFields fields();
};

struct CogVideoXEmbeds {
  Tensor prompt_embeds, negative_prompt_embeds;  // [B, tokens, features]; the second undefined without guidance
  std::vector<std::string> truncated;
};

struct CogVideoXRun : Run {
  Tensor negative_prompt_embeds;  // for callbacks; the denoiser sees them beside the positive ones
  int64_t surplus = 0;            // latent frames at the beginning that nobody asked for: patches take several
  double guidance_scale = 0;      // as it was asked for, of guidance that varies
  bool frames_first = true;       // latents are [B, T, C, h, w]; else [B, C, T, h, w], as a DiTModel has them
  Tensor still(const Tensor& latents) const override {
    return frames_first ? latents.select(1, surplus) : latents.select(2, surplus);
  }
  Tensor& prompt_embeds() { return told.at("encoder_hidden_states"); }

 protected:
  void prepare_step() override;
  void advance(const Tensor& model_output) override;
  void keep_more(const Tensor& places) override;
  Tensor decodable(const Tensor& latents) const override { return latents.slice(1, surplus, latents.size(1)); }
  Tensor shaped(const Tensor& values) const override { return values.permute({0, 2, 1, 3, 4}); }

 private:
  Tensor predicted_;  // the sample without noise, by the last step
};

class CogVideoXBase : public TextPipeline {
 public:
  Ref<const tokenizers::Tokenizer> tokenizer;
  Ref<TextEncoder> text_encoder;
  Ref<Autoencoder> vae;
  Ref<Denoiser> transformer;
  Ref<Scheduler> scheduler;
  SF_COMPONENTS(tokenizer, text_encoder, vae, transformer, scheduler)

  // Of B = prompts * num_images_per_prompt samples.
  CogVideoXEmbeds encode_prompt(const CogVideoXOptions& options) const;
  std::vector<std::pair<std::string, Tensor>> prompt_tensors(const CogVideoXOptions& options) const;
  Size size(std::optional<int64_t> height = {}, std::optional<int64_t> width = {}) const override;
  Tensor decoded(const Tensor& latents) const override;  // [B, T, C, h, w] -> [B, 3, frames, H, W]

 protected:
  struct Clip {
    int64_t batch, frames, height, width;  // latents, with those that patches take besides
    int64_t surplus;                       // of the frames
  };
  // ValueError for sizes and numbers of frames that cannot be.
  Clip clip(const CogVideoXOptions& options) const;
  int64_t num_frames(const CogVideoXOptions& options) const;  // of a clip's pixels
  // From the checks to the arguments of the denoiser, to which a class may add.
  std::unique_ptr<CogVideoXRun> prepare_run(const CogVideoXOptions& options) const;
  // Then the noise that the run begins with, of so many channels.
  void draw_latents(CogVideoXRun& run, const CogVideoXOptions& options, int64_t channels) const;
  // Of a transformer that takes a picture's latents beside the noise: image [n, 3, H, W] in [-1, 1], of the clip's
  // size.
  void begin_with(CogVideoXRun& run, const CogVideoXOptions& options, const Tensor& image) const;
  int64_t frames_per_latent() const;

 private:
  // [B, T, C, h, w]: the picture's latents, and zeros for the frames behind.
  Tensor picture_latents(const CogVideoXOptions& options, const Tensor& image, DType dtype) const;
  Tensor rotary_positions(const Clip& clip) const;
};

}  // namespace sf::diffusion
