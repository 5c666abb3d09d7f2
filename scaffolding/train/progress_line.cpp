#include "scaffolding/train/progress_line.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace sf::train {

std::string spelled_duration(double seconds) {
  auto s = int64_t(std::llround(std::clamp(seconds, 0.0, 1e9)));
  char b[48];
  if (s < 60) std::snprintf(b, sizeof b, "%d s", int(s));
  else if (s < 3600) std::snprintf(b, sizeof b, "%d:%02d", int(s / 60), int(s % 60));
  else std::snprintf(b, sizeof b, "%lld:%02d:%02d", static_cast<long long>(s / 3600), int(s / 60 % 60), int(s % 60));
  return b;
}

ProgressLine::ProgressLine(const ProgressOptions& options, int64_t first_step, double now)
    : options_(options), step_(first_step), last_(now), shown_(now - 2 * std::max(options.seconds, options.refresh)) {}

std::string ProgressLine::step(int64_t step, double loss, int64_t samples, double now) {
  double taken = std::max(now - last_, 1e-9);
  double weight = step_seconds_ == 0 ? 1 : 0.02;
  // The rate shown is the quotient of two means: a mean of rates would let one quick step count as much as a slow one.
  samples_ += weight * (double(samples) - samples_);
  step_seconds_ += weight * (taken - step_seconds_);
  step_ = step;
  loss_ = loss;
  last_ = now;
  bool done = options_.last_step && step >= *options_.last_step;
  if (!done && now - shown_ < (options_.terminal ? options_.refresh : options_.seconds)) return {};
  shown_ = now;
  shown_step_ = step;
  return shown();
}

std::string ProgressLine::finish() {
  if (step_seconds_ == 0) return {};
  if (!options_.terminal) return shown_step_ == step_ ? std::string() : shown();
  std::string out = shown();
  out += '\n';
  return out;
}

std::string ProgressLine::shown() const {
  std::string out;
  if (options_.terminal) out += '\r';
  out += text();
  out += options_.terminal ? "\x1b[K" : "\n";
  return out;
}

std::string ProgressLine::text() const {
  char b[160];
  std::string out;
  if (options_.last_step) {
    int64_t total = std::max<int64_t>(*options_.last_step, 1);
    double part = std::min(1.0, double(step_) / double(total));
    std::snprintf(b, sizeof b, "step %lld/%lld (%d %%)", static_cast<long long>(step_), static_cast<long long>(total),
                  int(100 * part));
    out = b;
    if (options_.terminal) {
      constexpr int kWidth = 20;
      int full = int(kWidth * part);
      out += " [" + std::string(size_t(full), '#') + std::string(size_t(kWidth - full), '.') + "]";
    }
  } else {
    out = "step " + std::to_string(step_);
  }
  double rate = samples_ / step_seconds_;
  std::snprintf(b, sizeof b, ", loss %.4g, %.*f samples/s", loss_, rate < 10 ? 2 : 0, rate);
  out += b;
  if (options_.last_step && step_ < *options_.last_step)
    out += ", " + spelled_duration(double(*options_.last_step - step_) * step_seconds_) + " left";
  return out;
}

}  // namespace sf::train
