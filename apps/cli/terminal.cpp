#include "apps/cli/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "scaffolding/data/resize.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/train/progress_line.h"

namespace sf::cli {

StepBar::StepBar(bool silent, int64_t count, const char* what)
    : silent_(silent),
      terminal_(isatty(STDERR_FILENO)),
      count_(count),
      what_(what),
      began_(Clock::now()),
      one_began_(began_),
      said_(began_) {}

bool StepBar::is_time(bool last) {
  const auto now = Clock::now();
  const double quiet = std::chrono::duration<double>(now - said_).count();
  if (silent_ || (terminal_ ? quiet < 0.05 && !last : quiet < 1)) return false;
  said_ = now;
  return true;
}

std::string StepBar::bar(int64_t done, int64_t batch, double share) const {
  constexpr int64_t kWidth = 24;
  const auto filled = int64_t(double(kWidth) * share);
  std::string line;
  if (count_ > 1)
    line += what_ + " " + std::to_string(done + 1) + (batch > 1 ? "-" + std::to_string(done + batch) : "") + "/" +
            std::to_string(count_) + " ";
  return line + "[" + std::string(size_t(filled), '=') + std::string(size_t(kWidth - filled), ' ') + "] ";
}

void StepBar::say(const std::string& line) {
  if (terminal_) std::cerr << "\r\033[K" << line << std::flush;
  else std::cerr << line << "\n";
  shown_ = true;
}

void StepBar::step(int64_t done, int64_t batch, int64_t step, int64_t steps) {
  if (step <= 1) one_began_ = Clock::now();
  if (!is_time(step == steps)) return;
  const double each = step > 1 ? seconds_since(one_began_) / double(step - 1) : 0;
  std::string line = bar(done, batch, steps > 0 ? double(step) / double(steps) : 0) + "step " + std::to_string(step) +
                     "/" + std::to_string(steps);
  if (each > 0) {
    char speed[40];
    std::snprintf(speed, sizeof speed, ", %.3g steps/s, ", 1 / each);
    line += speed + train::spelled_duration(each * double(steps - step)) + " left";
  }
  say(line);
}

void StepBar::decoded(int64_t done, int64_t batch, double share) {
  if (!is_time(share >= 1)) return;
  say(bar(done, batch, share) + "frames decoded: " + std::to_string(int64_t(100 * share)) + " %");
}

void StepBar::clear() {
  if (terminal_ && shown_) std::cerr << "\r\033[K" << std::flush;
  shown_ = false;
}

void StepBar::finish() {
  clear();
  if (silent_) return;
  const double seconds = seconds_since(began_);
  char text[80];
  std::snprintf(text, sizeof text, "%lld %s%s in %.1f s", static_cast<long long>(count_), what_.c_str(),
                count_ == 1 ? "" : "s", seconds);
  std::cerr << text << "\n";
}

double seconds_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

std::function<void(int64_t, int64_t)> SamplingWatch::progress(int64_t done, int64_t batch) {
  return [this, done, batch](int64_t step, int64_t steps) {
    if (interrupt_.asked()) stop_.request_stop();
    bar.step(done, batch, step, steps);
  };
}

std::function<void(double)> SamplingWatch::decoding(int64_t done, int64_t batch) {
  return [this, done, batch](double share) { bar.decoded(done, batch, share); };
}

void show_preview(const std::string& where, const Tensor& picture) {
  if (where != "terminal") return io::write_image(where, picture);
  static bool first = true;
  constexpr int64_t kColumns = 48;
  int64_t rows = std::max<int64_t>(1, picture.size(1) * kColumns / picture.size(2) / 2);
  if (!first) std::cerr << "\033[" << rows << "A";  // over the one before
  first = false;
  std::cerr << "\r\033[K" << half_blocks(picture, kColumns) << std::flush;
}

std::string half_blocks(const Tensor& picture, int64_t columns) {
  int64_t rows = std::max<int64_t>(1, picture.size(1) * columns / picture.size(2) / 2);
  Tensor small = data::resize(picture, 2 * rows, columns, data::Filter::Box).contiguous();
  const uint8_t* p = small.data<uint8_t>();
  int64_t plane = 2 * rows * columns;
  std::string out;
  char text[64];
  for (int64_t y = 0; y < rows; ++y) {
    for (int64_t x = 0; x < columns; ++x) {
      const uint8_t *top = p + 2 * y * columns + x, *bottom = top + columns;
      std::snprintf(text, sizeof text, "\033[38;2;%d;%d;%dm\033[48;2;%d;%d;%dm\xe2\x96\x80", top[0], top[plane],
                    top[2 * plane], bottom[0], bottom[plane], bottom[2 * plane]);
      out += text;
    }
    out += "\033[0m\n";
  }
  return out;
}

}  // namespace sf::cli
