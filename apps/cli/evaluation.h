// What `scaffolding eval` shares between models of pictures and of clips. Functions only.
#pragma once
#include "apps/cli/contact_sheet.h"
#include "apps/cli/generation.h"
#include "scaffolding/data/composed_icons.h"
#include "scaffolding/train/evaluation/composition_judge.h"

namespace sf::cli {

struct EvaluationSettings {
  std::string data, config, sheet, output;
  std::vector<std::string> splits{"train", "heldout_combo"}, left_out_groups, styles;
  std::optional<int64_t> count;         // absent: 200 pictures, or 60 clips
  std::optional<int64_t> compositions;  // prompts of each kind; absent: 60, or count where that is less
  int64_t sheet_pictures = 48;
  GenerationSettings sampling;
};

// The recipe: the one that was named, else train.json in the model's folder; empty where there is none.
std::string recipe_path(const EvaluationSettings& settings);
// The real icons, those that the settings leave. ValueError where no data are named, or they are no file.
std::shared_ptr<data::IconDataset> evaluation_icons(const EvaluationSettings& settings, data::IconOptions reading);

// What each report begins with: the model, the data, and how it was sampled.
nlohmann::ordered_json evaluation_report(EvaluationSettings& settings, const diffusion::DiffusionPipeline& pipeline,
                                         const data::IconDataset& icons);
// --sheet, uncurated: evenly from all that was made; shown(i) gives the i-th of it.
void write_evaluation_sheet(const EvaluationSettings& settings, size_t made, int64_t columns,
                            const std::function<SheetPicture(size_t)>& shown);
// The finished report: into --output, and as JSON or by `print` on standard output.
void hand_over(const EvaluationSettings& settings, const nlohmann::ordered_json& report,
               void (*print)(const nlohmann::ordered_json&));

double rounded(double value, double places = 4);
std::string percent(const nlohmann::ordered_json& share);

// What a model makes of prompts that put things together. round_trip: a picture as its autoencoder gives it back.
nlohmann::ordered_json composition_report(const std::shared_ptr<const data::ComposedIcons>& composed,
                                          const std::vector<train::CompositionPrompt>& prompts, const Tensors& pictures,
                                          uint64_t seed, const std::function<Tensor(const Tensor&)>& round_trip);
void print_compositions(const nlohmann::ordered_json& report);

// Measures a model of clips, and prints or writes what is found.
void evaluate_clips(EvaluationSettings& settings, const diffusion::ToraPipeline& pipeline);

}  // namespace sf::cli
