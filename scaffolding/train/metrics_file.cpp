#include "scaffolding/train/metrics_file.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "scaffolding/core/error.h"
#include "scaffolding/io/file.h"
#include "scaffolding/io/json.h"

namespace sf::train {

using Json = nlohmann::ordered_json;

// The lines up to a step. A line that is no JSON object with a step was cut short, or is not ours.
static std::string kept_lines(const io::Bytes& file, int64_t after_step) {
  std::string_view rest(file.chars() ? file.chars() : "", file.size);
  std::string kept;
  while (!rest.empty()) {
    size_t end = rest.find('\n');
    if (end == rest.npos) break;
    std::string_view line = rest.substr(0, end + 1);
    rest.remove_prefix(end + 1);
    Json j = Json::parse(line, nullptr, false);
    if (j.is_object() && j.contains("step") && j["step"].is_number_integer() && j["step"].get<int64_t>() <= after_step)
      kept += line;
  }
  return kept;
}

MetricsFile::MetricsFile(const std::string& path, int64_t after_step) {
  if (std::error_code error; std::filesystem::exists(path, error)) {
    std::string kept = kept_lines(io::Bytes::map(path), after_step);
    io::ReplacingFile file(path);
    file.write(kept.data(), kept.size());
    file.commit();
  }
  file_.emplace(path);
}

void MetricsFile::write(int64_t step, int64_t epoch, const Values& values) {
  Json line = {{"step", step}, {"epoch", epoch}};
  for (auto& [name, v] : values) line[name] = std::isfinite(v) ? Json(v) : Json();
  file_->write(io::tolerant_json_text(line) + "\n");
}

}  // namespace sf::train
