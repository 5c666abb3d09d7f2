// `scaffolding eval`: how good a model of icons is, of pictures or of clips, in figures that mean the same for every
// model and every day. Here: of pictures.
#include <algorithm>
#include <chrono>
#include <iomanip>
#include <iostream>
#include <memory>
#include <set>

#include "apps/cli/commands.h"
#include "apps/cli/evaluation.h"
#include "apps/cli/load_model.h"
#include "apps/cli/output_file.h"
#include "apps/cli/terminal.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/train/evaluation/icon_judge.h"
#include "scaffolding/train/text_to_image/recipe.h"

namespace sf::cli {

using nlohmann::ordered_json;

namespace {

using Options = EvaluationSettings;

constexpr int64_t kJudgedPictures = 200;  // of the split "train"
constexpr int64_t kCompositions = 60;     // of each kind

// The data and what of them was left out: of the recipe, where it lies beside the model or is named. What it composes.
data::CompositionOptions read_recipe(Options& o) {
  o.config = recipe_path(o);
  if (o.config.empty()) return {};
  train::Recipe recipe = train::Recipe::read(o.config);
  if (o.data.empty()) o.data = recipe.data;
  if (o.left_out_groups.empty()) o.left_out_groups = recipe.icons.left_out_groups;
  return recipe.composition.value_or(data::CompositionOptions{});
}

Tensors make_pictures(const Options& o, const diffusion::StableDiffusionPipeline& pipeline,
                      const std::vector<std::string>& prompts) {
  const GenerationSettings& s = o.sampling;
  SamplingWatch watch(s.quiet, int64_t(prompts.size()), "picture");
  Tensors all;
  for (size_t done = 0; done < prompts.size();) {
    const size_t batch = std::min(size_t(s.batch), prompts.size() - done);
    diffusion::GenerationOptions now = sampling_options(s);
    now.negative_prompt.assign(batch, s.negative_prompt);
    for (size_t i = done; i < done + batch; ++i) {
      now.prompt.push_back(prompts[i]);
      now.generator.push_back(make_generator());
      now.generator.back()->manual_seed(uint64_t(*s.seed) + i);
    }
    now.stop = watch.stop();
    now.progress = watch.progress(int64_t(done), int64_t(batch));
    for (auto& picture : diffusion::VaeImageProcessor::pictures(pipeline(now).images)) all.push_back(picture);
    done += batch;
  }
  watch.bar.finish();
  return all;
}

// A picture as the model's autoencoder gives it back: no picture of the model can be nearer.
Tensor round_trip(const diffusion::StableDiffusionPipeline& pipeline, const Tensor& picture) {
  Tensor x = (picture.to(kFloat32) / 127.5 - 1).unsqueeze(0).to(pipeline.vae->dtype());
  Tensor y = pipeline.vae->decode(pipeline.vae->encode(x, make_generator())).to(kFloat32);
  return diffusion::VaeImageProcessor::pictures(clamp(y / 2 + 0.5, 0, 1))[0];
}

ordered_json json_of(const train::RetrievalFigures& f) {
  return {{"pictures", f.pictures},
          {"top1", rounded(f.top1)},
          {"top5", rounded(f.top5)},
          {"style", rounded(f.style)},
          {"texture", rounded(f.texture)}};
}

ordered_json figures(const train::IconJudge& judge, const std::vector<train::EvaluationPrompt>& prompts,
                     const Tensors& pictures, uint64_t seed) {
  ordered_json sets = ordered_json::object(), colours = ordered_json::object();
  std::vector<std::string> names;
  for (auto& p : prompts)
    if (p.set != "backgrounds" && std::find(names.begin(), names.end(), p.set) == names.end()) names.push_back(p.set);
  Tensors on_white;
  double styles = 0;
  for (auto& name : names) {
    std::vector<train::EvaluationPrompt> asked;
    Tensors made;
    for (size_t i = 0; i < prompts.size(); ++i)
      if (prompts[i].set == name)
        asked.push_back(prompts[i]), made.push_back(pictures[i]), on_white.push_back(pictures[i]);
    auto f = judge.retrieval(asked, made);
    sets[name] = json_of(f);
    styles += f.style * double(f.pictures);
  }
  int64_t white = 0, named = 0, right = 0;
  std::map<std::string, std::pair<int64_t, int64_t>> of_colour;
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::string found = train::IconJudge::background(pictures[i]);
    if (prompts[i].background.empty()) {
      white += found == "white";
      continue;
    }
    auto& [all, hits] = of_colour[prompts[i].background];
    ++all, ++named;
    if (found == prompts[i].background) ++hits, ++right;
  }
  for (auto& [name, counts] : of_colour)
    colours[name] = std::to_string(counts.second) + "/" + std::to_string(counts.first);
  return {
      {"sets", sets},
      {"style", rounded(styles / double(on_white.size()))},
      {"frechet", on_white.size() > 1 ? ordered_json(rounded(judge.frechet(on_white))) : ordered_json()},
      {"frechet_of_real_icons",
       rounded(judge.frechet_of_real(
           std::clamp<int64_t>(int64_t(on_white.size()), 2, std::max<int64_t>(2, judge.icons().size() / 2)), seed))},
      {"background",
       {{"pictures", named}, {"right", named ? rounded(double(right) / double(named)) : 0.0}, {"by_colour", colours}}},
      {"white_where_none_is_named", rounded(double(white) / double(on_white.size()))}};
}

// One row a picture, to see what went wrong.
ordered_json each_prompt(const train::IconJudge& judge, const std::vector<train::EvaluationPrompt>& prompts,
                         const Tensors& pictures) {
  ordered_json rows = ordered_json::array();
  auto all = judge.judge(prompts, pictures);
  for (size_t i = 0; i < all.size(); ++i)
    rows.push_back({{"set", prompts[i].set},
                    {"prompt", prompts[i].prompt},
                    {"rank", all[i].rank},
                    {"style", all[i].style ? ordered_json(*all[i].style) : ordered_json()},
                    {"texture", all[i].texture},
                    {"background", all[i].background}});
  return rows;
}

void print(const ordered_json& r) {
  auto row = [](const std::string& name, const ordered_json& f) {
    std::cout << "  " << std::left << std::setw(26) << name << std::right << std::setw(6)
              << f["pictures"].get<int64_t>() << std::setw(10) << percent(f["top1"]) << std::setw(10)
              << percent(f["top5"]) << std::setw(10) << percent(f["style"]) << std::setw(10) << percent(f["texture"])
              << "\n";
  };
  std::cout << "                             count     top-1     top-5     style   texture\n";
  for (auto& [name, f] : r["sets"].items()) row(name, f);
  std::cout << "background as named         " << std::setw(7) << r["background"]["pictures"].get<int64_t>()
            << std::setw(10) << percent(r["background"]["right"]) << "\nwhite where none is named          "
            << std::setw(10) << percent(r["white_where_none_is_named"]) << "\nstyle as named                     "
            << std::setw(10) << percent(r["style"]) << "\nFrechet distance                   " << std::setw(10)
            << r["frechet"] << "   (as many real icons: " << r["frechet_of_real_icons"] << ")\n"
            << "the same of real icons, changed\n";
  for (auto& f : r["self_check"]["rows"]) row(f["change"], f);
  std::cout << "background recognised              " << std::setw(10) << percent(r["self_check"]["background"])
            << "\nby chance, top-5                   " << std::setw(10) << percent(r["self_check"]["chance_top5"])
            << "\n";
  if (r.contains("compositions")) print_compositions(r["compositions"]);
}

void evaluate_pictures(Options& o, const diffusion::StableDiffusionPipeline& pipeline) {
  const auto began = std::chrono::steady_clock::now();
  const data::CompositionOptions composition = read_recipe(o);
  const auto icons = evaluation_icons(o, {.background_probability = 0});
  const uint64_t seed = uint64_t(*o.sampling.seed);
  auto prompts = train::evaluation_prompts(*icons, o.count.value_or(kJudgedPictures), o.splits, seed);
  const int64_t count = o.compositions.value_or(std::min(kCompositions, o.count.value_or(kJudgedPictures)));
  const auto compositions = train::composition_prompts(*icons, count, seed);
  std::vector<std::string> asked;
  for (auto& it : prompts) asked.push_back(it.prompt);
  for (auto& it : compositions) asked.push_back(it.prompt);
  autograd::NoGrad no_grad;
  auto again = [&](const Tensor& picture) { return round_trip(pipeline, picture); };
  train::IconJudge judge(icons, again);
  Tensors pictures = make_pictures(o, pipeline, asked);
  const Tensors composed(pictures.begin() + int64_t(prompts.size()), pictures.end());
  pictures.resize(prompts.size());

  ordered_json report = evaluation_report(o, pipeline, *icons);
  report["pictures"] = pictures.size();
  report.update(figures(judge, prompts, pictures, seed));
  ordered_json rows = ordered_json::array();
  constexpr int64_t kChecked = 120;
  for (auto& row : train::self_check(judge, kChecked, seed, again)) {
    ordered_json f = json_of(row.figures);
    f["change"] = row.change;
    rows.push_back(std::move(f));
  }
  std::set<std::string> styles;
  for (int64_t i = 0; i < icons->size(); ++i) styles.insert(icons->icon(i).style);
  report["self_check"] = {{"rows", rows},
                          {"background", rounded(train::background_check(judge, kChecked, seed))},
                          {"chance_top5", rounded(5 * double(styles.size()) / double(icons->size()))}};
  if (!compositions.empty())
    report["compositions"] = composition_report(std::make_shared<data::ComposedIcons>(icons, composition), compositions,
                                                composed, seed, again);
  report["seconds"] = rounded(seconds_since(began), 1);
  write_evaluation_sheet(o, asked.size(), 8, [&](size_t i) {
    return SheetPicture{i < pictures.size() ? pictures[i] : composed[i - pictures.size()], asked[i]};
  });
  report["prompts"] = each_prompt(judge, prompts, pictures);
  hand_over(o, report, print);
}

void evaluate(Options& o) {
  GenerationSettings& s = o.sampling;
  if (s.model.empty()) s.model = shipped_model();
  if (!o.sheet.empty()) check_output("--sheet", o.sheet, ".png .jpg .jpeg .webp");
  if (!o.output.empty()) check_output("--output", o.output, ".json");
  const auto pipeline = load_model("eval", s, {diffusion::Task::TextToImage, diffusion::Task::TextToVideo});
  if (auto of_pictures = std::dynamic_pointer_cast<diffusion::StableDiffusionPipeline>(pipeline))
    return evaluate_pictures(o, *of_pictures);
  if (auto of_clips = std::dynamic_pointer_cast<diffusion::ToraPipeline>(pipeline)) return evaluate_clips(o, *of_clips);
  fail<NotSupported>("eval: '", s.model, "' is a ", pipeline->name(), ", which this command does not take");
}

}  // namespace

