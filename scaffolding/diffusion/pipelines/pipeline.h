// DiffusionPipeline: networks, tokenizers and a scheduler that together turn prompts into pictures; diffusers' classes and arguments. A call draws
// from the CPU generator as diffusers does, so that the same seed gives the same picture. Calls run without recording gradients.
// Shares its components; one call at a time for those.
#pragma once
#include "scaffolding/diffusion/pipelines/denoiser_graphs.h"
#include "scaffolding/diffusion/pipelines/denoising.h"
#include "scaffolding/diffusion/pipelines/image_processor.h"
#include "scaffolding/diffusion/pipelines/prompt_embedding.h"
#include "scaffolding/tokenizers/clip_tokenizer.h"

namespace sf::diffusion {

struct PipelineComponents {
  std::shared_ptr<Autoencoder> vae;
  std::shared_ptr<TextEncoder> text_encoder, text_encoder_2;
  std::shared_ptr<const tokenizers::CLIPTokenizer> tokenizer, tokenizer_2;
  std::shared_ptr<Denoiser> unet;
  std::shared_ptr<Scheduler> scheduler;
  bool force_zeros_for_empty_prompt = true;  // SDXL: without a negative prompt its embeds are zeros
  bool requires_aesthetics_score = false;    // SDXL's refiner
  std::optional<double> guidance_scale;      // what the model's makers advise, for programs to begin with; calls take their own argument
  std::shared_ptr<DenoiserGraphs> graphs;    // shared by pipelines of the same denoiser; absent: of this one alone
};

// What a call of every pipeline takes.
struct GenerationOptions {
  std::vector<std::string> prompt, negative_prompt;  // one for each sample; a negative prompt may be one for all. Empty: embeds are given
  std::optional<int64_t> height, width;              // pixels; absent: what the denoiser was trained on
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
  bool capture = true;                           // on CUDA the denoiser's calls are replays of a graph, unless DenoiserGraphs::why_not
  bool cache_prompt = true;                      // what the denoiser makes of the text (keys and values of cross-attention) is computed once
  StepCallback callback_on_step_end;
  StepProgress progress;
  std::stop_token stop;  // asked between steps: Stopped is thrown, and nothing is left behind
};

struct PipelineOutput {
  Tensor images;                       // [B, 3, H, W] in [0, 1], or latents
  std::vector<std::string> truncated;  // parts of prompts that did not fit
};

class DiffusionPipeline : public PipelineComponents {
 public:
  explicit DiffusionPipeline(PipelineComponents components) : PipelineComponents(std::move(components)) {
    if (!graphs) graphs = std::make_shared<DenoiserGraphs>();
  }
  virtual ~DiffusionPipeline() = default;
  virtual const char* name() const = 0;  // diffusers' class name
  int64_t vae_scale_factor() const { return vae ? vae->scale_factor() : 8; }
  struct Size {
    int64_t height, width;  // pixels
  };
  Size size(const GenerationOptions& o) const;  // what was asked for, or what the denoiser was trained on

 protected:
  // ValueError for arguments that contradict each other, and for components that are needed and absent.
  void check_call(const GenerationOptions& o) const;
  void check_image(const Tensor& image) const;
  int64_t prompts(const GenerationOptions& o) const;  // how many
  Guidance guidance(const GenerationOptions& o) const;
  Tensor timestep_cond(const GenerationOptions& o, int64_t batch, DType dtype) const;
  // Noise [batch, channels, height / 8, width / 8] or the caller's latents, as strong as the scheduler begins.
  Tensor initial_latents(const GenerationOptions& o, int64_t batch, int64_t channels, int64_t height, int64_t width, DType dtype) const;
  void check_generators(const GenerationOptions& o, int64_t batch) const;
  // images[n, 3, H, W] in [-1, 1] to latents, each drawn by its own generator where there is a list of them. Latents come back as they are.
  Tensor encode_images(const Tensor& images, const Generators& generator, DType dtype) const;
  Tensor decoded(const Tensor& latents) const;  // to pictures in [0, 1], float32
};

// samples[n, ...] as often as they fit into a batch, all of them in turn. ValueError where they do not.
Tensor fill_batch(const char* who, const char* what, const Tensor& samples, int64_t batch);

struct StableDiffusionEmbeds {
  Tensor prompt_embeds, negative_prompt_embeds;  // [B, tokens, features]; the second undefined without guidance
  std::vector<std::string> truncated;
};

// What the pipelines of Stable Diffusion 1 and 2 share.
class StableDiffusionBase : public DiffusionPipeline {
 public:
  using DiffusionPipeline::DiffusionPipeline;
  // Of B = prompts * num_images_per_prompt samples.
  StableDiffusionEmbeds encode_prompt(const GenerationOptions& options) const;
};

}  // namespace sf::diffusion
