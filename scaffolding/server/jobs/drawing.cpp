#include "scaffolding/server/jobs/drawing.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <span>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/version.h"
#include "scaffolding/diffusion/pipelines/controlnet/controlled_pipeline.h"
#include "scaffolding/diffusion/pipelines/tora/trajectory.h"
#include "scaffolding/diffusion/pipelines/usual_guidance.h"
#include "scaffolding/io/file.h"
#include "scaffolding/io/json.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/server/jobs/clip_files.h"
#include "scaffolding/server/jobs/masks.h"

namespace sf::server {

using diffusion::AnyOptions;
using diffusion::DiffusionPipeline;
using diffusion::Task;

namespace {

// Fields of a call that a request says by fields of its own, or not at all.
constexpr std::string_view kOwnFields[] = {"prompt",
                                           "negative_prompt",
                                           "height",
                                           "width",
                                           "num_inference_steps",
                                           "guidance_scale",
                                           "strength",
                                           "num_images_per_prompt",
                                           "num_videos_per_prompt",
                                           "output_latents",
                                           "capture",
                                           "cache_prompt",
                                           "guidance_mode",
                                           "batch_size"};

template <class T> bool set(const AnyOptions& o, const char* name, const T& value) {
  auto* field = o.find(name);
  if (field) *std::get<T*>(field->place) = value;
  return field != nullptr;
}

// Points on Tora's canvas of 256 x 256 as a trajectory in pixels of the clip. ValueError for points that are none.
std::string on_canvas_of(const std::string& points, int64_t height, int64_t width) {
  auto all = diffusion::parse_trajectories(points, "trajectory_points");
  const diffusion::Canvas canvas;
  diffusion::check_trajectories(all, canvas);
  std::string out;
  char text[80];
  for (auto& trajectory : all) {
    out += out.empty() ? "" : "; ";
    for (auto& p : trajectory) {
      std::snprintf(text, sizeof text, "%.17g,%.17g ", p.x * (double(width) / double(canvas.width)),
                    p.y * (double(height) / double(canvas.height)));
      out += text;
    }
    out.pop_back();
  }
  return out;
}

}  // namespace

Tensor picture_of(const std::string& field, std::string_view bytes, int64_t most_pixels, bool grey) {
  SF_CHECK(!bytes.empty(), field, ": is empty, where a PNG, JPEG or WebP is needed");
  io::ImageReadOptions options{.mode = grey ? io::ImageMode::L : io::ImageMode::RGB};
  if (most_pixels < INT64_MAX) options.max_pixels = most_pixels;
  return io::decode_image(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()), field, options);
}

double guidance_of(const JobRequest& r, const DiffusionPipeline& pipeline) {
  return r.guidance.value_or(usual_guidance(pipeline));
}

PictureRun::PictureRun(const DiffusionPipeline& loaded, const JobRequest& r, int64_t place, const History& history,
                       const Samplers& samplers, EncodedPrompts& prompts)
    : request_(r),
      place_(place),
      pipeline_(loaded.clone()),
      options_(pipeline_->make_options()),
      guidance_(guidance_of(r, loaded)) {
  check_kind();
  // A scheduler of its own: runs take turns.
  pipeline_->set_scheduler(samplers.make(r.sampler, *loaded.the_scheduler(), r.scheduler_options));
  set_options();
  if (!r.image.empty()) give_pictures(history);
  if (!r.controls.empty()) give_controls(history);
  const AnyOptions& o = options_;
  prompts.put_into(o, *pipeline_, r);
  o.at<diffusion::Generators>("generator") = {make_generator()};
  o.at<diffusion::Generators>("generator")[0]->manual_seed(uint64_t(r.seed + place));
  if (r.hires) {
    diffusion::HiresOptions second{
        .scale = *r.hires, .strength = r.hires_strength, .num_inference_steps = r.hires_steps};
    second.upscaler = diffusion::hires_upscaler(r.hires_upscaler);
    hires_.emplace(*pipeline_, second);
    run_ = hires_->first(o);
    const auto more = int64_t(double(r.hires_steps.value_or(r.steps)) * r.hires_strength);  // about
    steps_ = int64_t(run_->schedule.size()) + more;
  } else {
    run_ = pipeline_->start(o);
    steps_ = int64_t(run_->schedule.size());
  }
}

