// AUTOMATIC1111's API, /sdapi/v1: what makes pictures, tells how far they are, and stops them.
#include "scaffolding/server/apis/webui.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <span>

#include "scaffolding/core/error.h"
#include "scaffolding/io/base64.h"
#include "scaffolding/io/json.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/server/apis/context.h"

namespace sf::server {

namespace {

Fields picture_fields(const Context& c, bool image) {
  using K = FieldKind;
  Fields f{.all = {}, .others = true};
  const double steps = double(c.limits.steps), pictures = double(c.limits.pictures);
  f.all = {
      field("prompt", K::Text).at_most(20'000),
      field("negative_prompt", K::Text).at_most(20'000),
      field("seed", K::Whole, "-1: drawn").range(-1, 9.2e18).otherwise(-1),
      field("sampler_name", K::Text).at_most(100),
      field("sampler_index", K::Text).at_most(100),
      field("scheduler", K::Text).at_most(100),
      field("batch_size", K::Whole, "pictures, together with n_iter").range(1, pictures).otherwise(1),
      field("n_iter", K::Whole).range(1, pictures).otherwise(1),
      field("steps", K::Whole).range(1, steps).otherwise(50),
      field("cfg_scale", K::Number).range(0, 1000).otherwise(7.0),
      field("width", K::Whole, "absent: the model's own").range(8, 16384),
      field("height", K::Whole, "absent: the model's own").range(8, 16384),
      field("denoising_strength", K::Number).range(0, 1),
      field("eta", K::Number).range(0, 1),
      field("send_images", K::Flag).otherwise(true),
      field("override_settings", K::Object),
      field("enable_hr", K::Flag).otherwise(false),
      field("hr_scale", K::Number).range(1, 8).otherwise(2),
      field("hr_upscaler", K::Text, "Latent, Latent (bicubic antialiased) and its like, Lanczos").at_most(100),
      field("hr_second_pass_steps", K::Whole, "0: as many as steps").range(0, steps).otherwise(0),
      field("force_task_id", K::Text, "a retry with the same one gets the same job").at_most(200),
  };
  if (!image) return f;
  f.all.push_back(field("init_images", K::Texts, "one picture in base64").at_most(16));
  f.all.push_back(field("mask", K::Text, "white where it is made anew").at_most(size_t(-1)));
  f.all.push_back(field("inpainting_mask_invert", K::Any));
  f.all.push_back(field("mask_blur", K::Whole).range(0, 256));
  f.all.push_back(field("mask_blur_x", K::Whole).range(0, 256).otherwise(4));
  f.all.push_back(field("mask_blur_y", K::Whole).range(0, 256).otherwise(4));
  f.all.push_back(
      field("inpainting_fill", K::Whole, "0: what is around the mask, 1: the original, 2: noise, 3: nothing")
          .range(0, 3)
          .otherwise(0));
  f.all.push_back(field("inpaint_full_res", K::Any, "only around the mask, at the whole size").otherwise(true));
  f.all.push_back(field("inpaint_full_res_padding", K::Whole).range(0, 4096).otherwise(0));
  f.all.push_back(field("include_init_images", K::Flag));
  return f;
}

bool says_something(const json& v) {
  if (v.is_null()) return false;
  if (v.is_boolean()) return v.get<bool>();
  if (v.is_number()) return v.get<double>() != 0;
  if (v.is_string()) return !v.get_ref<const std::string&>().empty() && v != "None" && v != "none";
  return !v.empty();
}

std::string lower(std::string text) {
  for (char& ch : text) ch = ch >= 'A' && ch <= 'Z' ? char(ch + 32) : ch;
  return text;
}

// What would change the picture and is not made here is refused by its name.
void refuse_unknown_work(const json& b) {
  static constexpr const char* kNot[] = {"restore_faces",
                                         "tiling",
                                         "subseed_strength",
                                         "styles",
                                         "refiner_checkpoint",
                                         "script_name",
                                         "seed_resize_from_w",
                                         "seed_resize_from_h",
                                         "s_churn",
                                         "s_tmin",
                                         "s_min_uncond",
                                         "latent_mask",
                                         "firstpass_image"};
  for (auto* name : kNot) {
    const auto it = b.find(name);
    if (it == b.end() || !says_something(*it)) continue;
    const bool is_usual = it->is_number() && it->get<double>() < 0;  // a size of -1 is none
    if (!is_usual)
      throw ApiError(422, std::string(name) + ": this server cannot do it; leave it out", "NotSupported", name);
  }
  if (auto it = b.find("alwayson_scripts"); it != b.end() && it->is_object())
    for (auto& [script, value] : it->items())
      if (value.is_object() && value.contains("args") && says_something(value["args"]))
        if (lower(script) != "controlnet")
          throw ApiError(422, "alwayson_scripts: there is no script '" + script.substr(0, 60) + "' here",
                         "NotSupported", "alwayson_scripts");
  if (auto it = b.find("resize_mode"); it != b.end() && *it != 0)
    throw ApiError(422, "resize_mode: this server resizes only, 0", "NotSupported", "resize_mode");
  if (auto it = b.find("initial_noise_multiplier"); it != b.end() && says_something(*it) && *it != 1)
    throw ApiError(422, "initial_noise_multiplier: is 1 here", "NotSupported", "initial_noise_multiplier");
  if (auto it = b.find("s_noise"); it != b.end() && it->is_number() && it->get<double>() != 1)
    throw ApiError(422, "s_noise: this server's samplers add as much noise as theirs is", "NotSupported", "s_noise");
}

// What each caller chose by POST options.
class Choices {
 public:
  std::string model(const Caller& caller) const {
    std::lock_guard lock(mutex_);
    const auto at = models_.find(caller.name);
    return at == models_.end() ? "" : at->second;
  }
  int64_t last_layers(const Caller& caller) const {
    std::lock_guard lock(mutex_);
    const auto at = layers_.find(caller.name);
    return at == layers_.end() ? 1 : at->second;
  }
  void set(const Caller& caller, const std::string& model) {
    std::lock_guard lock(mutex_);
    models_[caller.name] = model;
  }
  // "": the model's own
  std::string vae(const Caller& caller) const {
    std::lock_guard lock(mutex_);
    const auto at = vaes_.find(caller.name);
    return at == vaes_.end() ? "" : at->second;
  }
  void set_vae(const Caller& caller, const std::string& vae) {
    std::lock_guard lock(mutex_);
    vaes_[caller.name] = vae;
  }
  void set_layers(const Caller& caller, int64_t n) {
    std::lock_guard lock(mutex_);
    layers_[caller.name] = n;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> models_, vaes_;  // by token, of which there are few
  std::map<std::string, int64_t> layers_;
};

int64_t layers_of(const json& v) {
  if (!v.is_number_integer() || v.get<int64_t>() < 1 || v.get<int64_t>() > 12)
    throw ApiError(422, "CLIP_stop_at_last_layers: must be from 1 to 12", "", "CLIP_stop_at_last_layers");
  return v.get<int64_t>();
}

// Of settings that name an autoencoder. "": the model's own.
std::optional<std::string> vae_of(Context& c, const json& settings) {
  const auto it = settings.find("sd_vae");
  if (it == settings.end() || it->is_null()) return {};
  if (!says_something(*it) || *it == "Automatic") return "";
  if (!it->is_string()) throw ApiError(422, "sd_vae: must be a name of sd-vae", "", "sd_vae");
  return c.jobs.shelf().vae_name(it->get<std::string>());
}

// Resized to the picture, and white and black the other way round, where it has to be.
std::string mask_for(std::string bytes, std::string_view image, bool inverts, int64_t most_pixels) {
  const Tensor picture = picture_of("init_images", image, most_pixels);
  Tensor mask = picture_of("mask", bytes, most_pixels, true);
  const bool fits = mask.size(1) == picture.size(1) && mask.size(2) == picture.size(2);
  if (fits && !inverts) return bytes;
  if (!fits) mask = diffusion::VaeImageProcessor().resize(mask, picture.size(1), picture.size(2));
  mask = io::planar_image(mask);
  Tensor out = empty(mask.shape(), kUInt8);
  const auto* from = mask.data<uint8_t>();
  auto* to = out.data<uint8_t>();
  for (int64_t i = 0; i < mask.numel(); ++i) to[i] = inverts ? uint8_t(255 - from[i]) : from[i];
  return io::encode_image(out, io::ImageFormat::PNG, {.compression = 1});
}

// The second pass of hires fix. Sizes of its own are refused: this server knows a scale for both sides.
void set_hires(JobRequest& r, const json& b) {
  for (const char* name : {"hr_resize_x", "hr_resize_y", "hr_checkpoint_name", "hr_sampler_name", "hr_scheduler",
                           "hr_prompt", "hr_negative_prompt"})
    if (b.contains(name) && says_something(b[name]) && b[name] != "Use same sampler" &&
        b[name] != "Use same checkpoint" && b[name] != "Use same scheduler")
      throw ApiError(422, std::string(name) + ": the second pass is as the first here, and hr_scale says its size",
                     "NotSupported", name);
  r.hires = b.value("hr_scale", 2.0);
  r.hires_strength = b.value("denoising_strength", 0.75);
  if (const int64_t n = b.value("hr_second_pass_steps", int64_t(0)); n > 0) r.hires_steps = n;
  const std::string upscaler = b.value("hr_upscaler", "Latent");
  if (upscaler == "Latent" || upscaler == "latent") r.hires_upscaler = "latent";
  else if (upscaler == "Lanczos") r.hires_upscaler = "lanczos";
  else if (upscaler == "Bicubic") r.hires_upscaler = "bicubic";
  else
    throw ApiError(422, "hr_upscaler: there are Latent, Bicubic and Lanczos, got '" + upscaler.substr(0, 60) + "'",
                   "NotSupported", "hr_upscaler");
}

void set_mask(JobRequest& r, const json& b) {
  const int64_t x = b.value("mask_blur_x", int64_t(4)), y = b.value("mask_blur_y", int64_t(4));
  r.mask_blur = b.value("mask_blur", x);
  if (!b.contains("mask_blur") && x != y)
    throw ApiError(422, "mask_blur_x, mask_blur_y: must be the same here", "NotSupported", "mask_blur_x");
  r.mask_fill = MaskFill(b.value("inpainting_fill", 0));
  if (!b.contains("inpaint_full_res") || says_something(b["inpaint_full_res"]))
    r.mask_padding = b.value("inpaint_full_res_padding", int64_t(0));
}

// The extension's units: alwayson_scripts.controlnet.args. Those that are not enabled do nothing.
void set_controlnets(NewJob& job, const json& b) {
  const auto scripts = b.find("alwayson_scripts");
  if (scripts == b.end() || !scripts->is_object()) return;
  json units = json::array();
  bool guess = false;
  for (auto& [script, value] : scripts->items()) {
    if (lower(script) != "controlnet" || !value.is_object() || !value.contains("args")) continue;
    const json& args = value["args"];
    if (!args.is_array()) throw ApiError(422, "controlnet: args must be a list", "", "alwayson_scripts");
    for (const json& unit : args) {
      if (!unit.is_object()) continue;  // the extension's old flags
      if (auto on = unit.find("enabled"); on != unit.end() && !says_something(*on)) continue;
      json one = unit;
      if (!one.contains("weight") || one["weight"].is_null()) one["weight"] = 1;
      for (const char* name : {"image", "input_image"})  // some clients put the picture beside a mask
        if (auto at = one.find(name); at != one.end() && at->is_object() && at->contains("image"))
          one[name] = json((*at)["image"]);
      // 0, 1 and 2, or their names: "Balanced", "My prompt is more important", "ControlNet is more important"
      if (auto mode = unit.find("control_mode"); mode != unit.end() && says_something(*mode) && *mode != "Balanced") {
        if (*mode != 2 && *mode != "ControlNet is more important")
          throw ApiError(422, "control_mode: there are Balanced and ControlNet is more important", "NotSupported",
                         "control_mode");
        guess = true;
      }
      units.push_back(one);
    }
  }
  if (units.empty()) return;
  take_controlnets(units, {{"image", "input_image"}, {"module"}, "weight", "guidance_start", "guidance_end", true},
                   job);
  if (guess) job.request.options["guess_mode"] = "true";
}

NewJob job_from(Context& c, const Choices& choices, const Call& call, bool image) {
  const json& b = call.body;
  refuse_unknown_work(b);
  NewJob job;
  JobRequest& r = job.request;
  r.api = "webui";
  r.prompt = b.value("prompt", "");
  r.negative_prompt = b.value("negative_prompt", "");
  r.seed = b.value("seed", int64_t(-1));
  job.has_seed = r.seed >= 0;
  r.count = b.value("batch_size", int64_t(1)) * b.value("n_iter", int64_t(1));
  SF_CHECK(r.count <= c.limits.pictures, "batch_size, n_iter: at most ", c.limits.pictures, " pictures, got ", r.count);
  r.steps = b.value("steps", int64_t(50));
  r.guidance = b.value("cfg_scale", 7.0);
  if (b.contains("width")) r.width = b["width"].get<int64_t>();
  if (b.contains("height")) r.height = b["height"].get<int64_t>();
  r.strength = b.value("denoising_strength", 0.75);
  std::string sampler = b.value("sampler_name", b.value("sampler_index", ""));
  if (sampler == "Automatic") sampler = "";
  if (const std::string schedule = b.value("scheduler", ""); !schedule.empty()) {
    auto named = c.jobs.samplers().schedule(schedule);
    if (!named.options.empty() && sampler.empty()) sampler = "euler";
    r.scheduler_options = named.options;
    if (!named.sampler.empty()) sampler = named.sampler;
  }
  r.sampler = sampler;
  r.options["prompt_syntax"] = "a1111";
  if (b.value("eta", 0.0) != 0) r.options["eta"] = io::json_text(b["eta"]);
  int64_t layers = choices.last_layers(call.caller);
  r.model = choices.model(call.caller);
  r.vae = choices.vae(call.caller);
  if (const auto it = b.find("override_settings"); it != b.end()) {
    if (auto vae = vae_of(c, *it)) r.vae = *vae;
    if (it->contains("sd_model_checkpoint") && (*it)["sd_model_checkpoint"].is_string())
      r.model = (*it)["sd_model_checkpoint"].get<std::string>();
    if (it->contains("CLIP_stop_at_last_layers")) layers = layers_of((*it)["CLIP_stop_at_last_layers"]);
  }
  if (!image && b.value("enable_hr", false)) set_hires(r, b);
  set_controlnets(job, b);
  if (layers > 1) r.options["clip_skip"] = std::to_string(layers - 1);
  job.key = b.value("force_task_id", std::string(call.request.header("idempotency-key")));
  if (!image) return job;
  if (!b.contains("init_images") || b["init_images"].empty())
    throw ApiError(404, "Init image not found", "HTTPException");
  if (b["init_images"].size() > 1)
    throw ApiError(422, "init_images: one picture at a time", "NotSupported", "init_images");
  job.image = bytes_of_text("init_images", b["init_images"][0].get_ref<const std::string&>());
  if (const std::string mask = b.value("mask", ""); !mask.empty()) {
    const bool inverts = b.contains("inpainting_mask_invert") && says_something(b["inpainting_mask_invert"]);
    job.mask = mask_for(bytes_of_text("mask", mask), job.image, inverts, c.limits.input_pixels);
    set_mask(r, b);
  }
  return job;
}

json info_of(const JobRecord& job, const json& asked) {
  const JobRequest& r = job.request;
  json seeds = json::array(), subseeds = json::array(), prompts = json::array(), negatives = json::array(),
       texts = json::array();
  int64_t width = 0, height = 0;
  for (auto& p : job.pictures) {
    width = p.width, height = p.height;
    seeds.push_back(p.seed), subseeds.push_back(0), prompts.push_back(r.prompt), negatives.push_back(r.negative_prompt);
    texts.push_back(parameters_text(r, p.place, r.sampler.c_str(), p.width, p.height, r.guidance.value_or(7)));
  }
  return {{"prompt", r.prompt},
          {"all_prompts", prompts},
          {"negative_prompt", r.negative_prompt},
          {"all_negative_prompts", negatives},
          {"seed", r.seed},
          {"all_seeds", seeds},
          {"subseed", 0},
          {"all_subseeds", subseeds},
          {"subseed_strength", 0},
          {"width", width},
          {"height", height},
          {"sampler_name", r.sampler},
          {"cfg_scale", r.guidance.value_or(7)},
          {"steps", r.steps},
          {"batch_size", asked.value("batch_size", 1)},
          {"restore_faces", false},
          {"face_restoration_model", nullptr},
          {"sd_model_name", r.model},
          {"sd_model_hash", nullptr},
          {"sd_vae_name", r.vae.empty() ? json() : json(r.vae)},
          {"sd_vae_hash", nullptr},
          {"seed_resize_from_w", -1},
          {"seed_resize_from_h", -1},
          {"denoising_strength", r.image.empty() ? json() : json(r.strength)},
          {"extra_generation_params", json::object()},
          {"index_of_first_image", 0},
          {"infotexts", texts},
          {"styles", json::array()},
          {"job_timestamp", std::to_string(int64_t(job.created))},
          {"clip_skip", 1},
          {"is_using_inpainting_conditioning", false}};
}

void make(Context& c, const Choices& choices, Call& call, const Answer& answer, bool image) {
  NewJob job = job_from(c, choices, call, image);
  c.guard.count_job(call.caller);
  const auto accepted = submit(c, call.caller, std::move(job));
  json echo = call.body;
  echo.erase("auth");  // SillyTavern sends its own
  if (!call.body.value("include_init_images", false)) echo.erase("init_images"), echo.erase("mask");
  const bool send = call.body.value("send_images", true);
  answer_when_over(c, accepted.job.record.id, ErrorShape::WebUi, answer, [&c, echo, send](const JobRecord& job) {
    json images = json::array();
    if (send)
      for (auto& p : job.pictures) images.push_back(io::to_base64(picture_bytes(c, p)));
    return json_response({{"images", images}, {"parameters", echo}, {"info", io::json_text(info_of(job, echo))}});
  });
}

ShelfModel model_of(Context& c, const Choices& choices, const Call& call) {
  const std::string chosen = choices.model(call.caller);
  return c.jobs.shelf().find(chosen.empty() ? c.jobs.shelf().default_model() : chosen);
}

void tell_progress(Context& c, const Call& call, const Answer& answer) {
  const auto jobs = c.jobs.active(call.caller.name);
  const JobView* now = nullptr;
  for (auto& j : jobs)
    if (!now || (j.record.state == JobState::Running && now->record.state != JobState::Running)) now = &j;
  json state{{"skipped", false},
             {"interrupted", now && now->interrupted},
             {"stopping_generation", false},
             {"job", now ? now->record.id : ""},
             {"job_count", jobs.size()},
             {"job_timestamp", now ? std::to_string(int64_t(now->record.created)) : "0"},
             {"job_no", now ? now->place : 0},
             {"sampling_step", now ? now->step : 0},
             {"sampling_steps", now ? now->steps : 0}};
  const auto preview = now && !call.query.value("skip_current_image", false) ? c.jobs.preview(now->record.id) : nullptr;
  answer->respond(json_response({{"progress", now ? now->progress() : 0.0},
                                 {"eta_relative", now ? std::max(0.0, now->seconds_left) : 0.0},
                                 {"state", state},
                                 {"current_image", preview ? json(io::to_base64(preview->png())) : json()},
                                 {"textinfo", nullptr},
                                 {"current_task", now ? json(now->record.id) : json()}}));
}

}  // namespace

void add_webui_routes(Router& router, Context& c) {
  auto choices = std::make_shared<Choices>();
  router
      .add("POST", "/sdapi/v1/txt2img", "Pictures of a prompt",
           [&c, choices](Call& call, const Answer& a) { make(c, *choices, call, a, false); })
      .takes(picture_fields(c, false))
      .makes_jobs();
  router
      .add("POST", "/sdapi/v1/img2img", "A picture changed by a prompt, or a part of it made anew",
           [&c, choices](Call& call, const Answer& a) { make(c, *choices, call, a, true); })
      .takes(picture_fields(c, true))
      .makes_jobs();
  router
      .add("GET", "/sdapi/v1/progress", "How far the caller's own jobs are",
           [&c](Call& call, const Answer& a) { tell_progress(c, call, a); })
      .asks({field("skip_current_image", FieldKind::Flag)});
  for (const char* method : {"GET", "POST"}) {
    router.add(method, "/sdapi/v1/interrupt",
               "Ends the caller's own jobs with the pictures that have begun, as they are",
               [&c](Call& call, const Answer& a) {
                 c.jobs.interrupt(call.caller.name);
                 a->respond(json_response(json::object()));
               });
    router.add(method, "/sdapi/v1/skip", "Ends the pictures that are being made as they are, and goes on with the next",
               [&c](Call& call, const Answer& a) {
                 c.jobs.skip(call.caller.name);
                 a->respond(json_response(json::object()));
               });
  }
  router.add("POST", "/sdapi/v1/reload-checkpoint",
             "Reads the caller's model into memory, before the first job needs it",
             [&c, choices](Call& call, const Answer& a) {
               c.jobs.load_model(model_of(c, *choices, call).name);
               a->respond(json_response(json::object()));
             });
  router.add("GET", "/sdapi/v1/options", "What applies to the caller's jobs",
             [&c, choices](Call& call, const Answer& a) {
               const std::string vae = choices->vae(call.caller);
               a->respond(json_response({{"sd_model_checkpoint", model_of(c, *choices, call).title},
                                         {"sd_checkpoint_hash", nullptr},
                                         {"sd_vae", vae.empty() ? "Automatic" : vae},
                                         {"CLIP_stop_at_last_layers", choices->last_layers(call.caller)},
                                         {"samples_format", "png"},
                                         {"samples_save", true},
                                         {"show_progress_type", "Approx NN"},
                                         {"live_previews_enable", true}}));
             });
  router
      .add("POST", "/sdapi/v1/options", "Another model for the caller's jobs; the whole dict may come back",
           [&c, choices](Call& call, const Answer& a) {
             const json& b = call.body;
             if (auto vae = vae_of(c, b)) choices->set_vae(call.caller, *vae);
             if (b.contains("CLIP_stop_at_last_layers"))
               choices->set_layers(call.caller, layers_of(b["CLIP_stop_at_last_layers"]));
             if (b.contains("sd_model_checkpoint") && says_something(b["sd_model_checkpoint"]))
               choices->set(call.caller, c.jobs.shelf().find(b.value("sd_model_checkpoint", "")).name);
             a->respond(json_response(nullptr));
           })
      .takes({.all = {field("sd_model_checkpoint", FieldKind::Text).at_most(300)}, .others = true});
}

}  // namespace sf::server
