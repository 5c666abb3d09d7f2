// What the pipelines of SDXL share (Podell et al. 2023, arXiv 2307.01952): two text encoders,
// and sizes and crops as conditioning.
#pragma once
#include "scaffolding/diffusion/pipelines/text_to_image.h"

namespace sf::diffusion {

struct StableDiffusionXLOptions : GenerationOptions {
  StableDiffusionXLOptions() { guidance_scale = 5; }
  // Of the second text encoder; empty: the same as the first's. Not read where the second one is alone (the refiner),
  // and negative_prompt_2 not where force_zeros_for_empty_prompt stands for an absent negative_prompt.
  std::vector<std::string> prompt_2, negative_prompt_2;
  Tensor pooled_prompt_embeds, negative_pooled_prompt_embeds;  // [prompts, features], with prompt_embeds
  std::optional<double>
      denoising_end;  // the share of the whole process after which the run ends, for a refiner to go on
  std::optional<PixelPair> original_size, target_size;  // absent: height and width
  PixelPair crops_coords_top_left{0, 0};
  std::optional<PixelPair> negative_original_size, negative_target_size;
  PixelPair negative_crops_coords_top_left{0, 0};
  OptionFields fields();
};

struct StableDiffusionXLEmbeds {
  Tensor prompt_embeds, negative_prompt_embeds;                // [B, tokens, features of both encoders]
  Tensor pooled_prompt_embeds, negative_pooled_prompt_embeds;  // [B, features]
  std::vector<std::string> truncated;
};

class StableDiffusionXLBase : public TextPipeline {
 public:
  Ref<Autoencoder> vae;
  Ref<TextEncoder> text_encoder, text_encoder_2;
  Ref<const tokenizers::Tokenizer> tokenizer, tokenizer_2;
  Ref<Denoiser> unet;
  Ref<Scheduler> scheduler;
  Unused image_encoder, feature_extractor;
  bool force_zeros_for_empty_prompt = true;  // without a negative prompt its embeds are zeros
  SF_COMPONENTS(vae, text_encoder, text_encoder_2, tokenizer, tokenizer_2, unet, scheduler, image_encoder,
                feature_extractor)
  io::Fields fields() override { return {{"force_zeros_for_empty_prompt", &force_zeros_for_empty_prompt}}; }

  // Of B = prompts * num_images_per_prompt samples; negative ones are undefined without guidance.
  StableDiffusionXLEmbeds encode_prompt(const StableDiffusionXLOptions& options) const;
  std::vector<std::pair<std::string, Tensor>> prompt_tensors(const StableDiffusionXLOptions& options) const;
  // the autoencoder in float32 where float16 would overflow in it
  Tensor decoded(const Tensor& latents) const override;

 protected:
  void check_xl(const StableDiffusionXLOptions& o) const;  // what all runs of these check
  // The beginning of every run: its guidance and schedule. Returns the prompts' embeds.
  StableDiffusionXLEmbeds prepare_run(Run& run, const StableDiffusionXLOptions& o) const;
  // [1, n] of the numbers; ValueError where the denoiser wants more or fewer.
  Tensor time_ids(const std::vector<double>& ids, const Tensor& pooled) const;
  // Of a run that begins with noise: tell(), with the sizes and crops of pictures of height x width.
  void tell_sizes(Run& run, const StableDiffusionXLOptions& o, const StableDiffusionXLEmbeds& embeds, int64_t height,
                  int64_t width) const;
  // And its end: the schedule without what is behind denoising_end, the denoiser's arguments, and what callbacks see.
  // add_time_ids: with both halves where guidance is on.
  void tell(Run& run, const StableDiffusionXLOptions& o, const StableDiffusionXLEmbeds& embeds,
            const Tensor& add_time_ids) const;
  int64_t training_cutoff(double share) const;  // the training timestep at which that share of the process is done

  // The autoencoder in float32 where float16 would overflow in it.
  class UpcastVae {
   public:
    explicit UpcastVae(Autoencoder& vae);

   private:
    std::shared_ptr<void> widened_;
  };

 private:
  void end_at(StepSchedule& schedule, std::optional<double> denoising_end) const;
};

}  // namespace sf::diffusion