// What a request may ask of pictures, and of clips.
void PictureRun::check_kind() {
  const JobRequest& r = request_;
  const char* who = pipeline_->name();
  const Task task = diffusion::pipeline_entry(who).its_task;
  clip_ = diffusion::makes_clips(task);
  SF_CHECK(task != Task::ImageToVideo || !r.image.empty(), "image: a ", who, " needs one");
  if (!clip_) {
    SF_CHECK(r.format.empty() || r.format == "png", "format: a ", who, " makes pictures, which are png, got '",
             r.format, "'");
    SF_CHECK(!r.fps, "fps: a ", who, " makes no clips");
    return;
  }
  SF_CHECK(r.api == "jobs", "model: '", r.model, "' makes clips, which /api/v1/jobs gives alone");
  SF_CHECK(!r.hires, "hires: a ", who, " does not take it");
  check_clip_format(r.format.empty() ? kUsualClipFormat : r.format, r.fps.value_or(kUsualFps));
}

double PictureRun::fps() const {
  if (request_.fps) return *request_.fps;
  return options_.find("frame_rate") ? options_.at<double>("frame_rate") : kUsualFps;
}

void PictureRun::set_options() {
  const JobRequest& r = request_;
  const AnyOptions& o = options_;
  const char* who = pipeline_->name();
  if (r.width) SF_CHECK(set(o, "width", r.width), "width: a ", who, " does not take it");
  if (r.height) SF_CHECK(set(o, "height", r.height), "height: a ", who, " does not take it");
  SF_CHECK(set(o, "num_inference_steps", r.steps), "steps: a ", who, " does not take it");
  // Other programs' clients always send some.
  SF_CHECK(set(o, "guidance_scale", guidance_) || !r.guidance || r.api != "jobs", "guidance_scale: a ", who,
           " does not take it");
  const std::string prompt = diffusion::take_lora_tags(r.prompt).text;
  const bool takes_prompt = set(o, "prompt", std::vector<std::string>{prompt});
  if (!r.negative_prompt.empty())
    SF_CHECK(set(o, "negative_prompt", std::vector<std::string>{r.negative_prompt}), "negative_prompt: a ", who,
             " does not take it");
  for (auto& [name, text] : r.options) {
    auto* field = o.find(name);
    // AUTOMATIC1111's clients write prompts in its syntax; a pipeline without another takes them as they are.
    if (!field && name == "prompt_syntax" && r.api == "webui") continue;
    SF_CHECK(field, name, ": a ", who, " does not take it");
    if (name != "trajectory_points") diffusion::set_from_text(name, *field, text);
  }
  // The pipeline would take them for names of files.
  if (auto points = r.options.find("trajectory_points"); points != r.options.end()) {
    const auto size = pipeline_->size(r.height, r.width);
    std::string& all = request_.options["trajectory"];
    const std::string text = on_canvas_of(points->second, size.height, size.width);
    all += (all.empty() ? "" : "; ") + text;
    request_.options.erase("trajectory_points");
    o.at<std::vector<std::string>>("trajectory") = {all};
  }
  if (!o.find("class_labels")) {
    SF_CHECK(takes_prompt || prompt.empty(), "prompt: a ", who, " does not take it");
    return;
  }
  auto& labels = o.at<std::vector<int64_t>>("class_labels");
  if (labels.empty() && !prompt.empty()) labels = pipeline_->get_label_ids({prompt});
  SF_CHECK(labels.size() == 1, "class_labels: a ", who, " needs one");
}

