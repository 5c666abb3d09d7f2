// The kinds of nodes that graphs may have: what each takes, gives and does.
#include <algorithm>
#include <array>
#include <cmath>

#include "scaffolding/data/resize.h"
#include "scaffolding/io/json.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/server/apis/comfy_evaluation.h"
#include "scaffolding/server/apis/comfy_pictures.h"
#include "scaffolding/server/jobs/masks.h"

namespace sf::server {

namespace {

constexpr int64_t kMostSide = 16384;

using E = ComfyEvaluation;
using Values = std::vector<ComfyValue>;

// The job, from what the sampler's node has. What it gives stands for the job's pictures.
Values sample(E& e, const ComfyGuider& g, const ComfyLatent& latent, const ComfySigmas& sigmas,
              const ComfySampler& sampler, int64_t seed) {
  if (!e.out.sampler.empty())
    e.refuse("the graph has another sampler, node " + printable(e.out.sampler.substr(0, 40)) +
             "; this server makes one pass");
  if (latent.made) e.refuse("a second pass is not served");
  e.out.sampler = e.id();
  NewJob& job = e.out.job;
  JobRequest& r = job.request;
  r.api = "comfy";
  r.model = g.model.name, r.loras = g.model.loras;
  if (g.positive.clip.model != r.model) e.refuse("text of another model's CLIP is not served");
  for (auto& t : g.positive.clip.loras) {
    auto at = std::find_if(r.loras.begin(), r.loras.end(), [&](auto& tag) { return tag.name == t.name; });
    if (at == r.loras.end()) r.loras.push_back(t);
    else at->text_encoders = t.text_encoders;
  }
  r.prompt = g.positive.text, r.negative_prompt = g.negative.text;
  if (g.positive.clip.skip > 0) r.options["clip_skip"] = std::to_string(g.positive.clip.skip);
  if (g.model.rescale > 0) r.options["guidance_rescale"] = io::json_text(json(g.model.rescale));
  r.guidance = g.scale, r.seed = seed, r.count = latent.batch, r.vae = latent.vae.name;
  const auto schedule = e.named([&] { return e.c.jobs.samplers().schedule(sigmas.schedule); });
  r.sampler = e.named([&] { return e.c.jobs.samplers().named(sampler.name); });
  r.scheduler_options = schedule.options;
  r.width = latent.width, r.height = latent.height;
  // denoise: as many steps, of a longer way; a later start: fewer of the same.
  r.steps = int64_t(std::lround(double(sigmas.steps) / sigmas.denoise));
  r.strength = std::min(1.0, sigmas.denoise * (1 - double(sigmas.start) / double(sigmas.steps)) + 1e-9);
  if (r.steps > e.c.limits.steps) e.refuse("at most " + std::to_string(e.c.limits.steps) + " steps");
  if (!latent.image.defined()) {
    if (r.strength < 1) e.refuse("an empty latent must be denoised wholly");
  } else {
    job.image =
        io::encode_image(io::convert_image(latent.image, io::ImageMode::RGB), io::ImageFormat::PNG, {.compression = 1});
    if (latent.mask.defined()) {
      const Tensor mask = latent.mask.size(1) == latent.height && latent.mask.size(2) == latent.width
                              ? latent.mask
                              : data::resize(latent.mask, latent.height, latent.width);
      job.mask = io::encode_image(mask, io::ImageFormat::PNG, {.compression = 1});
    }
  }
  ComfyLatent made = latent;
  made.made = true;
  return {made, made};
}

ComfySigmas sigmas_of(E& e) {
  ComfySigmas s{.schedule = e.text("scheduler", 100), .steps = e.whole("steps", 1, 10'000)};
  s.denoise = e.number("denoise", 0.01, 1);
  return s;
}

ComfyLatent encoded(E& e) {
  const Tensor image = e.known("pixels");
  ComfyLatent latent{
      .width = image.size(2) / 8 * 8, .height = image.size(1) / 8 * 8, .image = image, .vae = e.get<ComfyVae>("vae")};
  if (latent.width < 8 || latent.height < 8) e.refuse("the picture must have 8 pixels a side");
  if (latent.width != image.size(2) || latent.height != image.size(1))
    latent.image = e.taken(cropped(image, 0, 0, latent.width, latent.height));
  return latent;
}

Values decoded(E& e) {
  const auto latent = e.get<ComfyLatent>("samples");
  if (!latent.made) e.refuse("samples must come from a sampler");
  const auto vae = e.get<ComfyVae>("vae");
  JobRequest& r = e.out.job.request;
  if (!r.vae.empty() && r.vae != vae.name) e.refuse("two autoencoders in one graph are not served");
  r.vae = vae.name;
  return {ComfyImage{}};
}

Values kept(E& e) {
  const auto image = e.get<ComfyImage>("images");
  if (image.known.defined()) e.refuse("pictures that were sent are not kept; a sampler's are");
  e.out.outputs.push_back({e.id(), e.kind(), image.behind});
  return {};
}

Values with_lora(E& e, bool clip) {
  auto model = e.get<ComfyModel>("model");
  const std::string name = e.text("lora_name", 300);
  e.named([&] { return e.c.jobs.shelf().lora_path(name); });
  model.loras.push_back({name, 0, e.number("strength_model", -20, 20)});
  if (!clip) return {model};
  auto text = e.get<ComfyClip>("clip");
  const double strength = e.number("strength_clip", -20, 20);
  text.loras.push_back({name, strength, 0});
  return {model, text};
}

}  // namespace

const std::vector<ComfyNode>& comfy_nodes() {
  const ComfyInput model{"model", "MODEL"}, clip{"clip", "CLIP"}, vae{"vae", "VAE"}, image{"image", "IMAGE"},
      mask{"mask", "MASK"}, samples{"samples", "LATENT"}, positive{"positive", "CONDITIONING"},
      negative{"negative", "CONDITIONING"}, latent{"latent_image", "LATENT"}, steps{"steps", "INT", 20},
      scheduler{"scheduler", "schedulers", "normal"}, sampler{"sampler_name", "samplers", "euler"},
      cfg{"cfg", "FLOAT", 8.0}, denoise{"denoise", "FLOAT", 1.0}, width{"width", "INT", 512},
      height{"height", "INT", 512}, x{"x", "INT", 0}, y{"y", "INT", 0}, grow{"grow", "INT", 0},
      shrink{"shrink", "INT", 0}, blur{"blur", "INT", 0};
  auto part = [](E& e) {
    return std::array<int64_t, 4>{e.whole("x", 0, kMostSide), e.whole("y", 0, kMostSide),
                                  e.whole("width", 1, kMostSide), e.whole("height", 1, kMostSide)};
  };
  auto on_mask = [](auto f) {
    return [f](E& e) -> Values {
      return {ComfyMask{e.named([&] { return e.taken(f(e, e.get<ComfyMask>("mask").values)); })}};
    };
  };
  auto from_base64 = [](E& e, const char* name, bool is_mask) -> Values {
    const Tensor t = e.sent_picture(e.named([&] { return bytes_of_text(name, e.text(name, 64 << 20)); }));
    if (is_mask) return {ComfyMask{io::convert_image(t, io::ImageMode::L)}};
    return {ComfyImage{io::convert_image(t, io::ImageMode::RGB), {}}};
  };
  static const std::vector<ComfyNode> all{
      {"CheckpointLoaderSimple",
       {{"ckpt_name", "models"}},
       {"MODEL", "CLIP", "VAE"},
       [](E& e) -> Values {
         const std::string asked = e.text("ckpt_name", 300);
         const std::string name = e.named([&] { return e.c.jobs.shelf().find(asked).name; });
         return {ComfyModel{.name = name}, ComfyClip{.model = name}, ComfyVae{}};
       }},
      {"VAELoader",
       {{"vae_name", "vaes"}},
       {"VAE"},
       [](E& e) -> Values {
         const std::string asked = e.text("vae_name", 300);
         return {ComfyVae{e.named([&] { return e.c.jobs.shelf().vae_name(asked); })}};
       }},
      {"LoraLoader",
       {model, clip, {"lora_name", "loras"}, {"strength_model", "FLOAT", 1.0}, {"strength_clip", "FLOAT", 1.0}},
       {"MODEL", "CLIP"},
       [](E& e) { return with_lora(e, true); }},
      {"LoraLoaderModelOnly",
       {model, {"lora_name", "loras"}, {"strength_model", "FLOAT", 1.0}},
       {"MODEL"},
       [](E& e) { return with_lora(e, false); }},
      {"CLIPSetLastLayer",
       {clip, {"stop_at_clip_layer", "INT", -1}},
       {"CLIP"},
       [](E& e) -> Values {
         auto c = e.get<ComfyClip>("clip");
         c.skip = -e.whole("stop_at_clip_layer", -24, -1) - 1;
         return {c};
       }},
      {"CLIPTextEncode",
       {{"text", "STRING", ""}, clip},
       {"CONDITIONING"},
       [](E& e) -> Values {
         return {ComfyCond{e.get<ComfyClip>("clip"), e.text("text")}};
       }},
      {"ConditioningZeroOut",
       {{"conditioning", "CONDITIONING"}},
       {"CONDITIONING"},
       [](E& e) -> Values {
         auto cond = e.get<ComfyCond>("conditioning");
         if (!cond.text.empty()) e.refuse("of an empty text alone");
         return {cond};
       }},
      {"ETN_Translate",
       {{"text", "STRING", ""}},
       {"STRING"},
       [](E& e) -> Values { return {ComfyText{e.text("text")}}; }},
      {"RescaleCFG",
       {model, {"multiplier", "FLOAT", 0.7}},
       {"MODEL"},
       [](E& e) -> Values {
         auto m = e.get<ComfyModel>("model");
         m.rescale = e.number("multiplier", 0, 1);
         return {m};
       }},
      {"DifferentialDiffusion", {model}, {"MODEL"}, [](E& e) -> Values { return {e.get<ComfyModel>("model")}; }},
      {"EmptyLatentImage",
       {width, height, {"batch_size", "INT", 1}},
       {"LATENT"},
       [](E& e) -> Values {
         return {ComfyLatent{.width = e.whole("width", 8, kMostSide) / 8 * 8,
                             .height = e.whole("height", 8, kMostSide) / 8 * 8,
                             .batch = e.whole("batch_size", 1, e.c.limits.pictures)}};
       }},
      {"VAEEncode", {{"pixels", "IMAGE"}, vae}, {"LATENT"}, [](E& e) -> Values { return {encoded(e)}; }},
      {"VAEEncodeTiled", {{"pixels", "IMAGE"}, vae}, {"LATENT"}, [](E& e) -> Values { return {encoded(e)}; }},
      {"VAEEncodeForInpaint",
       {{"pixels", "IMAGE"}, vae, mask, {"grow_mask_by", "INT", 6}},
       {"LATENT"},
       [](E& e) -> Values {
         ComfyLatent l = encoded(e);
         l.mask = e.taken(grown_mask(e.get<ComfyMask>("mask").values, e.whole("grow_mask_by", 0, 256), 0));
         l.image = mixed(l.image, full(l.image.shape(), 127, kUInt8), threshold_mask(l.mask, 0.5));
         return {l};
       }},
      {"SetLatentNoiseMask",
       {samples, mask},
       {"LATENT"},
       [](E& e) -> Values {
         auto l = e.get<ComfyLatent>("samples");
         if (!l.image.defined()) e.refuse("samples must be of a picture");
         l.mask = e.get<ComfyMask>("mask").values;
         return {l};
       }},
      {"RepeatLatentBatch",
       {samples, {"amount", "INT", 1}},
       {"LATENT"},
       [](E& e) -> Values {
         auto l = e.get<ComfyLatent>("samples");
         l.batch *= e.whole("amount", 1, e.c.limits.pictures);
         if (l.batch > e.c.limits.pictures) e.refuse("at most " + std::to_string(e.c.limits.pictures) + " pictures");
         return {l};
       }},
      {"KSampler",
       {model, {"seed", "INT", 0}, steps, cfg, sampler, scheduler, positive, negative, latent, denoise},
       {"LATENT"},
       [](E& e) {
         return sample(e,
                       {e.get<ComfyModel>("model"), e.get<ComfyCond>("positive"), e.get<ComfyCond>("negative"),
                        e.number("cfg", 0, 100)},
                       e.get<ComfyLatent>("latent_image"), sigmas_of(e), {e.text("sampler_name", 100)},
                       e.whole("seed", 0, INT64_MAX));
       }},
      {"KSamplerAdvanced",
       {model,
        {"noise_seed", "INT", 0},
        steps,
        cfg,
        sampler,
        scheduler,
        positive,
        negative,
        latent,
        {"start_at_step", "INT", 0},
        {"end_at_step", "INT", 10000},
        {"add_noise", "STRING", "enable"},
        {"return_with_leftover_noise", "STRING", "disable"}},
       {"LATENT"},
       [](E& e) {
         ComfySigmas s{.schedule = e.text("scheduler", 100), .steps = e.whole("steps", 1, 10'000)};
         s.start = e.whole("start_at_step", 0, s.steps - 1);
         if (e.whole("end_at_step", 0, 1'000'000) < s.steps || e.text("add_noise", 20) != "enable" ||
             e.text("return_with_leftover_noise", 20) != "disable")
           e.refuse(
               "parts of a pass are not served: add_noise, end_at_step and return_with_leftover_noise stay as they "
               "are");
         return sample(e,
                       {e.get<ComfyModel>("model"), e.get<ComfyCond>("positive"), e.get<ComfyCond>("negative"),
                        e.number("cfg", 0, 100)},
                       e.get<ComfyLatent>("latent_image"), s, {e.text("sampler_name", 100)},
                       e.whole("noise_seed", 0, INT64_MAX));
       }},
      {"CFGGuider",
       {model, positive, negative, cfg},
       {"GUIDER"},
       [](E& e) -> Values {
         return {ComfyGuider{e.get<ComfyModel>("model"), e.get<ComfyCond>("positive"), e.get<ComfyCond>("negative"),
                             e.number("cfg", 0, 100)}};
       }},
      {"BasicGuider",
       {model, {"conditioning", "CONDITIONING"}},
       {"GUIDER"},
       [](E& e) -> Values {
         return {ComfyGuider{e.get<ComfyModel>("model"), e.get<ComfyCond>("conditioning"), {}, 1}};
       }},
      {"BasicScheduler", {model, scheduler, steps, denoise}, {"SIGMAS"}, [](E& e) -> Values { return {sigmas_of(e)}; }},
      {"SplitSigmas",
       {{"sigmas", "SIGMAS"}, {"step", "INT", 0}},
       {"SIGMAS", "SIGMAS"},
       [](E& e) -> Values {
         auto s = e.get<ComfySigmas>("sigmas");
         s.start += e.whole("step", 0, s.steps - s.start - 1);
         return {std::monostate{}, s};  // the first part alone is no pass
       }},
      {"RandomNoise",
       {{"noise_seed", "INT", 0}},
       {"NOISE"},
       [](E& e) -> Values { return {ComfyNoise{e.whole("noise_seed", 0, INT64_MAX)}}; }},
      {"KSamplerSelect",
       {sampler},
       {"SAMPLER"},
       [](E& e) -> Values { return {ComfySampler{e.text("sampler_name", 100)}}; }},
      {"SamplerCustomAdvanced",
       {{"noise", "NOISE"}, {"guider", "GUIDER"}, {"sampler", "SAMPLER"}, {"sigmas", "SIGMAS"}, latent},
       {"LATENT", "LATENT"},
       [](E& e) {
         return sample(e, e.get<ComfyGuider>("guider"), e.get<ComfyLatent>("latent_image"),
                       e.get<ComfySigmas>("sigmas"), e.get<ComfySampler>("sampler"), e.get<ComfyNoise>("noise").seed);
       }},
      {"VAEDecode", {samples, vae}, {"IMAGE"}, decoded},
      {"VAEDecodeTiled", {samples, vae}, {"IMAGE"}, decoded},
      {"ETN_LoadImageCache",
       {{"id", "STRING", ""}},
       {"IMAGE", "MASK"},
       [](E& e) -> Values {
         const std::string id = e.text("id", 200);
         const auto bytes = e.images(id);
         if (!bytes)
           e.refuse("there is no picture '" + printable(id) + "'; PUT /api/etn/image/" + printable(id) + " sends it");
         const Tensor t = e.sent_picture(*bytes);
         // As the node does it: a grey picture is a mask, one with alpha has it there.
         const Tensor m = t.size(0) == 4 || t.size(0) == 2
                              ? io::planar_image(t).narrow(0, t.size(0) - 1, 1).contiguous()
                              : io::convert_image(t, io::ImageMode::L);
         return {ComfyImage{io::convert_image(t, io::ImageMode::RGB), {}}, ComfyMask{m}};
       }},
      {"ETN_LoadImageBase64",
       {{"image", "STRING", ""}},
       {"IMAGE"},
       [=](E& e) { return from_base64(e, "image", false); }},
      {"ETN_LoadMaskBase64", {{"mask", "STRING", ""}}, {"MASK"}, [=](E& e) { return from_base64(e, "mask", true); }},
      {"ImageScale",
       {image, {"upscale_method", "STRING", "lanczos"}, width, height, {"crop", "STRING", "disabled"}},
       {"IMAGE"},
       [](E& e) -> Values {
         const std::string method = e.text("upscale_method", 40);
         const data::Filter filter = e.named([&] {
           return data::filter(method == "nearest-exact" ? "nearest" : method == "area" ? "box" : method);
         });
         const int64_t w = e.whole("width", 1, kMostSide), h = e.whole("height", 1, kMostSide);
         if (w > e.c.limits.pixels / h) e.refuse("at most " + std::to_string(e.c.limits.pixels) + " pixels");
         if (e.text("crop", 40) != "disabled") e.refuse("crop must be disabled");
         return {e.then(e.get<ComfyImage>("image"), [=](const Tensor& t) { return data::resize(t, h, w, filter); })};
       }},
      {"ImageCrop",
       {image, width, height, x, y},
       {"IMAGE"},
       [=](E& e) -> Values {
         const auto p = part(e);
         return {
             e.then(e.get<ComfyImage>("image"), [p](const Tensor& t) { return cropped(t, p[0], p[1], p[2], p[3]); })};
       }},
      {"ImageInvert",
       {image},
       {"IMAGE"},
       [](E& e) -> Values { return {e.then(e.get<ComfyImage>("image"), inverted)}; }},
      {"ImageToMask",
       {image, {"channel", "STRING", "red"}},
       {"MASK"},
       [](E& e) -> Values {
         return {ComfyMask{e.taken(io::planar_image(e.known("image")).narrow(0, 0, 1).contiguous())}};
       }},
      {"MaskToImage",
       {mask},
       {"IMAGE"},
       [](E& e) -> Values {
         return {ComfyImage{e.taken(io::convert_image(e.get<ComfyMask>("mask").values, io::ImageMode::RGB)), {}}};
       }},
      {"CropMask", {mask, x, y, width, height}, {"MASK"}, on_mask([=](E& e, const Tensor& m) {
         const auto p = part(e);
         return cropped(m, p[0], p[1], p[2], p[3]);
       })},
      {"ThresholdMask", {mask, {"value", "FLOAT", 0.5}}, {"MASK"}, on_mask([](E& e, const Tensor& m) {
         return threshold_mask(m, e.number("value", 0, 1));
       })},
      {"INPAINT_StabilizeMask", {mask, {"epsilon", "FLOAT", 0.01}}, {"MASK"}, on_mask([](E& e, const Tensor& m) {
         return stabilized_mask(m, e.number("epsilon", 0, 0.5));
       })},
      {"INPAINT_ExpandMask",
       {mask, grow, blur, {"blur_type", "STRING", "gaussian"}},
       {"MASK"},
       on_mask(
           [](E& e, const Tensor& m) { return grown_mask(m, e.whole("grow", 0, 4096), e.whole("blur", 0, 1024)); })},
      {"INPAINT_ShrinkMask",
       {mask, shrink, blur, {"blur_type", "STRING", "gaussian"}},
       {"MASK"},
       on_mask(
           [](E& e, const Tensor& m) { return grown_mask(m, -e.whole("shrink", 0, 4096), e.whole("blur", 0, 1024)); })},
      {"INPAINT_MaskedBlur",
       {image, mask, blur, {"falloff", "INT", 0}},
       {"IMAGE"},
       [](E& e) -> Values {
         const Tensor m =
             e.named([&] { return grown_mask(e.get<ComfyMask>("mask").values, 0, e.whole("falloff", 0, 1024)); });
         return {ComfyImage{
             e.named([&] { return e.taken(blurred_under(e.known("image"), m, e.whole("blur", 0, 1024))); }), {}}};
       }},
      {"INPAINT_MaskedFill",
       {image, mask, {"fill", "STRING", "neutral"}, {"falloff", "INT", 0}},
       {"IMAGE"},
       [](E& e) -> Values {
         const Tensor picture = e.known("image"),
                      m = grown_mask(e.get<ComfyMask>("mask").values, 0, e.whole("falloff", 0, 1024));
         const bool neutral = e.text("fill", 40) == "neutral";  // else by what is around it
         return {ComfyImage{e.named([&] {
                              return e.taken(neutral ? mixed(picture, full(picture.shape(), 127, kUInt8), m)
                                                     : filled_picture(picture, m));
                            }),
                            {}}};
       }},
      {"INPAINT_ColorMatch",
       {{"target", "IMAGE"}, {"reference", "IMAGE"}, {"exclude_mask", "MASK", {}, true}, {"strength", "FLOAT", 1.0}},
       {"IMAGE"},
       [](E& e) -> Values {
         const Tensor other = e.known("reference");
         const double strength = e.number("strength", 0, 1);
         const Tensor m = e.has("exclude_mask") ? e.get<ComfyMask>("exclude_mask").values : zeros({1, 8, 8}, kUInt8);
         return {e.then(e.get<ComfyImage>("target"),
                        [=](const Tensor& t) { return colour_matched(t, other, m, strength); })};
       }},
      {"ETN_ApplyMaskToImage",
       {image, mask},
       {"IMAGE"},
       [](E& e) -> Values {
         const Tensor m = e.get<ComfyMask>("mask").values;
         return {e.then(e.get<ComfyImage>("image"), [m](const Tensor& t) { return with_alpha(t, m); })};
       }},
      {"ETN_SaveImageCache", {{"images", "IMAGE"}, {"format", "STRING", "PNG"}}, {}, kept},
      {"SaveImage", {{"images", "IMAGE"}, {"filename_prefix", "STRING", "ComfyUI"}}, {}, kept},
      {"PreviewImage", {{"images", "IMAGE"}}, {}, kept},
  };
  return all;
}

}  // namespace sf::server
