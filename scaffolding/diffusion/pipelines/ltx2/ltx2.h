// What LTX-2's pipelines share (Lightricks 2026, arXiv 2601.03233): prompts that Gemma 3 reads with all its layers,
// clips and their sound as two streams of tokens that are denoised together, and guidance of four kinds.
#pragma once
#include "scaffolding/diffusion/pipelines/ltx2/ltx2_run.h"
#include "scaffolding/diffusion/pipelines/text_to_image.h"

namespace sf::diffusion {

struct LTX2Options : GenerationOptions {
  std::optional<int64_t> num_frames = 121;  // 8 k + 1, where latents have 8 in one
  double frame_rate = 24;                   // frames a second, by which the sound's length is known
  double motion_speed = 1;                  // below 1: things move slower than in life
  // Guidance of the clip: guidance_scale and guidance_rescale are GenerationOptions'.
  double stg_scale = 1;       // away from what is made without attention in some blocks; on above 0
  double modality_scale = 3;  // away from what is made without the other stream; on above 1
  // Of its sound; absent, or 0: as the clip's.
  std::optional<double> audio_guidance_scale = 7, audio_stg_scale = 1, audio_modality_scale = 3,
                        audio_guidance_rescale = 0.7;
  std::optional<std::vector<double>> spatio_temporal_guidance_blocks = std::vector<double>{28};
  std::optional<double> noise_scale = 0;  // how much of given latents is noise
  Tensor audio_latents;  // [B, C, length, mel] as calls for latents return them, or tokens [B, length, C mel]
  Tensor prompt_attention_mask, negative_prompt_attention_mask;  // [prompts, tokens], with the embeds
  // Of an autoencoder that is told how much noise there is: that, and how much is drawn and put there; absent: as much.
  // One for all, or one for each clip.
  std::vector<double> decode_timestep{0};
  std::optional<std::vector<double>> decode_noise_scale;
  bool use_cross_timestep = true;  // false: LTX-2.0's way
  int64_t max_sequence_length = 1024;
  LTX2Options();
  OptionFields fields();
  LTX2Scales video_scales() const;
  LTX2Scales audio_scales() const;
};

struct LTX2Embeds {
  Tensor prompt_embeds, negative_prompt_embeds;                  // [prompts, tokens, features * layers]
  Tensor prompt_attention_mask, negative_prompt_attention_mask;  // int64 [prompts, tokens], 0 for padding
  std::vector<std::string> truncated;
};

// The arguments of a call, in diffusers' order: `first` before all others, `before_output` before output_type.
std::string ltx2_arguments(std::string_view first = "", std::string_view before_output = "");

class LTX2Base : public TextPipeline {
 public:
  Ref<Scheduler> scheduler;
  Ref<Autoencoder> vae;
  Ref<Autoencoder> audio_vae;
  Ref<TextEncoder> text_encoder;
  Ref<const tokenizers::Tokenizer> tokenizer;
  Ref<Network> connectors;
  Ref<Denoiser> transformer;
  Ref<Network> vocoder;
  Unused processor, prompt_enhancer, duration_head;
  SF_COMPONENTS(scheduler, vae, audio_vae, text_encoder, tokenizer, connectors, transformer, vocoder, processor,
                prompt_enhancer, duration_head)

  // Negative ones are undefined without guidance.
  LTX2Embeds encode_prompt(const LTX2Options& options) const;
  std::vector<std::pair<std::string, Tensor>> prompt_tensors(const LTX2Options& options) const;
  Size size(std::optional<int64_t> height = {}, std::optional<int64_t> width = {}) const override;
  int64_t side_multiple() const override;
  // Of classes whose options have image_crf. NotSupported where libav is missing and that is not 0.
  Tensor told_picture(const Tensor& picture, const AnyOptions& options) const override;
  const char* picture_resample() const override { return "bilinear"; }

 protected:
  // All but the latents: checks, prompts, what the denoiser is told.
  std::unique_ptr<LTX2Run> prepare_run(const LTX2Options& options) const;
  // The clip's latents, then those of its sound, drawn or given; then the schedule.
  void begin_with_noise(LTX2Run& run, const LTX2Options& options) const;
  // The same for a clip that begins with a picture, [n, 3, H, W] in [-1, 1].
  void begin_with_picture(LTX2Run& run, const LTX2Options& options, const Tensor& image) const;
  // Tokens that are told pictures are at other times than those that are made.
  static void told_by_tokens(LTX2Run& run);
  Tensor clean_latents(const Tensor& pixels) const;  // [n, 3, T, H, W] in [-1, 1], as the denoiser has them
  // Tokens of the latents that a call was given.
  Tensor given_latents(const LTX2Run& run, const LTX2Options& options) const;
  // as_tokens: noise is drawn in the order of tokens, not of latents
  void draw_audio(LTX2Run& run, const LTX2Options& options, bool as_tokens = false) const;
  void make_schedule_of(LTX2Run& run, const LTX2Options& options) const;

 private:
  LTX2Grid grid_of(const LTX2Options& options) const;
  std::pair<Tensor, Tensor> read(const std::vector<std::string>& prompts, int64_t length,
                                 std::vector<std::string>* lost) const;
};

}  // namespace sf::diffusion
