#include "scaffolding/server/jobs/drawing.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <span>

#include "scaffolding/core/error.h"
#include "scaffolding/core/version.h"
#include "scaffolding/diffusion/pipelines/image_processor.h"
#include "scaffolding/io/file.h"
#include "scaffolding/io/pictures/image.h"

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
                                           "guidance_mode"};

template <class T> bool set(const AnyOptions& o, const char* name, const T& value) {
  auto* field = o.find(name);
  if (field) *std::get<T*>(field->place) = value;
  return field != nullptr;
}

std::string bytes_of_file(const std::string& path) {
  const io::Bytes bytes = io::Bytes::read(path);
  return {bytes.chars(), bytes.size};
}

void give_pictures(const AnyOptions& o, const DiffusionPipeline& pipeline, const JobRequest& r,
                   const History& history) {
  diffusion::ImageProcessorOptions how{.vae_scale_factor = pipeline.vae_scale_factor()};
  const diffusion::PreprocessOptions size{.height = r.height, .width = r.width};
  const Tensor picture = picture_of("image", bytes_of_file(history.input_path(r.image)), INT64_MAX);
  const Tensor image = diffusion::VaeImageProcessor(how).preprocess(Tensors{picture}, size);
  o.at<Tensor>("image") = image;
  if (r.mask.empty()) {
    set<std::optional<int64_t>>(o, "height", std::nullopt), set<std::optional<int64_t>>(o, "width", std::nullopt);
    return;
  }
  how.do_normalize = false;
  how.do_binarize = how.do_convert_grayscale = true;
  const Tensor mask = picture_of("mask", bytes_of_file(history.input_path(r.mask)), INT64_MAX, true);
  o.at<Tensor>("mask_image") = diffusion::VaeImageProcessor(how).preprocess(Tensors{mask}, size);
  set<std::optional<int64_t>>(o, "height", image.size(2)), set<std::optional<int64_t>>(o, "width", image.size(3));
}

}  // namespace

Tensor picture_of(const std::string& field, std::string_view bytes, int64_t most_pixels, bool grey) {
  SF_CHECK(!bytes.empty(), field, ": is empty, where a PNG, JPEG or WebP is needed");
  io::ImageReadOptions options{.mode = grey ? io::ImageMode::L : io::ImageMode::RGB};
  if (most_pixels < INT64_MAX) options.max_pixels = most_pixels;
  return io::decode_image(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()), field, options);
}

double guidance_of(const JobRequest& r, const DiffusionPipeline& pipeline) {
  return r.guidance.value_or(pipeline.advised_guidance_scale.value_or(kGuidance));
}

std::unique_ptr<diffusion::Run> start_run(const DiffusionPipeline& loaded, const JobRequest& r, int64_t place,
                                          const History& history, const Samplers& samplers) {
  // A scheduler of its own: runs take turns.
  const auto pipeline = loaded.clone();
  pipeline->set_scheduler(samplers.make(r.sampler, *loaded.the_scheduler(), r.scheduler_options));
  const AnyOptions o = pipeline->make_options();
  const char* who = pipeline->name();
  if (r.width) SF_CHECK(set(o, "width", r.width), "width: a ", who, " does not take it");
  if (r.height) SF_CHECK(set(o, "height", r.height), "height: a ", who, " does not take it");
  SF_CHECK(set(o, "num_inference_steps", r.steps), "steps: a ", who, " does not take it");
  set(o, "guidance_scale", guidance_of(r, loaded));
  const std::string prompt = diffusion::take_lora_tags(r.prompt).text;
  set(o, "prompt", std::vector<std::string>{prompt});
  if (!r.negative_prompt.empty())
    SF_CHECK(set(o, "negative_prompt", std::vector<std::string>{r.negative_prompt}), "negative_prompt: a ", who,
             " does not take it");
  for (auto& [name, text] : r.options) {
    auto* field = o.find(name);
    SF_CHECK(field, name, ": a ", who, " does not take it");
    diffusion::set_from_text(name, *field, text);
  }
  if (o.find("class_labels"))
    SF_CHECK(o.at<std::vector<int64_t>>("class_labels").size() == 1, "class_labels: a ", who, " needs one");
  if (!r.image.empty()) {
    SF_CHECK(o.find("image"), "image: a ", who, " does not take it");
    give_pictures(o, *pipeline, r, history);
    set(o, "strength", r.strength);
  }
  o.at<diffusion::Generators>("generator") = {make_generator()};
  o.at<diffusion::Generators>("generator")[0]->manual_seed(uint64_t(r.seed + place));
  return pipeline->start(o);
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

std::string option_text(const std::string& name, const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  SF_CHECK(value.is_array(), name, ": must be text, a number, true, false or a list of numbers");
  std::string out;
  for (auto& v : value) {
    SF_CHECK(v.is_number(), name, ": a list must be of numbers");
    out += (out.empty() ? "" : ",") + v.dump();
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
  if (!r.image.empty()) {
    std::snprintf(numbers, sizeof numbers, ", Denoising strength: %g", r.strength);
    out += numbers;
  }
  return out + ", Version: scaffolding " + version();
}

std::string png_of(const Tensor& frame, const JobRequest& r, int64_t place, const char* scheduler, DType dtype,
                   double guidance) {
  const Tensor picture = frame.cpu().permute({2, 0, 1});
  const int64_t height = picture.size(1), width = picture.size(2);
  nlohmann::ordered_json s{{"command", r.mask.empty() ? r.image.empty() ? "txt2img" : "img2img" : "inpaint"},
                           {"version", version()},
                           {"prompt", r.prompt},
                           {"negative_prompt", r.negative_prompt},
                           {"model", r.model},
                           {"sampler", r.sampler},
                           {"scheduler_options", r.scheduler_options},
                           {"width", width},
                           {"height", height},
                           {"steps", r.steps},
                           {"guidance", guidance},
                           {"seed", r.seed + place},
                           {"dtype", std::string(name(dtype))},
                           {"batch_of", 1},
                           {"place", 0}};
  std::map<std::string, std::string> more = r.options;
  auto number = [&](const char* name) {
    if (auto it = more.find(name); it != more.end()) s[name] = json::parse(it->second, nullptr, false), more.erase(it);
  };
  number("guidance_rescale"), number("eta"), number("clip_skip");
  if (auto it = more.find("prompt_syntax"); it != more.end()) s["prompt_syntax"] = it->second, more.erase(it);
  if (!r.image.empty()) s["strength"] = r.strength;
  if (!more.empty()) s["options"] = more;
  io::ImageWriteOptions writing;
  writing.text = {{"parameters", parameters_text(r, place, scheduler, width, height, guidance)},
                  {"scaffolding", s.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)}};
  return io::encode_image(picture, io::ImageFormat::PNG, writing);
}

}  // namespace sf::server
