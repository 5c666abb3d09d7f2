// What pipelines share that turn prompts into pictures: the options of their calls, and the checks.
#pragma once
#include "scaffolding/diffusion/pipelines/pipeline.h"
#include "scaffolding/diffusion/pipelines/prompt_embedding.h"

namespace sf::diffusion {

struct GenerationOptions {
  // one for each sample; a negative prompt may be one for all. Empty: embeds are given
  std::vector<std::string> prompt, negative_prompt;
  std::optional<int64_t> height, width;  // pixels; absent: what the denoiser was trained on
  int64_t num_inference_steps = 50;
  std::optional<std::vector<double>> timesteps, sigmas;
  double guidance_scale = 7.5;  // above 1: classifier-free guidance
  double guidance_rescale = 0;  // Lin et al. 2023, section 3.4
  GuidanceMode guidance_mode = GuidanceMode::Batched;
  std::optional<int64_t> clip_skip;  // layers of the text encoder that are left out
  PromptSyntax prompt_syntax = PromptSyntax::Plain;
  int64_t num_images_per_prompt = 1;
  double eta = 0;  // DDIM
  Generators generator;
  Tensor latents;                                // [B, C, h, w] of unit noise, instead of drawing
  Tensor prompt_embeds, negative_prompt_embeds;  // [prompts, tokens, features], instead of prompts
  bool output_latents = false;                   // the result is latents, not pictures
  bool capture = true;  // on CUDA the denoiser's calls are replays of a graph, unless DenoiserGraphs::why_not
  bool cache_prompt =
      true;  // what the denoiser makes of the text (keys and values of cross-attention) is computed once
  StepCallback callback_on_step_end;
  StepProgress progress;
  std::stop_token stop;      // asked between steps, and between tiles and chunks that are decoded: Stopped
  Ref<Scheduler> scheduler;  // of this run alone; absent: the pipeline's, which then has the state of this run

  OptionFields fields();
};

// ValueError for a list that is neither one text nor one for each of `prompts`.
void check_texts(const char* who, int64_t prompts,
                 std::initializer_list<std::pair<const char*, const std::vector<std::string>*>> lists);
// ValueError for embeds without the pooled ones of the same encoders, and for pooled ones that are not [prompts,
// features]. The latter are called "pooled_prompt_embeds" where the former are "prompt_embeds".
struct PooledBeside {
  const char* name;
  const Tensor *embeds, *pooled;
};
void check_pooled(const char* who, int64_t prompts, std::initializer_list<PooledBeside> lists);

class TextPipeline : public DiffusionPipeline {
 protected:
  // ValueError for arguments that contradict each other, and for components that are needed and absent.
  void check_call(const GenerationOptions& o) const;
  // The same for embeds that a UNet's cross-attention does not take.
  void check_cross_attention(const GenerationOptions& o) const;
  int64_t prompts(const GenerationOptions& o) const;  // how many
  Guidance guidance(const GenerationOptions& o) const;
  // of a denoiser that takes the guidance scale
  Tensor timestep_cond(const GenerationOptions& o, int64_t batch, DType dtype) const;
  StepSchedule schedule(Scheduler& scheduler, const GenerationOptions& o, std::optional<double> mu = {}) const;
};

}  // namespace sf::diffusion
