#include "apps/cli/drawing.h"
#include "apps/cli/load_model.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <random>
#include <set>

#include "apps/cli/controlnets.h"
#include "apps/cli/grid.h"
#include "apps/cli/hires.h"
#include "apps/cli/new_file.h"
#include "apps/cli/output_file.h"
#include "apps/cli/prompt_file.h"
#include "apps/cli/samplers.h"
#include "scaffolding/core/error.h"
#include "scaffolding/io/json.h"

namespace sf::cli {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr int64_t kSheetPixels = 200'000'000;  // of a sheet: 0.6 GB
constexpr int64_t kPictures = 1'000'000;       // of a run of several

// A drawing of the run: of one prompt, line or cell.
struct Job {
  GenerationSettings settings;
  std::string where;    // how errors begin; "" of the only one
  std::string caption;  // on a sheet
  bool has_prompt = true;
};
bool asks_for_prompt(const std::vector<AskedOption>& asked) {
  return std::any_of(asked.begin(), asked.end(), [](auto& o) { return o.name == "prompt"; });
}

template <class F> void at_place(const std::string& where, const F& f) {
  try {
    f();
  } catch (const diffusion::Stopped&) {
    throw;
  } catch (const Error& e) {
    if (where.empty()) throw;
    fail(where, ": ", e.what());
  }
}

// The model as one job after the other wants it: sampler, LoRAs and padding change in place.
class SharedModel {
 public:
  SharedModel(const Drawing& drawing, GenerationSettings& loading)
      : pipeline_(load_model(drawing.command, loading, drawing.tasks)),
        own_(pipeline_->the_scheduler()),
        loras_(key_of(loading.loras.used)) {}

  diffusion::DiffusionPipeline& pipeline() const { return *pipeline_; }

  void suit(const GenerationSettings& s) {
    if (const auto key = key_of(s.loras.used); key != loras_)
      diffusion::use_loras(*pipeline_, sources_of(s.loras.used)), loras_ = key;
    const bool other = !s.sampler.empty() || !s.scheduler_options.empty();
    if (other) pipeline_->set_scheduler(make_sampler(s.sampler, *own_, s.scheduler_options));
    else if (pipeline_->the_scheduler() != own_) pipeline_->set_scheduler(own_);
    if (s.tiling != tiling_)
      diffusion::set_seamless_tiling(*pipeline_, models::seamless_axes(s.tiling)), tiling_ = s.tiling;
    if (s.freeu != freeu_) diffusion::set_free_u(*pipeline_, models::free_u_of(s.freeu)), freeu_ = s.freeu;
  }

 private:
  static std::string key_of(const std::vector<UsedLora>& used) {
    ordered_json key = ordered_json::array();
    for (auto& lora : used) key.push_back({lora.path, lora.tag.denoiser, lora.tag.text_encoders});
    return io::tolerant_json_text(key);
  }
  std::shared_ptr<diffusion::DiffusionPipeline> pipeline_;
  std::shared_ptr<diffusion::Scheduler> own_;
  std::string loras_, tiling_, freeu_;
};

// What find_loras and hash_loras found, which read folders and whole files.
class KnownLoras {
 public:
  void find(GenerationSettings& s) {
    const std::vector<diffusion::LoraTag> tags = lora_tags(s);
    std::string key;
    for (auto& given : s.loras.given) key += given + "\n";
    for (auto& tag : tags) key += text_of(tag) + "\n";
    auto [known, is_new] = used_.try_emplace(key);
    if (is_new) find_loras(s.loras, tags), known->second = s.loras.used;
    s.loras.used = known->second;
  }
  void hash(GenerationSettings& s) {
    for (auto& lora : s.loras.used)
      if (lora.hash.empty()) lora.hash = hashes_[lora.path];
    hash_loras(s.loras.used);
    for (auto& lora : s.loras.used) hashes_[lora.path] = lora.hash;
  }

