#include "apps/cli/evaluation.h"

#include <cmath>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "apps/cli/files.h"
#include "scaffolding/core/error.h"
#include "scaffolding/io/hub/shipped_models.h"
#include "scaffolding/io/json.h"

namespace sf::cli {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::string recipe_path(const EvaluationSettings& o) {
  if (!o.config.empty()) return o.config;
  std::error_code error;
  const std::string& model = o.sampling.model;
  const std::string folder = io::is_shipped_model(model) ? io::find_shipped_model(model).value_or("") : model;
  const std::string beside = (fs::path(folder) / "train.json").string();
  return fs::exists(beside, error) ? beside : "";
}

std::shared_ptr<data::IconDataset> evaluation_icons(const EvaluationSettings& o, data::IconOptions reading) {
  std::error_code error;
  SF_CHECK(!o.data.empty(), "eval: needs --data, the tar with the icons, or --config, the recipe that names it");
  SF_CHECK(fs::is_regular_file(o.data, error), "--data: there is no file '", o.data, "'");
  reading.left_out_groups = o.left_out_groups;
  reading.styles = o.styles;
  auto icons = std::make_shared<data::IconDataset>(o.data, reading);
  if (!o.sampling.quiet) std::cerr << "reading " << icons->size() << " icons" << std::endl;
  return icons;
}

ordered_json evaluation_report(EvaluationSettings& o, const diffusion::DiffusionPipeline& pipeline,
                               const data::IconDataset& icons) {
  GenerationSettings& s = o.sampling;
  ordered_json report{{"model", s.model},
                      {"data", fs::path(o.data).filename().string()},
                      {"icons", icons.size()},
                      {"styles", o.styles},
                      {"left_out_groups", o.left_out_groups},
                      {"steps", s.steps},
                      {"guidance", *s.guidance},
                      {"sampler", s.sampler.empty() ? pipeline.the_scheduler()->name() : s.sampler},
                      {"seed", *s.seed}};
  if (!s.vae.empty()) report["vae"] = s.vae;
  hash_loras(s.loras.used);
  if (!s.loras.used.empty()) report["lora"] = loras_json(s.loras.used);
  return report;
}

void write_evaluation_sheet(const EvaluationSettings& o, size_t made, int64_t columns,
                            const std::function<SheetPicture(size_t)>& shown) {
  if (o.sheet.empty()) return;
  std::vector<SheetPicture> pictures;
  const size_t count = std::min(made, size_t(o.sheet_pictures));
  for (size_t i = 0; i < count; ++i) pictures.push_back(shown(i * made / count));
  io::write_image(o.sheet, contact_sheet(pictures, columns), {.quality = 92});
}

void hand_over(const EvaluationSettings& o, const ordered_json& report, void (*print)(const ordered_json&)) {
  const std::string text = io::json_text(report, 2);
  if (!o.output.empty()) print_text(text + "\n", o.output);
  if (o.sampling.json) std::cout << text << std::endl;
  else print(report);
}

double rounded(double value, double places) {
  const double scale = std::pow(10, places);
  return std::round(value * scale) / scale;
}

std::string percent(const ordered_json& share) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << 100 * share.get<double>() << " %";
  return out.str();
}

}  // namespace sf::cli
