// What `scaffolding eval` shares between models of pictures and of clips. Functions only.
#pragma once
#include <cmath>

#include "apps/cli/generation.h"

namespace sf::cli {

struct EvaluationSettings {
  std::string data, config, sheet, output;
  std::vector<std::string> splits{"train", "heldout_combo"}, left_out_groups, styles;
  std::optional<int64_t> count;  // absent: 200 pictures, or 60 clips
  int64_t sheet_pictures = 48;
  GenerationSettings sampling;
};

// The recipe: the one that was named, else train.json in the model's folder; empty where there is none.
std::string recipe_path(const EvaluationSettings& settings);
// ValueError where no data are named, or they are no file.
void check_evaluation_data(const EvaluationSettings& settings);

inline double rounded(double value) { return std::round(value * 1e4) / 1e4; }
std::string percent(const nlohmann::ordered_json& share);

// Measures a model of clips, and prints or writes what is found.
void evaluate_clips(EvaluationSettings& settings, const diffusion::ToraPipeline& pipeline);

}  // namespace sf::cli
