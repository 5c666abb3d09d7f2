#include "scaffolding/models/single_file/kinds.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace sf::models {

namespace {

// ---- configs, of the repositories that SingleFileKind::repository names; what is not said is the class's default

constexpr const char* kUNet1 = R"({
  "_class_name": "UNet2DConditionModel", "act_fn": "silu", "attention_head_dim": 8, "block_out_channels": [320, 640, 1280, 1280],
  "center_input_sample": false, "cross_attention_dim": 768,
  "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
  "downsample_padding": 1, "flip_sin_to_cos": true, "freq_shift": 0, "in_channels": 4, "layers_per_block": 2, "mid_block_scale_factor": 1,
  "norm_eps": 1e-05, "norm_num_groups": 32, "out_channels": 4, "sample_size": 64,
  "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"]})";
// SD 2.1 at 768 overflows float16 in attention, hence upcast_attention.
constexpr const char* kUNet2 = R"({"attention_head_dim": [5, 10, 20, 20], "cross_attention_dim": 1024, "dual_cross_attention": false,
  "only_cross_attention": false, "sample_size": 96, "upcast_attention": true, "use_linear_projection": true})";
constexpr const char* kUNet2Inpaint = R"({"attention_head_dim": [5, 10, 20, 20], "cross_attention_dim": 1024, "dual_cross_attention": false,
  "in_channels": 9, "only_cross_attention": false, "sample_size": 64, "use_linear_projection": true})";
constexpr const char* kUNetXL = R"({"addition_embed_type": "text_time", "addition_time_embed_dim": 256, "attention_head_dim": [5, 10, 20],
  "block_out_channels": [320, 640, 1280], "cross_attention_dim": 2048,
  "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"], "projection_class_embeddings_input_dim": 2816,
  "sample_size": 128, "transformer_layers_per_block": [1, 2, 10], "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
  "use_linear_projection": true})";
constexpr const char* kUNetRefiner = R"({"addition_embed_type": "text_time", "addition_time_embed_dim": 256, "attention_head_dim": [6, 12, 24, 24],
  "block_out_channels": [384, 768, 1536, 1536], "cross_attention_dim": 1280,
  "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
  "projection_class_embeddings_input_dim": 2560, "sample_size": 128, "transformer_layers_per_block": 4,
  "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"], "use_linear_projection": true})";

constexpr const char* kVae = R"({
  "_class_name": "AutoencoderKL", "act_fn": "silu", "block_out_channels": [128, 256, 512, 512],
  "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D"], "in_channels": 3,
  "latent_channels": 4, "layers_per_block": 2, "norm_num_groups": 32, "out_channels": 3, "sample_size": 512, "scaling_factor": 0.18215,
  "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D"]})";
constexpr const char* kVaeXL = R"({"force_upcast": true, "sample_size": 1024, "scaling_factor": 0.13025})";

constexpr const char* kClip = R"({
  "architectures": ["CLIPTextModel"], "attention_dropout": 0.0, "bos_token_id": 0, "eos_token_id": 2, "hidden_act": "quick_gelu",
  "hidden_size": 768, "initializer_factor": 1.0, "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05,
  "max_position_embeddings": 77, "model_type": "clip_text_model", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1,
  "projection_dim": 768, "vocab_size": 49408})";
// OpenCLIP's ViT-H without its last layer, and its ViT-bigG.
constexpr const char* kClipH = R"({"hidden_act": "gelu", "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
  "num_hidden_layers": 23, "projection_dim": 512})";
constexpr const char* kClipG = R"({"architectures": ["CLIPTextModelWithProjection"], "hidden_act": "gelu", "hidden_size": 1280,
  "intermediate_size": 5120, "num_attention_heads": 20, "num_hidden_layers": 32, "projection_dim": 1280})";

constexpr const char* kScheduler = R"({"beta_end": 0.012, "beta_schedule": "scaled_linear", "beta_start": 0.00085, "clip_sample": false,
  "num_train_timesteps": 1000, "set_alpha_to_one": false, "skip_prk_steps": true, "steps_offset": 1, "trained_betas": null})";