 private:
  std::map<std::string, std::vector<UsedLora>> used_;
  std::map<std::string, std::string> hashes_;
};

std::vector<GridAxis> axes_of(const GenerationSettings& s, const OptionReader& reader) {
  std::vector<GridAxis> axes;
  for (auto& text : s.grid) axes.push_back(grid_axis(text, reader));
  return axes;
}

std::vector<Job> jobs_of(const Drawing& drawing, const GenerationSettings& s, std::vector<GridAxis>& axes) {
  if (s.prompts.empty() && s.grid.empty()) return {{s, "", ""}};
  OptionReader reader(drawing.add_options);
  std::vector<Job> jobs;
  GenerationSettings base = s;
  base.prompts.clear(), base.grid.clear(), base.grid_only = false;
  const int64_t first = s.seed ? *s.seed : int64_t(std::random_device{}());
  if (!s.prompts.empty()) {
    SF_CHECK(s.grid.empty(), "--grid: is a sheet of one prompt, not of those of --prompts; leave either out");
    base.seed = std::nullopt;
    int64_t number = 0;
    for (auto& line : read_prompt_file(s.prompts, reader)) {
      Job job{reader.with(base, line.where, line.asked), line.where, "", asks_for_prompt(line.asked)};
      if (!job.settings.seed) job.settings.seed = first > INT64_MAX - number ? INT64_MAX : first + number;
      job.settings.first_number = number;
      number += job.settings.count;
      jobs.push_back(std::move(job));
    }
    return jobs;
  }
  SF_CHECK(s.count == 1, "--grid: has one picture in a cell; leave out --count");
  axes = axes_of(s, reader);
  base.seed = first;
  for (auto& cell : grid_cells(axes, base)) {
    const std::string where = "--grid, " + cell.caption;
    Job job{reader.with(base, where, cell.asked), where, cell.caption, asks_for_prompt(cell.asked)};
    job.settings.first_number = int64_t(jobs.size());
    jobs.push_back(std::move(job));
  }
  return jobs;
}

// Files of one name would replace each other: then all names have the number.
void tell_files_apart(std::vector<Job>& jobs) {
  std::set<std::string> names;
  bool distinct = true;
  for (auto& [s, where, caption, has_prompt] : jobs)
    for (int64_t i = 0; distinct && i < s.count; ++i)
      distinct = names.insert(output_path(s, s.output, *s.seed + i, s.first_number + i)).second;
  if (!distinct)
    for (auto& job : jobs) job.settings.numbered = true;
}

// All but what tells pictures of one kind apart: a start for each kind finds what a pipeline refuses.
std::string kind_of(const Job& job) {
  const GenerationSettings& s = job.settings;
  const bool weighted = s.prompt_syntax != "plain";
  ordered_json key{s.sampler,
                   s.scheduler_options,
                   s.steps,
                   s.guidance_rescale.value_or(-1),
                   s.eta,
                   s.prompt_syntax,
                   s.batch,
                   s.strength,
                   s.hires_strength,
                   s.hires_upscaler,
                   s.tiling,
                   s.freeu,
                   s.options};
  for (auto& number : {s.width, s.height, s.clip_skip, s.hires_steps}) key.push_back(number.value_or(-1));
  for (auto& number : {s.guidance, s.hires}) key.push_back(number.value_or(-1));
  for (auto& lora : s.loras.used) key.push_back(lora.path);
  for (auto& image : s.control_images) key.push_back(image);                // a picture's size is its own
  if (!job.caption.empty()) key.push_back(s.image), key.push_back(s.mask);  // a sheet is as large as its pictures
  if (weighted) key.push_back(s.prompt), key.push_back(s.negative_prompt);
  return io::tolerant_json_text(key);
}

std::map<std::string, Tensor> inputs_of(const Drawing& d, GenerationSettings& s,
                                        const diffusion::DiffusionPipeline& pipeline, const Tensors& inputs) {
  return d.prepare_inputs ? d.prepare_inputs(s, pipeline, inputs) : std::map<std::string, Tensor>();
}

// Pixels, of pictures that may have several sizes.
struct LargestSize {
  double height = 0, width = 0;
};

// Begins one of each kind and draws nothing.
LargestSize try_all(const Drawing& d, const std::vector<Job>& jobs, SharedModel& model) {
  LargestSize size;
  std::set<std::string> seen;
  for (auto& job : jobs)
    at_place(job.where, [&, &s = job.settings] {
      if (!seen.insert(kind_of(job)).second) return;
      model.suit(s);
      GenerationSettings one = s;
      const auto given = inputs_of(d, one, model.pipeline(), d.read_inputs ? d.read_inputs(one) : Tensors());
      try_to_start(d.command, one, model.pipeline(), given);
      const auto image = given.find("image");
      const auto asked = image == given.end()
                             ? model.pipeline().size(one.height, one.width)
                             : diffusion::DiffusionPipeline::Size{image->second.size(2), image->second.size(3)};
      size.height = std::max(size.height, double(asked.height) * s.hires.value_or(1));
      size.width = std::max(size.width, double(asked.width) * s.hires.value_or(1));
    });
  return size;
}

// The sheet's own file: the pattern with "grid" for a picture's number, else behind its name where there are pictures.
std::string sheet_path(const GenerationSettings& s) {
  std::string pattern = s.output;
  if (const size_t at = pattern.find("{number}"); at != pattern.npos) pattern.replace(at, 8, "grid");
  else if (!s.grid_only) {
    const fs::path p(pattern);
    pattern = (p.parent_path() / (p.stem().string() + "-grid" + p.extension().string())).string();
  }
  return output_path(s, pattern, *s.seed, 0);
}

// Of pictures of that size with their captions; what its file's format does not hold is an error too.
void check_sheet(const std::string& path, const LargestSize& picture, size_t columns, size_t pictures) {
  const double width = double(columns) * (picture.width + 8) + 8,
               height = double((pictures + columns - 1) / columns) * (picture.height + 52) + 8;
  SF_CHECK(height * width <= kSheetPixels, "--grid: a sheet of ", int64_t(width), "x", int64_t(height),
           " is more than the ", kSheetPixels / 1'000'000, " megapixels that there may be");
  const double most = path.ends_with(".webp") ? 16383 : path.ends_with(".png") ? 1e9 : 65500;
  SF_CHECK(std::max(width, height) <= most, "--grid: a sheet of ", int64_t(width), "x", int64_t(height),
           " is larger than the ", int64_t(most), " pixels of its file's format; name a .png");
}

void write_sheet(const Drawing& d, GenerationSettings s, const diffusion::DiffusionPipeline& pipeline,
                 const std::vector<GridAxis>& axes, const std::vector<Job>& jobs, const Tensors& pictures) {
  std::vector<std::string> captions;
  for (auto& job : jobs) captions.push_back(job.caption);
  const Tensor sheet = grid_sheet(pictures, captions, int64_t(axes[0].values.size()));
  const auto size = pipeline.size(s.height, s.width);  // of a picture, for --like
  s.height = d.read_inputs ? pictures[0].size(1) : size.height;
  s.width = d.read_inputs ? pictures[0].size(2) : size.width;
  ordered_json settings;
  const std::string path = write_new(sheet_path(s), s.force, [&](const std::string& file) {
    settings = write_picture(file, sheet, s, d.command, pipeline.the_scheduler()->name(), ", " + grid_text(axes));
  });
  if (!s.json) {
    std::cout << path << std::endl;
    return;
  }
  const ordered_json row{{"path", path}, {"width", sheet.size(2)}, {"height", sheet.size(1)}, {"settings", settings}};
  std::cout << io::tolerant_json_text(row) << std::endl;
}

}  // namespace

