// MetricsFile: metrics.jsonl: a JSON object with "step" on each line, each step once. One thread at a time.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scaffolding/train/appending_file.h"

namespace sf::train {

class MetricsFile {
 public:
  // Goes on after a step: lines of later steps, and one that was cut short, are dropped.
  MetricsFile(const std::string& path, int64_t after_step);
  using Values = std::vector<std::pair<std::string, double>>;
  // step and epoch come first. A value that is not finite is written as null: JSON has no such number.
  void write(int64_t step, int64_t epoch, const Values& values);
  void sync() { file_->sync(); }

 private:
  std::optional<AppendingFile> file_;
};

}  // namespace sf::train