void PictureRun::give_pictures(const History& history) {
  const JobRequest& r = request_;
  const AnyOptions& o = options_;
  SF_CHECK(o.find("image"), "image: a ", pipeline_->name(), " does not take it");
  set(o, "strength", r.strength);
  diffusion::ImageProcessorOptions how{.vae_scale_factor = pipeline_->side_multiple(),
                                       .resample = data::filter(pipeline_->picture_resample())};
  diffusion::PreprocessOptions size{.height = r.height, .width = r.width};
  Tensor picture = picture_of("image", history.input_bytes(r.image), INT64_MAX);
  if (clip_) {
    const auto clip = pipeline_->size(r.height, r.width);
    size.height = clip.height, size.width = clip.width;
    o.at<Tensor>("image") =
        diffusion::VaeImageProcessor(how).preprocess(Tensors{pipeline_->told_picture(picture, o)}, size);
    return;
  }
  if (const auto own = pipeline_->picture_size(picture.size(1), picture.size(2))) {
    size.height = own->height, size.width = own->width;
    o.at<Tensor>("image") = diffusion::VaeImageProcessor(how).preprocess(Tensors{picture}, size);
    return;
  }
  if (r.mask.empty()) {
    o.at<Tensor>("image") = diffusion::VaeImageProcessor(how).preprocess(Tensors{picture}, size);
    set<std::optional<int64_t>>(o, "height", std::nullopt), set<std::optional<int64_t>>(o, "width", std::nullopt);
    return;
  }
  const Tensor hard = picture_of("mask", history.input_bytes(r.mask), INT64_MAX, true);
  const Tensor mask = blurred_mask(hard, r.mask_blur);
  if (r.api == "webui" || r.mask_blur || r.mask_padding) original_ = picture, mask_ = mask;
  if (r.mask_fill == MaskFill::Around) picture = filled_picture(picture, hard);
  if (r.mask_padding) {
    if (!size.height) size.height = picture.size(1);
    if (!size.width) size.width = picture.size(2);
    size.crop = crop_ = diffusion::VaeImageProcessor::crop_region(hard, *size.width, *size.height, *r.mask_padding);
  }
  const Tensor image = diffusion::VaeImageProcessor(how).preprocess(Tensors{picture}, size);
  how.do_normalize = false;
  how.do_binarize = how.do_convert_grayscale = true;
  const Tensor cover = diffusion::VaeImageProcessor(how).preprocess(Tensors{mask}, size);
  const bool in_latents = r.mask_fill == MaskFill::Noise || r.mask_fill == MaskFill::Nothing;
  o.at<Tensor>("image") = in_latents ? filled_latents(image, cover) : image;
  o.at<Tensor>("mask_image") = cover;
  set<std::optional<int64_t>>(o, "height", image.size(2)), set<std::optional<int64_t>>(o, "width", image.size(3));
}

// As large as what is made, and cut as it is.
void PictureRun::give_controls(const History& history) {
  const JobRequest& r = request_;
  SF_CHECK(!r.hires, "hires: its second pass has no picture of its size for a ControlNet; leave either out");
  diffusion::PreprocessOptions size{.height = r.height, .width = r.width, .crop = crop_};
  if (!r.image.empty()) {
    const Tensor image = options_.at<Tensor>("image");
    const int64_t pixels = image.size(1) == 3 ? 1 : pipeline_->vae_scale_factor();
    size.height = image.size(2) * pixels, size.width = image.size(3) * pixels;
  }
  Tensors seen;
  for (auto& net : r.controls) {
    Tensor picture = picture_of("controlnet", history.input_bytes(net.image), INT64_MAX);
    if (crop_)  // it is of the whole picture
      picture = diffusion::VaeImageProcessor().resize(picture, original_.size(1), original_.size(2));
    seen.push_back(diffusion::control_picture(*pipeline_, picture, net.mode, size));
    if (r.image.empty()) size.height = seen[0].size(2), size.width = seen[0].size(3);
  }
  bool taken = false;
  for (auto& field : options_.fields())
    if (field.role == diffusion::OptionRole::Control) *std::get<Tensors*>(field.place) = seen, taken = true;
  SF_CHECK(taken, "controlnet: a ", pipeline_->name(), " has none inside; name a model for each");
}

// Of a picture [1, 3, H, W] in [-1, 1], with noise or nothing where the mask [1, 1, H, W] is white.
Tensor PictureRun::filled_latents(const Tensor& image, const Tensor& mask) const {
  const auto vae = pipeline_->the_autoencoder();
  SF_CHECK(vae, "inpainting_fill: the model has no autoencoder");
  autograd::NoGrad no_grad;
  auto generator = make_generator();
  generator->manual_seed(uint64_t(request_.seed + place_));
  const Tensor latents = vae->scaled(vae->encode(image.to(vae->device()).to(vae->dtype()), generator));
  const Tensor cover =
      interpolate(mask, Shape{latents.size(2), latents.size(3)}).to(latents.dtype()).to(latents.device());
  const Tensor kept = latents * (1 - cover);
  if (request_.mask_fill == MaskFill::Nothing) return kept.cpu();
  const Tensor noise = diffusion::randn_tensor(latents.shape(), {generator}, latents.device(), latents.dtype());
  return (kept + cover * noise).cpu();
}

bool PictureRun::done() const { return skipped_ || (run_->done() && (!hires_ || second_)); }

void PictureRun::step() { next_run().step(); }