void draw(const Drawing& d, GenerationSettings s) {
  std::vector<GridAxis> axes;
  const bool several = !s.prompts.empty() || !s.grid.empty();
  SF_CHECK(!s.grid_only || !s.grid.empty(), "--grid-only: needs --grid");
  if (several && s.batch_of > 1) {  // of a picture that --like repeats
    s.count = s.batch = 1;
    if (s.seed) *s.seed += s.place;
    s.batch_of = 1, s.place = 0;
  }
  if (several) s.calls.clear();
  s.clips = diffusion::makes_clips(*d.tasks.begin());
  if (*d.tasks.begin() != diffusion::Task::TextToImage) s.hires = std::nullopt;  // of a picture that --like repeats
  std::vector<Job> jobs = jobs_of(d, s, axes);
  Tensors inputs;
  KnownLoras loras;
  int64_t pictures = 0;
  for (auto& job : jobs)
    at_place(job.where, [&, &one = job.settings] {
      SF_CHECK(!d.needs_prompt || job.has_prompt || !one.prompt.empty() || one.options.count("class_labels"), d.command,
               ": needs a prompt");
      models::seamless_axes(one.tiling);
      models::free_u_of(one.freeu);
      if (one.hires) hires_options(one);
      check_controlnets(one);
      if (d.read_inputs) inputs = d.read_inputs(one);
      if (!several) return;
      SF_CHECK(*one.seed <= INT64_MAX - one.count, "--seed: ", *one.seed, " is too large for ", one.count, " pictures");
      loras.find(one);
      check_outputs(one);
      pictures += one.count;
      SF_CHECK(pictures <= kPictures, "these are more than ", kPictures, " pictures");
    });
  if (several) inputs.clear(), tell_files_apart(jobs);
  if (!axes.empty()) {
    s.seed = jobs[0].settings.seed;
    check_template("--output", s.output, {"seed", "number", "prompt"});
    check_output("--output", sheet_path(s), ".png .jpg .jpeg .webp");
  }
  // Samplers are set for each job, from the model's own.
  auto largest = std::max_element(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) {
    auto pixels = [](const GenerationSettings& g) { return g.width.value_or(0) * g.height.value_or(0); };
    return pixels(a.settings) < pixels(b.settings);
  });
  GenerationSettings loading = largest->settings;
  loading.sampler.clear(), loading.scheduler_options.clear();
  if (several) loading.guidance = s.guidance, loading.guidance_rescale = s.guidance_rescale, loading.fps = s.fps;
  SharedModel model(d, loading);
  for (auto& job : jobs) {
    settle(job.settings, model.pipeline());
    job.settings.model = loading.model, job.settings.vae = loading.vae;
    job.settings.controlnets = loading.controlnets;
  }
  if (!several) jobs[0].settings.loras = loading.loras;
  LargestSize size;
  if (several) size = try_all(d, jobs, model);
  if (!axes.empty()) check_sheet(sheet_path(s), size, axes[0].values.size(), jobs.size());
  const bool clips = diffusion::makes_clips(diffusion::pipeline_entry(model.pipeline().name()).its_task);
  std::optional<SamplingWatch> watch;
  std::optional<Series> series;
  if (several) {
    watch.emplace(s.quiet || s.json, pictures, clips ? "clip" : "picture");
    series.emplace(Series{*watch, !s.grid_only});
  }
  Tensors made;
  auto keep = [&](const Tensor& picture) { made.push_back(picture.cpu()); };
  for (auto& job : jobs) {
    GenerationSettings& one = job.settings;
    if (several && d.read_inputs) inputs = d.read_inputs(one);
    model.suit(one);
    const auto given = inputs_of(d, one, model.pipeline(), inputs);
    loras.hash(one);
    generate(d.command, one, model.pipeline(), given,
             axes.empty() ? std::function<void(const Tensor&)>() : std::function<void(const Tensor&)>(keep),
             series ? &*series : nullptr);
  }
  if (!axes.empty()) {
    s.guidance = jobs[0].settings.guidance;
    s.loras.used = jobs[0].settings.loras.used;
    watch->bar.clear();
    write_sheet(d, s, model.pipeline(), axes, jobs, made);
  }
  if (!several) return;
  watch->bar.finish();
  if (model.pipeline().placement && !s.quiet && !s.json) std::cerr << model.pipeline().placement->peaks();
}

}  // namespace sf::cli
