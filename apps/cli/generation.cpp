#include "apps/cli/generation.h"

#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <iostream>
#include <random>

#include "apps/cli/animations.h"
#include "apps/cli/clips.h"
#include "apps/cli/controlnets.h"
#include "apps/cli/files.h"
#include "apps/cli/hires.h"
#include "apps/cli/new_file.h"
#include "apps/cli/output_file.h"
#include "apps/cli/prompt_notes.h"
#include "apps/cli/suggestions.h"
#include "apps/cli/terminal.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/version.h"
#include "scaffolding/diffusion/memory/pipeline_memory.h"
#include "scaffolding/diffusion/pipelines/image_processor.h"
#include "scaffolding/diffusion/pipelines/shared_steps.h"
#include "scaffolding/diffusion/pipelines/usual_guidance.h"
#include "scaffolding/io/audio/wav.h"
#include "scaffolding/io/json.h"
#include "scaffolding/io/pictures/image.h"

namespace sf::cli {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr double kFps = 8;
constexpr const char* kTextKey = "scaffolding";  // of the settings as JSON, in a PNG

// What a picture is made again from: one list for writing, reading and the settings themselves.
template <class F> void each_setting(GenerationSettings& s, const F& f) {
  f("prompt", s.prompt, "--prompt");
  f("negative_prompt", s.negative_prompt, "--negative-prompt");
  f("model", s.model, "--model");
  f("vae", s.vae, "--vae");
  f("embedding", s.embeddings, "--embedding");
  f("sampler", s.sampler, "--sampler");
  f("scheduler_options", s.scheduler_options, "--scheduler-option");
  f("width", s.width, "--width");
  f("height", s.height, "--height");
  f("steps", s.steps, "--steps");
  f("guidance", s.guidance, "--guidance");
  f("guidance_rescale", s.guidance_rescale, "--guidance-rescale");
  f("eta", s.eta, "--eta");
  f("clip_skip", s.clip_skip, "--clip-skip");
  f("seed", s.seed, "--seed");
  f("dtype", s.dtype, "--dtype");
  f("quantize", s.quantize, "--quantize");
  f("prompt_syntax", s.prompt_syntax, "--prompt-syntax");
  f("batch_of", s.batch_of, "--batch");
  f("place", s.place, "--batch");
  f("calls", s.calls, "--batch");
  f("fps", s.fps, "--fps");
  f("image", s.image, "--image");
  f("mask", s.mask, "--mask");
  f("strength", s.strength, "--strength");
  f("controlnet", s.controlnets, "--controlnet");
  f("control_image", s.control_images, "--control-image");
  f("control_mode", s.control_modes, "--control-mode");
  f("hires", s.hires, "--hires");
  f("hires_strength", s.hires_strength, "--hires-strength");
  f("hires_steps", s.hires_steps, "--hires-steps");
  f("hires_upscaler", s.hires_upscaler, "--hires-upscaler");
  f("tiling", s.tiling, "--tiling");
  f("freeu", s.freeu, "--freeu");
  f("grid", s.grid, "--grid");
  f("options", s.options, "");
}

template <class T> void put(ordered_json& out, const char* name, const T& value) { out[name] = value; }
template <class T> void put(ordered_json& out, const char* name, const std::optional<T>& value) {
  if (value) out[name] = *value;
}
void put(ordered_json& out, const char* name, const std::map<std::string, std::string>& values) {
  if (!values.empty()) out[name] = values;
}
void put(ordered_json& out, const char* name, const std::vector<std::array<int64_t, 3>>& values) {
  if (!values.empty()) out[name] = values;
}
template <class T> void take(const ordered_json& in, T& value) { value = in.get<T>(); }
void take(const ordered_json& in, std::map<std::string, std::string>& values) {  // those that were given stay
  for (auto& [name, value] : in.get<std::map<std::string, std::string>>()) values.emplace(name, value);
}
template <class T> void take(const ordered_json& in, std::optional<T>& value) { value = in.get<T>(); }

ordered_json settings_json(GenerationSettings s, const char* kind, int64_t seed, int64_t batch, int64_t place,
                           int64_t width, int64_t height) {
  s.seed = seed;
  s.batch_of = batch;
  s.place = place;
  s.width = width;
  s.height = height;
  ordered_json out{{"command", kind}, {"version", version()}};
  each_setting(s, [&](const char* name, auto& value, const char*) { put(out, name, value); });
  if (s.image.empty()) out.erase("image"), out.erase("strength");
  for (const char* name : {"mask", "vae", "embedding", "quantize", "tiling", "freeu", "grid", "controlnet",
                           "control_image", "control_mode"})
    if (out[name] == "" || out[name] == ordered_json::array()) out.erase(name);
  if (!s.clips) out.erase("fps");
  if (!s.hires)
    for (const char* name : {"hires_strength", "hires_steps", "hires_upscaler"}) out.erase(name);
  if (!s.loras.used.empty()) out["lora"] = loras_json(s.loras.used);
  return out;
}

// A value as the web UI writes it, where a comma would end it.
std::string quoted_value(const std::string& value) {
  if (value.find_first_of(",:\n") == value.npos) return value;
  return io::tolerant_json_text(ordered_json(value));
}

// As AUTOMATIC1111's web UI writes it, which many programs read.
std::string a1111_text(const GenerationSettings& s, const char* scheduler, int64_t seed, int64_t width,
                       int64_t height) {
  std::string out = s.prompt + added_tags(s.loras.used, s.prompt) + "\n";
  if (!s.negative_prompt.empty()) out += "Negative prompt: " + s.negative_prompt + "\n";
  char numbers[200];
  std::snprintf(numbers, sizeof numbers, "Steps: %lld, Sampler: %s, CFG scale: %g, Seed: %lld, Size: %lldx%lld",
                static_cast<long long>(s.steps), s.sampler.empty() ? scheduler : s.sampler.c_str(), *s.guidance,
                static_cast<long long>(seed), static_cast<long long>(width), static_cast<long long>(height));
  out += numbers + (", Model: " + quoted_value(fs::path(s.model).filename().string()));
  if (!s.vae.empty()) out += ", VAE: " + quoted_value(fs::path(s.vae).filename().string());
  if (s.hires) out += ", " + hires_text(s);
  if (!s.tiling.empty()) out += s.tiling == "xy" ? ", Tiling: True" : ", Tiling: " + s.tiling;
  if (!s.loras.used.empty()) out += ", Lora hashes: " + quoted_value(hashes_text(s.loras.used));
  return out + ", Version: scaffolding " + version();
}

// What the pipeline is told: the prompt without <lora:...>.
std::string untagged(const std::string& prompt) { return diffusion::take_lora_tags(prompt).text; }

// Another prompt, as XL's second text encoder takes one.
bool is_prompt(const std::string& option) { return option.starts_with("prompt_"); }

}  // namespace