constexpr const char* kPndm = R"({"_class_name": "PNDMScheduler"})";
constexpr const char* kDdim = R"({"_class_name": "DDIMScheduler"})";
constexpr const char* kDdimV = R"({"_class_name": "DDIMScheduler", "prediction_type": "v_prediction"})";
constexpr const char* kEuler = R"({"_class_name": "EulerDiscreteScheduler", "interpolation_type": "linear", "prediction_type": "epsilon",
  "sample_max_value": 1.0, "timestep_spacing": "leading", "use_karras_sigmas": false})";

std::string patched(const char* base, const char* changes) {
  auto json = nlohmann::json::parse(base);
  json.update(nlohmann::json::parse(changes));
  return json.dump();
}

// ---- parts

SingleFilePart unet(const char* changes) {
  return {"unet", "diffusers", "UNet2DConditionModel", {"model.diffusion_model."}, unet_rows, patched(kUNet1, changes)};
}
SingleFilePart vae(const char* changes) { return {"vae", "diffusers", "AutoencoderKL", {"vae.", "first_stage_model.", ""}, vae_rows, patched(kVae, changes)}; }
SingleFilePart clip(const char* prefix) {
  return {"text_encoder", "transformers", "CLIPTextModel", {prefix}, [](const io::Object& c) { return clip_rows(c, false); }, kClip};
}
SingleFilePart clip_h() {
  auto rows = [](const io::Object& c) { return open_clip_rows(c, false); };
  return {"text_encoder", "transformers", "CLIPTextModel", {"cond_stage_model.model."}, rows, patched(kClip, kClipH)};
}
SingleFilePart clip_g(const char* prefix) {
  auto rows = [](const io::Object& c) { return open_clip_rows(c, true); };
  return {"text_encoder_2", "transformers", "CLIPTextModelWithProjection", {prefix}, rows, patched(kClip, kClipG)};
}
SingleFilePart scheduler(const char* changes) {
  std::string config = patched(kScheduler, changes);
  return {"scheduler", "diffusers", nlohmann::json::parse(config)["_class_name"], {}, nullptr, config};
}

const char* kXlFirst = "conditioner.embedders.0.transformer.";
const char* kNine = R"({"in_channels": 9})";  // the picture's latents and the mask besides

std::vector<SingleFileKind> make_kinds() {
  const char* sd = R"({"_class_name": "StableDiffusionPipeline"})";
  const char* inpaint = R"({"_class_name": "StableDiffusionInpaintPipeline"})";
  std::string nine_xl = patched(kUNetXL, kNine);
  return {
      {"v1",
       "Stable Diffusion 1.x",
       "stable-diffusion-v1-5/stable-diffusion-v1-5",
       sd,
       {scheduler(kPndm), clip("cond_stage_model.transformer."), unet("{}"), vae("{}")}},
      {"v2", "Stable Diffusion 2.x", "stabilityai/stable-diffusion-2-1", sd, {scheduler(kDdimV), clip_h(), unet(kUNet2), vae(R"({"sample_size": 768})")}},
      {"inpainting",
       "Stable Diffusion 1.x for inpainting",
       "stable-diffusion-v1-5/stable-diffusion-inpainting",
       inpaint,
       {scheduler(kDdim), clip("cond_stage_model.transformer."), unet(kNine), vae("{}")}},
      {"inpainting_v2",
       "Stable Diffusion 2.x for inpainting",
       "stabilityai/stable-diffusion-2-inpainting",
       inpaint,
       {scheduler(kPndm), clip_h(), unet(kUNet2Inpaint), vae("{}")}},
      {"xl_base",
       "Stable Diffusion XL",
       "stabilityai/stable-diffusion-xl-base-1.0",
       R"({"_class_name": "StableDiffusionXLPipeline", "force_zeros_for_empty_prompt": true})",
       {scheduler(kEuler), clip(kXlFirst), clip_g("conditioner.embedders.1.model."), unet(kUNetXL), vae(kVaeXL)}},
      {"xl_inpaint",
       "Stable Diffusion XL for inpainting",
       "diffusers/stable-diffusion-xl-1.0-inpainting-0.1",
       R"({"_class_name": "StableDiffusionXLInpaintPipeline", "force_zeros_for_empty_prompt": true, "requires_aesthetics_score": false})",
       {scheduler(kEuler), clip(kXlFirst), clip_g("conditioner.embedders.1.model."), unet(nine_xl.c_str()), vae(kVaeXL)}},
      {"xl_refiner",
       "Stable Diffusion XL's refiner",
       "stabilityai/stable-diffusion-xl-refiner-1.0",
       R"({"_class_name": "StableDiffusionXLImg2ImgPipeline", "force_zeros_for_empty_prompt": false, "requires_aesthetics_score": true})",
       {scheduler(kEuler), clip_g("conditioner.embedders.0.model."), unet(kUNetRefiner), vae(kVaeXL)}},
  };
}