void add_eval(CLI::App& program) {
  auto* command =
      program.add_subcommand("eval", "Measure a model of icons: are its pictures, or clips, what their prompts say?");
  auto o = std::make_shared<Options>();
  o->sampling.batch = 8;
  o->sampling.seed = 0;
  add_sampling_options(*command, o->sampling, "model,-m,--model");
  command->add_option("--data", o->data, "The tar with the real icons, instead of the recipe's");
  command->add_option("--config", o->config,
                      "The recipe that the model was trained by; train.json in its folder where it is there");
  command->add_option("--left-out-groups", o->left_out_groups,
                      "Groups of icons that are left out, instead of the recipe's");
  command->add_option("--styles", o->styles, "Styles of icons that alone are used, instead of the recipe's");
  command->add_option("--splits", o->splits, "train, heldout_combo, heldout_name: whose captions are prompts")
      ->capture_default_str();
  command
      ->add_option("--count", o->count,
                   "How many captions of the split train (200), or for clips of each split at most (60)")
      ->check(CLI::Range(1, 1000000));
  command
      ->add_option("--compositions", o->compositions,
                   "How many prompts each that put things together (colours, pairs, counts), of a model of pictures; "
                   "60, or --count where that is less; 0: none")
      ->check(CLI::Range(0, 1000000));
  command->add_option("--sheet", o->sheet, "A picture with uncurated pictures and their prompts");
  command->add_option("--sheet-pictures", o->sheet_pictures, "How many of them")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("-o,--output", o->output, "A file for the report and what each picture was taken for, .json");
  command->footer(R"(Examples:
  scaffolding eval models/emoji-128
  scaffolding eval models/emoji-128 --sheet sheet.png --output figures.json
  scaffolding eval runs/mine/pipeline --config mine.json --splits train heldout_combo heldout_name
  scaffolding eval models/emoji-128 --count 40 --steps 10 --json
  scaffolding eval runs/video/pipeline --data icons.tar --sheet clips.png

Each picture is compared with all real icons of the style it was asked for; top-1 and top-5 say how
often the right one is nearest, or among the nearest five. A model that follows trajectories makes a clip of a moving
icon for each prompt; the icon is tracked and cut out. How that is measured, and what the other figures are, is in
docs/program.md.)");
  command->callback([o] { evaluate(*o); });
}

}  // namespace sf::cli
