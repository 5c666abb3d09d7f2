// `scaffolding eval` of a model that makes clips of icons along trajectories.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>

#include "apps/cli/contact_sheet.h"
#include "apps/cli/evaluation.h"
#include "apps/cli/files.h"
#include "apps/cli/terminal.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/tora/trajectory_flow.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/train/evaluation/clip_judge.h"
#include "scaffolding/train/interrupt.h"

namespace sf::cli {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr int64_t kClips = 60;

std::vector<diffusion::Trajectory> trajectories_of(const train::ClipPrompt& prompt) {
  diffusion::Trajectory points;
  for (auto& place : prompt.way) points.push_back({double(place.x), double(place.y)});
  return {points};
}

// A clip [T, 3, H, W] in [0, 1] as uint8 [3, T, H, W].
Tensor bytes_of(const Tensor& clip) {
  return clamp(round(clip.to(kFloat32).permute({1, 0, 2, 3}) * 255), 0, 255).to(kUInt8).cpu().contiguous();
}

Tensors make_clips(const EvaluationSettings& o, const diffusion::ToraPipeline& pipeline,
                   const std::vector<train::ClipPrompt>& prompts) {
  const GenerationSettings& s = o.sampling;
  train::StopOnInterrupt interrupt;
  std::stop_source stop;
  StepBar bar(s.quiet, int64_t(prompts.size()));
  Tensors all;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Tensor& real = prompts[i].real;
    const int64_t frames = real.size(1), height = real.size(2), width = real.size(3);
    diffusion::AnyOptions call = batch_options("eval", s, pipeline, 1);
    call.at<std::vector<std::string>>("prompt") = {prompts[i].prompt};
    call.at<std::optional<int64_t>>("num_frames") = frames;
    call.at<std::optional<int64_t>>("height") = height;
    call.at<std::optional<int64_t>>("width") = width;
    call.at<Tensor>("video_flow") =
        diffusion::video_flow(trajectories_of(prompts[i]), frames, height, width, {.canvas = {width, height}});
    auto& generators = call.at<diffusion::Generators>("generator");
    generators.push_back(make_generator());
    generators.back()->manual_seed(uint64_t(*s.seed) + i);
    call.at<std::stop_token>("stop") = stop.get_token();
    call.at<diffusion::StepProgress>("progress") = [&](int64_t step, int64_t steps) {
      if (interrupt.asked()) stop.request_stop();
      bar.step(int64_t(i), 1, step, steps);
    };
    auto run = pipeline.start(call);
    while (!run->done()) run->step();
    all.push_back(bytes_of(run->finish().images.select(0, 0)));
  }
  bar.finish();
  return all;
}

// Clips as the model's autoencoder gives them back: no clip of the model can be nearer.
Tensors round_trip(const diffusion::ToraPipeline& pipeline, const std::vector<train::ClipPrompt>& prompts) {
  Tensors all;
  for (auto& prompt : prompts) {
    const Tensor x = (prompt.real.to(kFloat32) / 127.5 - 1).unsqueeze(0).to(pipeline.vae->device());
    const Tensor y = pipeline.vae->decode(pipeline.vae->encode(x.to(pipeline.vae->dtype()), make_generator()));
    all.push_back(bytes_of(clamp(y.to(kFloat32) / 2 + 0.5, 0, 1).select(0, 0).permute({1, 0, 2, 3})));
  }
  return all;
}

ordered_json json_of(const train::ClipFigures& f) {
  return {{"clips", f.clips},           {"distance", rounded(f.distance)}, {"distance_by_chance", rounded(f.by_chance)},
          {"top1", rounded(f.top1)},    {"top5", rounded(f.top5)},         {"found", rounded(f.found)},
          {"change", rounded(f.change)}};
}

template <class T>
std::vector<T> of_set(const std::vector<train::ClipPrompt>& prompts, const std::vector<T>& all,
                      const std::string& set) {
  std::vector<T> out;
  for (size_t i = 0; i < prompts.size(); ++i)
    if (prompts[i].set == set) out.push_back(all[i]);
  return out;
}

// Five frames beside each other, the point that was asked for marked in each.
Tensor strip(const Tensor& clip, const train::ClipPrompt& prompt) {
  constexpr int64_t kFrames = 5, kArm = 2;
  const int64_t frames = clip.size(1), height = clip.size(2), width = clip.size(3);
  Tensors parts;
  for (int64_t k = 0; k < kFrames; ++k) {
    const int64_t frame = k * (frames - 1) / (kFrames - 1);
    Tensor picture = clip.select(1, frame).clone().contiguous();
    auto* p = picture.data<uint8_t>();
    const data::IconPlace& at = prompt.way[size_t(frame)];
    for (int64_t d = -kArm; d <= kArm; ++d)
      for (auto [x, y] : {std::pair{at.x + d, at.y}, {at.x, at.y + d}}) {
        if (x < 0 || y < 0 || x >= width || y >= height) continue;
        for (int64_t c = 0; c < 3; ++c) p[(c * height + y) * width + x] = c == 0 ? 255 : 0;
      }
    parts.push_back(picture);
  }
  return cat(parts, 2);
}

void write_sheet(const EvaluationSettings& o, const std::vector<train::ClipPrompt>& prompts, const Tensors& clips) {
  std::vector<SheetPicture> shown;  // uncurated: evenly from all that was made
  const size_t count = std::min(clips.size(), size_t(o.sheet_pictures));
  for (size_t k = 0; k < count; ++k) {
    const size_t i = k * clips.size() / count;
    shown.push_back({strip(clips[i], prompts[i]), prompts[i].prompt});
  }
  io::write_image(o.sheet, contact_sheet(shown, 2), {.quality = 92});
}