// ---- recognition

// Other families, by a tensor that only they have: with or without "model.diffusion_model." before it.
struct Other {
  const char* title;
  std::vector<const char*> any;
};
const std::vector<Other>& others() {
  static const std::vector<Other> list = {
      {"Stable Diffusion 3", {"joint_blocks.0.context_block.adaLN_modulation.1.bias"}},
      {"FLUX.2", {"single_stream_modulation.lin.weight"}},
      {"FLUX.3", {"early_stream_modulations.image.lin.weight"}},
      {"Chroma", {"distilled_guidance_layer.in_proj.bias", "distilled_guidance_layer.in_proj.weight"}},
      {"FLUX.1", {"double_blocks.0.img_attn.norm.key_norm.scale"}},
      {"Stable Cascade", {"clip_txt_mapper.weight", "down_blocks.1.0.channelwise.0.weight"}},
      {"AuraFlow", {"double_layers.0.attn.w2q.weight"}},
      {"LTX-Video", {"patchify_proj.weight"}},
      {"HunyuanVideo", {"txt_in.individual_token_refiner.blocks.0.adaLN_modulation.1.bias"}},
      {"Mochi", {"blocks.0.attn.qkv_x.weight"}},
      {"Wan", {"head.modulation", "decoder.middle.0.residual.0.gamma"}},
      {"Lumina 2", {"cap_embedder.0.weight"}},
      {"Sana", {"blocks.0.cross_attn.kv_linear.weight"}},
      {"Cosmos", {"net.x_embedder.proj.1.weight"}},
      {"HiDream", {"double_stream_blocks.0.block.adaLN_modulation.1.bias"}},
      {"Qwen-Image", {"txt_in.text_norm.weight", "transformer_blocks.0.attn.add_k_proj.weight"}},
      {"Playground 2.5", {"edm_mean"}},
      {"a ControlNet", {"control_model.time_embed.0.weight", "controlnet_cond_embedding.conv_in.weight", "input_hint_block.0.weight"}},
      {"AnimateDiff", {"down_blocks.0.motion_modules.0.temporal_transformer.norm.weight"}},
  };
  return list;
}

bool is_lora_name(const std::string& n) {
  for (const char* mark : {"lora_up", "lora_down", ".lora_A", ".lora_B", "lora_unet_", "lora_te", ".hada_w", ".lokr_", ".lora.up", ".lora.down", "_lora."})
    if (n.find(mark) != std::string::npos) return true;
  return false;
}

}  // namespace

const std::vector<SingleFileKind>& single_file_kinds() {
  static const std::vector<SingleFileKind> kinds = make_kinds();
  return kinds;
}

const SingleFileKind& single_file_kind(const std::string& name) {
  std::string have;
  for (auto& k : single_file_kinds()) {
    if (k.name == name) return k;
    have += (have.empty() ? "" : ", ") + k.name;
  }
  fail("single file: there is no kind '", name, "'; there are ", have);
}

