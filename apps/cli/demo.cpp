// `scaffolding demo`: a sheet of pictures from a list of prompts, and how long each took.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/generation.h"
#include "apps/cli/load_model.h"
#include "apps/cli/terminal.h"
#include "scaffolding/core/error.h"
#include "scaffolding/train/picture_grid.h"

namespace sf::cli {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

const std::vector<std::string> kPrompts = {
    "red apple, fluent 3d",
    "cat face, noto, on a yellow background",
    "rocket, fluent flat, on a purple background",
    "birthday cake, fluent 3d, on a pink background",
    "sun, fluent flat, on a blue background",
    "dog face, fluent 3d, on a green background",
    "tulip, noto",
    "sailboat, noto, on a blue background",
};

struct DemoSettings {
  GenerationSettings picture;
  std::string folder = "demo", prompts;
  int64_t columns = 4, seed = 1;
};

// One prompt on each line.
std::vector<std::string> read_prompts(const std::string& path) {
  std::ifstream in(path);
  SF_CHECK(in, "--prompts: cannot read '", path, "'");
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) out.push_back(line);
  SF_CHECK(!out.empty(), "--prompts: there is none in '", path, "'");
  return out;
}

void demo(DemoSettings& s) {
  auto prompts = s.prompts.empty() ? kPrompts : read_prompts(s.prompts);
  for (auto& prompt : prompts)
    SF_CHECK(diffusion::take_lora_tags(prompt).tags.empty(), "--prompts: demo takes no LoRA, got '", prompt,
             "'; txt2img does");
  if (s.picture.model.empty()) s.picture.model = shipped_model();
  auto start = Clock::now();
  auto pipeline = load_model("demo", s.picture, {diffusion::Task::TextToImage});
  double loading = seconds_since(start);
  std::vector<double> seconds;
  Tensors pictures;
  for (size_t i = 0; i < prompts.size(); ++i) {
    GenerationSettings one = s.picture;
    char number[48];
    std::snprintf(number, sizeof number, "%02zu-{prompt}.png", i + 1);
    one.prompt = prompts[i];
    one.seed = s.seed + int64_t(i);
    one.force = true;  // the sheet is made anew
    one.output = (fs::path(s.folder) / number).string();
    start = Clock::now();
    generate("txt2img", one, *pipeline, {}, [&](const Tensor& picture) { pictures.push_back(picture); });
    seconds.push_back(seconds_since(start));
  }
  std::string sheet = (fs::path(s.folder) / "grid.png").string();
  io::write_image(sheet, train::picture_grid(pictures, s.columns));
  if (s.picture.quiet) return;
  std::printf("\n%6.2f s  loading the model\n", loading);
  for (size_t i = 0; i < prompts.size(); ++i)
    std::printf("%6.2f s  %s (seed %lld)\n", seconds[i], prompts[i].c_str(),
                static_cast<long long>(s.seed + int64_t(i)));
  std::printf("\nAll of them, %lld in a row: %s\n", static_cast<long long>(s.columns), fs::absolute(sheet).c_str());
}

}  // namespace

void add_demo(CLI::App& program) {
  auto* c = program.add_subcommand(
      "demo", "A sheet of pictures from the model that comes with the program, and how long each took");
  auto s = std::make_shared<DemoSettings>();
  c->add_option("-o,--output", s->folder, "The folder for the pictures and grid.png")->capture_default_str();
  c->add_option("-m,--model", s->picture.model, "Another model, as txt2img takes it");
  c->add_option("--prompts", s->prompts, "A file with a prompt on each line, instead of the program's own eight");
  c->add_option("-s,--seed", s->seed, "Of the first picture; each next one has the next seed")
      ->capture_default_str()
      ->check(CLI::Range(int64_t(0), INT64_MAX / 2));
  c->add_option("--columns", s->columns, "Pictures in a row of the sheet")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  c->add_option("--steps", s->picture.steps, "Of the sampler")->capture_default_str();
  c->add_option("-g,--guidance", s->picture.guidance,
                "How closely to follow the prompt; 1 is off. Without it, what the model advises, or 5");
  c->add_flag("-q,--quiet", s->picture.quiet, "No progress and no times");
  c->footer(R"(Examples:
  scaffolding demo
  scaffolding demo --prompts mine.txt --columns 6 --output sheet)");
  c->callback([s] { demo(*s); });
}

}  // namespace sf::cli
