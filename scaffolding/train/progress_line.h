// ProgressLine: how a run is doing, as text: one line that is rewritten on a terminal, else a line every few seconds.
// Writes nothing itself. Time is the caller's, in seconds from any start. One thread at a time.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace sf::train {

struct ProgressOptions {
  bool terminal = false;
  double seconds = 10;               // between lines that are not rewritten
  double refresh = 0.1;              // between rewrites
  std::optional<int64_t> last_step;  // without one: no time left
};

class ProgressLine {
 public:
  ProgressLine(const ProgressOptions& options, int64_t first_step, double now);
  // After each step; often empty. samples: of this step.
  std::string step(int64_t step, double loss, int64_t samples, double now);
  std::string finish();  // the last state, and the end of the line

 private:
  std::string text() const;
  std::string shown() const;  // text() with what ends or rewrites a line
  ProgressOptions options_;
  int64_t step_, shown_step_ = -1;
  double last_, shown_;
  double loss_ = 0;
  double step_seconds_ = 0, samples_ = 0;  // of a step: means that forget, the last ~50 count
};

std::string spelled_duration(double seconds);  // "42 s", "3:07", "2:03:07"

}  // namespace sf::train