const SingleFileKind& recognise_single_file(const io::Checkpoint& file, const std::string& outer, const std::string& path) {
  auto has = [&](const std::string& name) { return file.contains(outer + name); };
  auto size = [&](const std::string& name, int64_t dim) {
    Shape s = has(name) ? file.entry(outer + name).shape : Shape{};
    return dim < 0 ? (s.empty() ? 0 : s.back()) : (dim < s.size() ? s[dim] : 0);
  };
  const std::string unet = "model.diffusion_model.", first = unet + "input_blocks.0.0.weight";
  auto names = file.names();
  size_t lora = size_t(std::count_if(names.begin(), names.end(), is_lora_name));
  SF_CHECK(lora == 0 || has(first), path, ": is a LoRA (", lora, " of its ", names.size(),
           " tensors are named so), not a model; load the model first and the LoRA into it");
  for (const char* n : {"emb_params", "string_to_param.*", "clip_l", "clip_g"})
    SF_CHECK(!has(n), path, ": is a textual inversion (an embedding of words), not a model");
  for (auto& other : others())
    for (const char* mark : other.any)
      SF_CHECK_AS(NotSupported, !has(mark) && !has(unet + mark), path, ": is ", other.title,
                  ", which is not supported yet; supported are Stable Diffusion 1.x, 2.x and XL");
  for (const char* n : {"down_blocks.0.resnets.0.conv1.weight", "encoder.down_blocks.0.resnets.0.conv1.weight", "text_model.final_layer_norm.weight"})
    SF_CHECK(!has(n), path, ": is one part of a pipeline in diffusers' names, not a whole checkpoint; load its folder by from_pretrained");

  bool v2 = size(unet + "input_blocks.2.1.transformer_blocks.0.attn2.to_k.weight", -1) == 1024 || has("cond_stage_model.model.token_embedding.weight");
  bool xl = has("conditioner.embedders.1.model.positional_embedding") || size(unet + "input_blocks.4.1.transformer_blocks.0.attn2.to_k.weight", -1) == 2048;
  bool refiner = !xl && (has("conditioner.embedders.0.model.positional_embedding") || size(first, 0) == 384);
  int64_t channels = size(first, 1);
  SF_CHECK_AS(NotSupported, !has(first) || channels == 4 || channels == 9, path, ": is a Stable Diffusion variant with ", channels, " input channels",
              channels == 8   ? " (InstructPix2Pix)"
              : channels == 7 ? " (the x4 upscaler)"
              : channels == 5 ? " (from depth)"
                              : "",
              ", which is not supported yet; supported are 4 and, for inpainting, 9");
  bool known = has(first) || v2 || xl || refiner;
  for (const char* n : {"cond_stage_model.transformer.text_model.final_layer_norm.weight", "cond_stage_model.transformer.final_layer_norm.weight",
                        "first_stage_model.encoder.conv_in.weight", "vae.encoder.conv_in.weight", "encoder.conv_in.weight",
                        "conditioner.embedders.0.transformer.text_model.final_layer_norm.weight"})
    known |= has(n);
  SF_CHECK(known, path, ": is no Stable Diffusion checkpoint: there is no tensor '", first, "' or another that belongs to one; it has ", names.size(),
           names.empty() ? "" : " tensors such as '", names.empty() ? "" : names.front(), names.empty() ? "" : "'");
  if (refiner) return single_file_kind("xl_refiner");
  if (channels == 9) return single_file_kind(v2 ? "inpainting_v2" : xl ? "xl_inpaint" : "inpainting");
  return single_file_kind(v2 ? "v2" : xl ? "xl_base" : "v1");
}

const SingleFileKind& kind_of_unet(const io::Object& config) {
  auto number = [&](const char* key, int64_t fallback) {
    const io::Object* found = config.find(key);
    return found && found->is(io::Object::Int) ? found->as_int() : fallback;
  };
  const io::Object* added = config.find("addition_embed_type");
  int64_t context = number("cross_attention_dim", 1280), channels = number("in_channels", 4);
  SF_CHECK_AS(NotSupported, channels == 4 || channels == 9, "single file: no kind has a UNet of ", channels, " input channels");
  if (added && !added->is(io::Object::None)) return single_file_kind(context == 1280 ? "xl_refiner" : channels == 9 ? "xl_inpaint" : "xl_base");
  bool v2 = context == 1024;
  return single_file_kind(channels == 9 ? (v2 ? "inpainting_v2" : "inpainting") : v2 ? "v2" : "v1");
}

}  // namespace sf::models