diffusion::Run& PictureRun::next_run() {
  if (run_->done()) {
    auto first = std::move(run_);
    calls_before_ = first->calls();
    run_ = hires_->second(options_, *first);
    before_ += int64_t(first->at()), second_ = true;
    steps_ = before_ + int64_t(run_->schedule.size());
  }
  return *run_;
}

std::vector<std::string> option_names(Task task) {
  std::set<std::string> names;
  for (auto* entry : diffusion::all_pipelines()) {
    const bool of_classes = task == Task::TextToImage && entry->its_task == Task::ClassToImage;
    if (entry->its_task != task && !of_classes) continue;
    const AnyOptions options = entry->make()->make_options();
    for (auto& field : options.fields())
      if (diffusion::takes_text(field) &&
          std::find(std::begin(kOwnFields), std::end(kOwnFields), field.name) == std::end(kOwnFields))
        names.insert(field.name);
  }
  return {names.begin(), names.end()};
}

std::string trajectories_text(const std::string& name, const json& value) {
  std::string out;
  auto add = [&](const json& one) {
    if (!out.empty()) out += "; ";
    if (one.is_string()) return void(out += one.get<std::string>());
    SF_CHECK(one.is_array() && !one.empty(), name, ": must be texts 'x,y x,y', or lists of points [x, y]");
    for (auto& point : one) {
      SF_CHECK(point.is_array() && point.size() == 2 && point[0].is_number() && point[1].is_number(), name,
               ": a point must be two numbers [x, y]");
      out += (&point == &one.front() ? "" : " ") + io::json_text(point[0]) + "," + io::json_text(point[1]);
    }
  };
  if (value.is_array()) std::for_each(value.begin(), value.end(), add);
  else add(value);
  diffusion::parse_trajectories(out, name);
  return out;
}

std::string option_text(const std::string& name, const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return io::json_text(value);
  SF_CHECK(value.is_array(), name, ": must be text, a number, true, false or a list of numbers");
  std::string out;
  for (auto& v : value) {
    SF_CHECK(v.is_number(), name, ": a list must be of numbers");
    out += (out.empty() ? "" : ",") + io::json_text(v);
  }
  return out;
}

std::string parameters_text(const JobRequest& r, int64_t place, const char* scheduler, int64_t width, int64_t height,
                            double guidance) {
  std::string out = r.prompt;
  const auto there = diffusion::take_lora_tags(r.prompt).tags;
  for (auto& l : r.loras)
    if (std::find(there.begin(), there.end(), l) == there.end()) out += " " + diffusion::text_of(l);
  out += "\n";
  if (!r.negative_prompt.empty()) out += "Negative prompt: " + r.negative_prompt + "\n";
  char numbers[200];
  std::snprintf(numbers, sizeof numbers, "Steps: %lld, Sampler: %s, CFG scale: %g, Seed: %lld, Size: %lldx%lld",
                static_cast<long long>(r.steps), r.sampler.empty() ? scheduler : r.sampler.c_str(), guidance,
                static_cast<long long>(r.seed + place), static_cast<long long>(width), static_cast<long long>(height));
  out += numbers + (", Model: " + r.model);
  if (!r.vae.empty()) out += ", VAE: " + r.vae;
  if (!r.image.empty()) {
    std::snprintf(numbers, sizeof numbers, ", Denoising strength: %g", r.strength);
    out += numbers;
  }
  if (r.hires) {
    std::snprintf(numbers, sizeof numbers,
                  ", Denoising strength: %g, Hires upscale: %g, Hires steps: %lld, "
                  "Hires upscaler: %s",
                  r.hires_strength, *r.hires, static_cast<long long>(r.hires_steps.value_or(r.steps)),
                  r.hires_upscaler.c_str());
    out += numbers;
  }
  return out + ", Version: scaffolding " + version();
}

