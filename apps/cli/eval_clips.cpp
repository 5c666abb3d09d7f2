// `scaffolding eval` of a model that makes clips of icons along trajectories.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "apps/cli/evaluation.h"
#include "apps/cli/terminal.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/tora/trajectory_flow.h"
#include "scaffolding/io/json.h"
#include "scaffolding/io/json_error.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/train/evaluation/clip_judge.h"

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
  SamplingWatch watch(s.quiet, int64_t(prompts.size()), "clip");
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
    call.at<std::stop_token>("stop") = watch.stop();
    call.at<diffusion::StepProgress>("progress") = watch.progress(int64_t(i), 1);
    auto run = pipeline.start(call);
    while (!run->done()) run->step();
    all.push_back(bytes_of(run->finish().images.select(0, 0)));
  }
  watch.bar.finish();
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

std::string pixels(const ordered_json& distance) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2) << distance.get<double>();
  return out.str();
}

void print_clips(const ordered_json& r) {
  auto row = [](const std::string& name, const ordered_json& f) {
    std::cout << "  " << std::left << std::setw(26) << name << std::right << std::setw(6) << f["clips"].get<int64_t>()
              << std::setw(10) << pixels(f["distance"]) << std::setw(10) << pixels(f["distance_by_chance"]);
    for (const char* share : {"top1", "top5", "found", "change"}) std::cout << std::setw(10) << percent(f[share]);
    std::cout << "\n";
  };
  std::cout << std::setw(34) << "count" << std::setw(10) << "distance" << std::setw(10) << "by chance";
  for (const char* title : {"top-1", "top-5", "found", "change"}) std::cout << std::setw(10) << title;
  std::cout << "\n";
  for (auto& [name, f] : r["sets"].items()) row(name, f);
  std::cout << "the same of real clips\n";
  for (auto& [name, f] : r["self_check"]["rows"].items()) row(name, f);
  std::cout << "by chance, top-5" << std::setw(58) << percent(r["self_check"]["chance_top5"]) << "\n"
            << "a clip takes " << r["seconds_of_a_clip"] << " s\n";
}

// What the recipe says of the icons, where it lies beside the model or is named.
void read_recipe(EvaluationSettings& o, data::MovingIconOptions& moving, data::IconOptions& icons) {
  if (o.config = recipe_path(o); o.config.empty()) return;
  const io::Bytes file = io::Bytes::read(o.config);
  const ordered_json recipe = io::parse_ordered_json({file.chars(), file.size});
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
    fail(o.config, ": data: ", io::json_error(e));
  }
}

}  // namespace

void evaluate_clips(EvaluationSettings& o, const diffusion::ToraPipeline& pipeline) {
  const auto began = std::chrono::steady_clock::now();
  data::MovingIconOptions moving;
  data::IconOptions reading;
  reading.background_probability = 0.35;
  read_recipe(o, moving, reading);
  reading.keyword_probability = reading.style_dropout = 0;
  const auto icons = evaluation_icons(o, reading);
  SF_CHECK(pipeline.vae && pipeline.transformer, "eval: '", o.sampling.model, "' has no vae or no transformer");
  auto clips = std::make_shared<data::MovingIcons>(icons, moving);
  const auto prompts = train::clip_prompts(*clips, o.count.value_or(kClips), o.splits, uint64_t(*o.sampling.seed));
  autograd::NoGrad no_grad;
  const train::ClipJudge judge(clips);
  const auto making = std::chrono::steady_clock::now();
  const Tensors made = make_clips(o, pipeline, prompts);
  const double each = seconds_since(making) / double(made.size());
  const auto judged = judge.judge(prompts, made);

  ordered_json report = evaluation_report(o, pipeline, *icons);
  report["clips"] = made.size();
  report["frames"] = moving.num_frames;
  report["size"] = moving.size;
  for (auto& set : o.splits) report["sets"][set] = json_of(train::figures_of(of_set(prompts, judged, set)));
  Tensors real;
  for (auto& prompt : prompts) real.push_back(prompt.real);
  report["self_check"] = {
      {"rows",
       {{"as they are", json_of(train::figures_of(judge.judge(prompts, real)))},
        {"through the autoencoder", json_of(train::figures_of(judge.judge(prompts, round_trip(pipeline, prompts))))}}},
      {"chance_top5", rounded(judge.chance_of_top5())}};
  report["seconds_of_a_clip"] = rounded(each, 2);
  report["seconds"] = rounded(seconds_since(began), 1);
  write_evaluation_sheet(o, made.size(), 2, [&](size_t i) {
    return SheetPicture{strip(made[i], prompts[i]), prompts[i].prompt};
  });
  report["prompts"] = each_clip(prompts, judged);
  hand_over(o, report, print_clips);
}

}  // namespace sf::cli