std::vector<diffusion::LoraTag> lora_tags(const GenerationSettings& s) {
  std::vector<diffusion::LoraTag> out = diffusion::take_lora_tags(s.prompt).tags;
  for (auto& [name, text] : s.options) {
    if (!is_prompt(name)) continue;
    const auto more = diffusion::take_lora_tags(text).tags;
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

namespace {

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// A prompt as a part of a file's name.
std::string file_name_of(const std::string& prompt) {
  std::string out;
  for (char c : prompt.substr(0, 60)) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (plain) out += c;
    else if (!out.empty() && out.back() != '-') out += '-';
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out.empty() ? "picture" : out;
}

}  // namespace

// Where it names nothing that tells pictures apart, a number is added.
std::string output_path(const GenerationSettings& s, std::string path, int64_t seed, int64_t number) {
  const bool has_number = path.find("{number}") != std::string::npos,
             distinct = has_number || path.find("{seed}") != std::string::npos;
  replace_all(path, "{seed}", std::to_string(seed));
  replace_all(path, "{number}", std::to_string(number));
  replace_all(path, "{prompt}", file_name_of(untagged(s.prompt)));
  if (!has_number && (s.numbered || (!distinct && s.count > 1 && s.batch_of == 1))) {
    fs::path p(path);
    path = (p.parent_path() / (p.stem().string() + "-" + std::to_string(number) + p.extension().string())).string();
  }
  return path;
}

namespace {

diffusion::PromptSyntax syntax_of(const std::string& name) {
  if (name == "plain") return diffusion::PromptSyntax::Plain;
  if (name == "weighted" || name == "a1111") return diffusion::PromptSyntax::A1111;
  refuse_choice("--prompt-syntax", name, {"plain", "weighted"});
}

// What the settings say of a call; of fields that it does not have, only what was asked for is an error.
void apply(const GenerationSettings& s, const char* pipeline, const diffusion::OptionFields& fields) {
  using diffusion::OptionField;
  auto find = [&](std::string_view name) -> const OptionField* {
    auto at = std::find_if(fields.begin(), fields.end(), [&](auto& f) { return f.name == name; });
    return at == fields.end() ? nullptr : &*at;
  };
  auto set = [&](const char* name, const char* option, auto value, bool asked) {
    auto* field = find(name);
    SF_CHECK(field || !asked, option, ": a ", pipeline, " does not take it");
    if (field) *std::get<decltype(value)*>(field->place) = value;
  };
  set("height", "--height", s.height, s.height.has_value());
  set("width", "--width", s.width, s.width.has_value());
  set("num_inference_steps", "--steps", s.steps, true);
  set("guidance_scale", "--guidance", s.guidance.value_or(kGuidance), false);
  if (s.guidance_rescale) set("guidance_rescale", "--guidance-rescale", *s.guidance_rescale, *s.guidance_rescale != 0);
  set("clip_skip", "--clip-skip", s.clip_skip, s.clip_skip.has_value());
  set("eta", "--eta", s.eta, s.eta != 0);
  set("capture", "--no-capture", !s.no_capture, false);
  const diffusion::PromptSyntax syntax = syntax_of(s.prompt_syntax);
  auto* field = find("prompt_syntax");
  SF_CHECK(field || syntax == diffusion::PromptSyntax::Plain, "--prompt-syntax: a ", pipeline, " does not take it");
  if (field) diffusion::set_from_text("--prompt-syntax", *field, diffusion::name_of(syntax));
  for (auto& [name, text] : s.options) {
    auto* extra = find(name);
    SF_CHECK(extra, "--" + as_option_name(name), ": a ", pipeline, " does not take it");
    diffusion::set_from_text("--" + as_option_name(name), *extra, is_prompt(name) ? untagged(text) : text);
  }
}

}  // namespace

void settle(GenerationSettings& s, const diffusion::DiffusionPipeline& pipeline) {
  const diffusion::AnyOptions o = pipeline.make_options();
  if (!s.guidance) s.guidance = diffusion::usual_guidance(pipeline);
  if (!s.guidance_rescale) s.guidance_rescale = o.find("guidance_rescale") ? o.at<double>("guidance_rescale") : 0;
  auto* rate = o.find("frame_rate");
  if (rate && s.options.contains("frame_rate"))
    diffusion::set_from_text("--frame-rate", *rate, s.options["frame_rate"]);
  else if (rate && s.fps) s.options["frame_rate"] = ordered_json(*s.fps).dump();
  if (!s.fps) s.fps = rate ? o.at<double>("frame_rate") : kFps;
}

void read_like(const CLI::App& command, GenerationSettings& settings) {
  if (settings.like.empty()) return;
  io::ImageInfo info = io::image_info(settings.like);
  auto text = info.text.find(kTextKey);
  SF_CHECK(text != info.text.end(), "--like: ", settings.like,
           " does not say how it was made; it must be a PNG made by this program");
  ordered_json saved = io::parse_ordered_json(text->second);
  SF_CHECK(saved.is_object(), "--like: what ", settings.like, " says about itself cannot be read");
  auto is_given = [&](const char* option) {
    auto* given = command.get_option_no_throw(option);
    return given && given->count() > 0;
  };
  auto read = [&](const char* name, const auto& into) {
    auto it = saved.find(name);
    if (it == saved.end()) return;
    try {
      into(*it);
    } catch (const nlohmann::json::exception&) {
      fail("--like: ", settings.like, " has a '", name, "' of another kind");
    }
  };
  each_setting(settings, [&](const char* name, auto& value, const char* option) {
    if (!is_given(option)) read(name, [&](const ordered_json& json) { take(json, value); });
  });
  read("lora", [&](const ordered_json& json) { settings.loras.repeated = loras_of(json); });
  settings.loras.repeats_prompt = !is_given("--prompt");
  if (is_given("--lora")) std::erase_if(settings.loras.repeated, [](const UsedLora& lora) { return !lora.in_prompt; });
  // Another seed or number of pictures is another batch: only the picture itself is repeated to the last bit.
  bool same = command.count("--seed") + command.count("--count") + command.count("--batch") == 0;
  bool sound = settings.batch_of >= 1 && settings.batch_of <= 1024 && settings.place >= 0 &&
               settings.place < settings.batch_of && settings.seed.value_or(0) >= settings.place;
  if (same && sound) settings.batch = settings.count = settings.batch_of;
  else settings.batch_of = 1, settings.place = 0;
  if (!same || settings.batch_of != 1) settings.calls.clear();
  if (settings.seed) *settings.seed -= settings.place;
}

Tensor input_picture(const char* option, const std::string& path, io::ImageMode mode) {
  SF_CHECK(!path.empty(), option, ": needs a picture");
  SF_CHECK(fs::is_regular_file(path), option, ": there is no file '", path, "'");
  SF_CHECK(is_picture(path), option, ": '", path, "' is no PNG, JPEG or WebP");
  return io::read_image(path, {.mode = mode});
}

diffusion::GenerationOptions sampling_options(const GenerationSettings& s) {
  diffusion::GenerationOptions o;
  apply(s, diffusion::StableDiffusionPipeline::kName, o.fields());
  return o;
}

diffusion::AnyOptions batch_options(const char* command, const GenerationSettings& s,
                                    const diffusion::DiffusionPipeline& pipeline, int64_t batch) {
  const diffusion::AnyOptions o = pipeline.make_options();
  apply(s, pipeline.name(), o.fields());
  // Each sample of the batch is told the same.
  if (o.find("prompt")) o.at<std::vector<std::string>>("prompt").assign(size_t(batch), untagged(s.prompt));
  if (o.find("negative_prompt"))
    o.at<std::vector<std::string>>("negative_prompt").assign(size_t(batch), s.negative_prompt);
  if (o.find("class_labels")) {
    auto& labels = o.at<std::vector<int64_t>>("class_labels");
    SF_CHECK(!labels.empty(), command, ": a ", pipeline.name(), " needs --class-labels");
    labels = std::vector<int64_t>(size_t(batch), labels[0]);
  }
  return o;
}

void check_outputs(const GenerationSettings& s) {
  const std::vector<std::string> filled_in{"seed", "number", "prompt"};
  check_template("--output", s.output, filled_in);
  check_template("--save-steps", s.save_steps, filled_in);
  if (s.clips) check_clip_output("--output", output_path(s, s.output, 0, 0), s.fps.value_or(kFps));
  else check_output("--output", output_path(s, s.output, 0, 0), ".png .jpg .jpeg .webp");
  if (!s.preview.empty() && s.preview != "terminal") check_output("--preview", s.preview, ".png .jpg .jpeg .webp");
  if (s.save_steps.empty()) return;
  check_output("--save-steps", output_path(s, s.save_steps, 0, 0), ".gif .webp");
  SF_CHECK(!s.hires, "--save-steps: the passes of --hires have two sizes, and an animation one; leave either out");
  check_animation("--save-steps", s.save_steps);
}

ordered_json write_picture(const std::string& path, const Tensor& picture, const GenerationSettings& s,
                           const char* kind, const char* scheduler, const std::string& more) {
  const int64_t width = s.width.value_or(picture.size(2)), height = s.height.value_or(picture.size(1));
  ordered_json settings = settings_json(s, kind, *s.seed, s.batch_of, s.place, width, height);
  io::ImageWriteOptions writing;
  writing.quality = 95;
  if (path.ends_with(".png"))
    writing.text = {{"parameters", a1111_text(s, scheduler, *s.seed, width, height) + more},
                    {kTextKey, io::tolerant_json_text(settings)}};
  io::write_image(path, picture, writing);
  return settings;
}

namespace {

// Of the frames of clips, or pictures, one for each, uint8 [3, H, W].
Tensors stills(const std::vector<Tensors>& clips) {
  Tensors out;
  for (auto& frames : clips) out.push_back(frames[frames.size() / 2].cpu().permute({2, 0, 1}));
  return out;
}

// What is heard with one of the clips: [channels, samples], or undefined.
diffusion::Sound sound_of(const diffusion::Sound& all, size_t i) {
  if (!all.values) return {};
  return {all.values.select(0, int64_t(i)).cpu(), all.sampling_rate};
}

// The steps of a picture as they were called when it was made, beside empty rows where others were.
class RepeatedCalls {
 public:
  explicit RepeatedCalls(const std::vector<std::array<int64_t, 3>>& calls) : left_(calls.begin(), calls.end()) {}
  void step(diffusion::Run& run) {
    while (!left_.empty() && left_.front()[0] < 1) left_.pop_front();
    if (left_.empty()) return run.step();
    const auto [steps, place, rows] = left_.front();
    --left_.front()[0];
    // Other options than it was made by may have other rows.
    const bool is_there = place >= 0 && rows <= kMostRows && rows >= run.rows() && place <= rows - run.rows();
    if (!is_there || !diffusion::SharedSteps::fit(run, run)) return run.step();
    shared_.step_beside(run, place, rows);
  }

 private:
  static constexpr int64_t kMostRows = 256;  // a file may say anything
  std::deque<std::array<int64_t, 3>> left_;
  diffusion::SharedSteps shared_;
};

// One batch's call with its pictures and what it draws from; the seeds follow.
diffusion::AnyOptions call_of(const char* kind, const GenerationSettings& s,
                              const diffusion::DiffusionPipeline& pipeline, const std::map<std::string, Tensor>& given,
                              int64_t batch, int64_t seed) {
  const diffusion::AnyOptions o = batch_options(kind, s, pipeline, batch);
  for (auto& [name, picture] : given) o.at<Tensor>(name.c_str()) = picture;
  set_control_pictures(o, s, pipeline, given.count("image") ? given.at("image") : Tensor());
  if (given.count("image") && o.find("strength")) o.at<double>("strength") = s.strength;
  auto& generators = o.at<diffusion::Generators>("generator");
  for (int64_t i = 0; i < batch; ++i)
    generators.push_back(make_generator()), generators.back()->manual_seed(uint64_t(seed + i));
  return o;
}

}  // namespace

void try_to_start(const char* kind, const GenerationSettings& s, const diffusion::DiffusionPipeline& pipeline,
                  const std::map<std::string, Tensor>& given) {
  const diffusion::AnyOptions o = call_of(kind, s, pipeline, given, 1, s.seed.value_or(0));
  if (s.hires) diffusion::Hires(pipeline, hires_options(s)).first(o);
  else pipeline.start(o);
}

void generate(const char* kind, GenerationSettings& s, const diffusion::DiffusionPipeline& pipeline,
              const std::map<std::string, Tensor>& given, const std::function<void(const Tensor& picture)>& made,
              Series* series) {
  s.clips = makes_clips(diffusion::pipeline_entry(pipeline.name()).its_task);
  check_outputs(s);
  const int64_t first = s.seed ? *s.seed : int64_t(std::random_device{}());
  SF_CHECK(first <= INT64_MAX - s.count, "--seed: ", first, " is too large for ", s.count, " pictures");
  hash_loras(s.loras.used);
  std::optional<SamplingWatch> own;
  if (!series) own.emplace(s.quiet || s.json, s.count, s.clips ? "clip" : "picture");
  SamplingWatch& watch = series ? series->watch : *own;
  std::optional<diffusion::Hires> hires;
  if (s.hires) hires.emplace(pipeline, hires_options(s));
  for (int64_t done = 0; done < s.count;) {
    int64_t batch = std::min(s.batch, s.count - done);
    const diffusion::AnyOptions o = call_of(kind, s, pipeline, given, batch, first + done);
    o.at<std::stop_token>("stop") = watch.stop();
    o.at<diffusion::StepProgress>("progress") = watch.progress(s.first_number + done, batch);
    // the pictures after each step, for each of the batch
    std::vector<Tensors> forming(size_t(s.save_steps.empty() ? 0 : batch));
    std::unique_ptr<diffusion::Run> run = hires ? hires->first(o) : pipeline.start(o);
    if (done == 0) tell_notes(s, {s.prompt}, pipeline, given);  // once nothing is refused any more
    RepeatedCalls calls(s.calls);
    auto take_steps = [&] {
      while (!run->done()) {
        calls.step(*run);
        if (s.preview.empty() && forming.empty()) continue;
        Tensors now = stills(run->preview_frames(forming.empty() ? 1 : 0));
        if (!s.preview.empty()) show_preview(s.preview, now[0]);
        for (size_t i = 0; i < forming.size(); ++i) forming[i].push_back(now[i]);
      }
    };
    take_steps();
    GenerationSettings one = s;  // of each picture
    if (hires) {
      const int64_t pixels = pipeline.vae_scale_factor();
      one.height = run->latents.size(2) * pixels, one.width = run->latents.size(3) * pixels;
      run = hires->second(o, *run);
      take_steps();
    }
    const diffusion::PipelineFrames output =
        run->finish_frames(s.clips ? watch.decoding(done, batch) : diffusion::DecodeProgress());
    const Tensors pictures = stills(output.clips);
    for (size_t i = 0; i < pictures.size(); ++i) {
      if (s.batch_of > 1 && int64_t(i) != s.place) continue;
      if (made) made(pictures[i]);
      if (series && !series->is_written) continue;
      const int64_t seed = first + done + int64_t(i), height = pictures[i].size(1), width = pictures[i].size(2),
                    number = s.first_number + done + int64_t(i);
      const std::string asked = output_path(s, s.output, seed, number);
      one.seed = seed, one.batch_of = batch, one.place = int64_t(i);
      if (!hires) one.height = height, one.width = width;
      ordered_json settings;
      const std::string path = write_new(
          asked, s.force,
          [&](const std::string& file) {
            if (s.clips) {
              settings = settings_json(one, kind, seed, batch, int64_t(i), width, height);
              write_clip(file, output.clips[i], sound_of(output.sound, i), s.fps.value_or(kFps), untagged(s.prompt),
                         io::json_text(settings));
            } else {
              settings = write_picture(file, pictures[i], one, kind, pipeline.the_scheduler()->name());
            }
          },
          s.clips && is_frame_folder(asked));
      watch.bar.clear();
      if (path != asked && !s.quiet && !s.json)
        std::cerr << "scaffolding: '" << asked << "' is there already and stays; --force replaces it\n";
      ordered_json row{{"path", path}, {"seed", seed}, {"width", width}, {"height", height}, {"settings", settings}};
      std::vector<std::string> written{path};
      if (const auto sound = sound_of(output.sound, i); sound.values && !sound_path(path).empty()) {
        written.push_back(write_new(sound_path(path), s.force, [&](const std::string& file) {
          io::save_wav(file, sound.values, sound.sampling_rate);
        }));
        row["sound"] = written.back();
      }
      if (!forming.empty()) {
        written.push_back(write_new(output_path(s, s.save_steps, seed, number), s.force,
                                    [&](const std::string& file) { save_forming(file, forming[i], pictures[i]); }));
        row["steps"] = written.back();
      }
      if (s.json) std::cout << io::tolerant_json_text(row) << std::endl;
      else
        for (auto& file : written) std::cout << file << std::endl;
    }
    for (auto& what : output.makeshifts)
      std::cerr << "scaffolding: memory did not suffice, so that the call went on with " << what << "\n";
    for (auto& part : output.truncated)
      std::cerr << "scaffolding: the prompt is too long; left out is: "
                << (part.size() > 80 ? part.substr(0, 80) + "..." : part) << "\n";
    done += batch;
  }
  if (series) return;
  watch.bar.finish();
  if (pipeline.placement && !s.quiet && !s.json) std::cerr << pipeline.placement->peaks();
}

}  // namespace sf::cli
