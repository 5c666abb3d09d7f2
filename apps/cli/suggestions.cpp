#include "apps/cli/suggestions.h"

#include <algorithm>
#include <filesystem>

#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"
#include "scaffolding/io/hub/shipped_models.h"
#include "scaffolding/nn/closest.h"

namespace sf::cli {

namespace fs = std::filesystem;

constexpr size_t kNeighbours = 2000;  // of a path, that are compared with it

std::string as_option_name(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c == '_' ? '-' : c >= 'A' && c <= 'Z' ? char(c + 32) : c;
  return out;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known, const std::string& then) {
  std::vector<std::string> folded;
  for (auto& k : known) folded.push_back(as_option_name(k));
  const std::string best = nn::closest(as_option_name(name), folded);
  if (best.empty()) return then.empty() ? "" : "; " + then;
  const std::string& name_of_best = known[size_t(std::find(folded.begin(), folded.end(), best) - folded.begin())];
  return "; did you mean '" + name_of_best + "'?" + (then.empty() ? "" : " " + then);
}

void refuse_choice(const char* option, const std::string& value, const std::vector<std::string>& known) {
  std::string all;
  for (size_t i = 0; i < known.size(); ++i) all += (i == 0 ? "" : i + 1 == known.size() ? " or " : ", ") + known[i];
  fail(option, ": must be ", all, ", got '", printable(value), "'", did_you_mean(value, known));
}

std::string did_you_mean_path(const std::string& model) {
  const fs::path path(model.ends_with('/') ? model.substr(0, model.size() - 1) : model);
  std::vector<std::string> beside;
  std::error_code error;
  for (fs::directory_iterator it(path.has_parent_path() ? path.parent_path() : ".", error), end;
       !error && it != end && beside.size() < kNeighbours; it.increment(error)) {
    const std::string suffix = it->path().extension().string();
    const bool weights = suffix == ".safetensors" || suffix == ".ckpt" || suffix == ".pt" || suffix == ".gguf";
    std::error_code none;
    if (weights || it->is_directory(none)) beside.push_back((path.parent_path() / it->path().filename()).string());
  }
  return did_you_mean(path.string(), beside);
}

}  // namespace sf::cli