ordered_json each_clip(const std::vector<train::ClipPrompt>& prompts, const std::vector<train::ClipJudgement>& all) {
  ordered_json rows = ordered_json::array();
  for (size_t i = 0; i < all.size(); ++i)
    rows.push_back({{"set", prompts[i].set},
                    {"prompt", prompts[i].prompt},
                    {"rank", all[i].rank},
                    {"distance", rounded(all[i].distance)},
                    {"found", rounded(all[i].found)},
                    {"change", rounded(all[i].change)}});
  return rows;
}

void print(const ordered_json& r) {
  auto row = [](const std::string& name, const ordered_json& f) {
    std::cout << "  " << std::left << std::setw(26) << name << std::right << std::setw(6) << f["clips"].get<int64_t>()
              << std::setw(10) << f["distance"] << std::setw(10) << f["distance_by_chance"] << std::setw(10)
              << percent(f["top1"]) << std::setw(10) << percent(f["top5"]) << std::setw(10) << percent(f["found"])
              << std::setw(10) << percent(f["change"]) << "\n";
  };
  std::cout << "                             count  distance by chance     top-1     top-5     found    change\n";
  for (auto& [name, f] : r["sets"].items()) row(name, f);
  std::cout << "the same of real clips\n";
  for (auto& [name, f] : r["self_check"]["rows"].items()) row(name, f);
  std::cout << "by chance, top-5                             " << std::setw(30)
            << percent(r["self_check"]["chance_top5"]) << "\n";
}

// What the recipe says of the icons, where it lies beside the model or is named.
void read_recipe(EvaluationSettings& o, data::MovingIconOptions& moving, data::IconOptions& icons) {
  if (o.config = recipe_path(o); o.config.empty()) return;
  const ordered_json recipe = ordered_json::parse(std::ifstream(o.config), nullptr, false);
  SF_CHECK(recipe.is_object() && recipe.contains("data") && recipe["data"].is_object(), o.config,
           ": must be a recipe, a JSON object with 'data'");
  const ordered_json& data = recipe["data"];
  const ordered_json its = data.value("icons", ordered_json::object());
  try {
    if (o.data.empty() && data.contains("path"))
      o.data = (fs::path(o.config).parent_path() / data["path"].get<std::string>()).string();
    if (o.left_out_groups.empty()) o.left_out_groups = its.value("left_out_groups", o.left_out_groups);
    if (o.styles.empty()) o.styles = its.value("styles", o.styles);
    moving.num_frames = data.value("num_frames", moving.num_frames);
    moving.size = data.value("height", moving.size);
    moving.smallest_icon = its.value("smallest_icon", moving.smallest_icon);
    moving.largest_icon = its.value("largest_icon", moving.largest_icon);
    moving.margin = its.value("margin", moving.margin);
    moving.gradient_probability = its.value("gradient_probability", moving.gradient_probability);
    icons.background_probability = its.value("background_probability", icons.background_probability);
  } catch (const ordered_json::exception& e) {
    fail(o.config, ": data: ", e.what());
  }
}

}  // namespace

void evaluate_clips(EvaluationSettings& o, const diffusion::ToraPipeline& pipeline) {
  GenerationSettings& s = o.sampling;
  const auto began = std::chrono::steady_clock::now();
  data::MovingIconOptions moving;
  data::IconOptions reading;
  reading.background_probability = 0.35;
  read_recipe(o, moving, reading);
  check_evaluation_data(o);
  reading.left_out_groups = o.left_out_groups;
  reading.styles = o.styles;
  reading.keyword_probability = reading.style_dropout = 0;
  SF_CHECK(pipeline.vae && pipeline.transformer, "eval: '", s.model, "' has no vae or no transformer");
  auto icons = std::make_shared<data::IconDataset>(o.data, reading);
  auto clips = std::make_shared<data::MovingIcons>(icons, moving);
  const uint64_t seed = uint64_t(*s.seed);
  const auto prompts = train::clip_prompts(*clips, o.count.value_or(kClips), o.splits, seed);
  autograd::NoGrad no_grad;
  if (!s.quiet) std::cerr << "reading " << icons->size() << " icons" << std::endl;
  const train::ClipJudge judge(clips);
  const Tensors made = make_clips(o, pipeline, prompts);
  const auto judged = judge.judge(prompts, made);

  ordered_json sets = ordered_json::object();
  for (auto& set : o.splits) sets[set] = json_of(train::figures_of(of_set(prompts, judged, set)));
  Tensors real;
  for (auto& prompt : prompts) real.push_back(prompt.real);
  ordered_json report{{"model", s.model},
                      {"data", fs::path(o.data).filename().string()},
                      {"icons", icons->size()},
                      {"styles", o.styles},
                      {"left_out_groups", o.left_out_groups},
                      {"clips", made.size()},
                      {"frames", moving.num_frames},
                      {"size", moving.size},
                      {"steps", s.steps},
                      {"guidance", *s.guidance},
                      {"sampler", s.sampler.empty() ? pipeline.scheduler->name() : s.sampler},
                      {"seed", seed},
                      {"sets", sets}};
  report["self_check"] = {
      {"rows",
       {{"as they are", json_of(train::figures_of(judge.judge(prompts, real)))},
        {"through the autoencoder", json_of(train::figures_of(judge.judge(prompts, round_trip(pipeline, prompts))))}}},
      {"chance_top5", rounded(judge.chance_of_top5())}};
  report["seconds"] =
      std::round(10 * std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count()) / 10;
  if (!o.sheet.empty()) write_sheet(o, prompts, made);
  report["prompts"] = each_clip(prompts, judged);
  if (!o.output.empty()) print_text(report.dump(2) + "\n", o.output);
  if (s.json) std::cout << report.dump(2) << std::endl;
  else print(report);
}

}  // namespace sf::cli