nlohmann::ordered_json PictureRun::settings(const WeightTypes& weights, int64_t height, int64_t width) const {
  const JobRequest& r = request_;
  const char* command = clip_              ? r.image.empty() ? "txt2vid" : "img2vid"
                        : !r.mask.empty()  ? "inpaint"
                        : !r.image.empty() ? "img2img"
                                           : "txt2img";
  nlohmann::ordered_json s{{"command", command},
                           {"version", version()},
                           {"prompt", r.prompt},
                           {"negative_prompt", r.negative_prompt},
                           {"model", r.model},
                           {"sampler", r.sampler},
                           {"scheduler_options", r.scheduler_options},
                           {"width", width},
                           {"height", height},
                           {"steps", r.steps},
                           {"guidance", guidance_},
                           {"seed", r.seed + place_},
                           {"dtype", std::string(name(weights.dtype))},
                           {"batch_of", 1},
                           {"place", 0}};
  std::map<std::string, std::string> more = r.options;
  auto number = [&](const char* name) {
    if (auto it = more.find(name); it != more.end()) s[name] = io::parse_json(it->second), more.erase(it);
  };
  number("guidance_rescale"), number("eta"), number("clip_skip");
  if (auto it = more.find("prompt_syntax"); it != more.end()) s["prompt_syntax"] = it->second, more.erase(it);
  if (!weights.quantize.empty()) s["quantize"] = weights.quantize;
  if (!r.vae.empty()) s["vae"] = r.vae;
  for (auto& net : r.controls)
    if (!net.model.empty()) s["controlnet"].push_back(net.model), s["control_mode"].push_back(net.mode);
  if (clip_) s["fps"] = fps();
  else if (!r.image.empty()) s["strength"] = r.strength;
  if (!more.empty()) s["options"] = more;
  if (r.hires) {
    s["hires"] = *r.hires, s["hires_strength"] = r.hires_strength, s["hires_upscaler"] = r.hires_upscaler;
    if (r.hires_steps) s["hires_steps"] = *r.hires_steps;
  }
  std::vector<diffusion::CallRows> calls = calls_before_;
  calls.insert(calls.end(), run_->calls().begin(), run_->calls().end());
  if (std::any_of(calls.begin(), calls.end(), [&](auto& c) { return c.rows != run_->rows(); })) {
    s["calls"] = json::array();  // steps, place and rows of those that were shared, and of those between
    for (auto& c : calls) s["calls"].push_back({c.steps, c.place, c.rows});
  }
  return s;
}

PictureRun::Made PictureRun::finish(const WeightTypes& weights, const std::string& scratch,
                                    const diffusion::DecodeProgress& progress) {
  const JobRequest& r = request_;
  Made made{.latents = still()};
  auto output = run_->finish_frames(progress);
  SF_CHECK_AS(RuntimeError, output.clips.size() == 1 && !output.clips[0].empty(),
              "job: one picture was asked for, and ", int64_t(output.clips.size()), " came");
  Tensors& frames = output.clips[0];
  for (Tensor& f : frames) f = f.cpu();
  made.decoded = frames[0];
  made.height = frames[0].size(0), made.width = frames[0].size(1), made.frames = int64_t(frames.size());
  const auto text = [](const nlohmann::ordered_json& s) { return io::tolerant_json_text(s); };
  if (clip_) {
    const std::string format = r.format.empty() ? kUsualClipFormat : r.format;
    const io::VideoText said{{"title", diffusion::take_lora_tags(r.prompt).text},
                             {"comment", text(settings(weights, made.height, made.width))}};
    std::string bytes = clip_bytes(frames, format, fps(), said, scratch, output.sound);
    made.file = [bytes = std::move(bytes)]() mutable { return std::move(bytes); };
    made.suffix = clip_suffix(format);
    return made;
  }
  Tensor picture = frames[0].permute({2, 0, 1});
  if (original_) {
    const diffusion::VaeImageProcessor processor;
    Tensor mask = mask_, original = original_;
    if (!crop_)
      mask = processor.resize(mask, picture.size(1), picture.size(2)),
      original = processor.resize(original, picture.size(1), picture.size(2));
    picture = processor.apply_overlay(mask, original, picture, crop_);
    made.height = picture.size(1), made.width = picture.size(2);
  }
  // Of a hires fix the first pass's, by which it is made again.
  const auto asked = r.hires ? pipeline_->size(r.height, r.width) : DiffusionPipeline::Size{made.height, made.width};
  // Half the time of the usual 6, which somebody waits for, and 2 to 9 % more bytes.
  io::ImageWriteOptions writing{.compression = 3};
  writing.text = {
      {"parameters", parameters_text(r, place_, run_->scheduler->name(), asked.width, asked.height, guidance_)}};
  if (skipped_) writing.text["parameters"] += ", Skipped after: " + std::to_string(at());
  else writing.text["scaffolding"] = text(settings(weights, asked.height, asked.width));  // it can be made again
  made.file = [picture, writing = std::move(writing)] {
    return io::encode_image(picture, io::ImageFormat::PNG, writing);
  };
  made.suffix = ".png";
  return made;
}

}  // namespace sf::server
