// What a person at a terminal sees while a picture forms. On standard error; one thread.
#pragma once
#include <chrono>
#include <functional>
#include <stop_token>
#include <string>

#include "scaffolding/core/tensor.h"
#include "scaffolding/train/interrupt.h"

namespace sf::cli {

// "picture 2/4 [=====>    ] step 11/20, 8.3 steps/s, 1.1 s left", then "picture 2/4 [==   ] frames decoded: 40 %":
// rewritten on a terminal, else a line for each one that takes longer than a second.
class StepBar {
 public:
  StepBar(bool silent, int64_t count, const char* what);  // so many of "picture" or "clip"
  void step(int64_t done, int64_t batch, int64_t step, int64_t steps);
  void decoded(int64_t done, int64_t batch, double share);  // of the frames
  void clear();                                             // takes the line away, for other output
  void finish();                                            // after the last one

 private:
  using Clock = std::chrono::steady_clock;
  bool is_time(bool last);  // to say something again
  std::string bar(int64_t done, int64_t batch, double share) const;
  void say(const std::string& line);
  bool silent_, terminal_, shown_ = false;
  int64_t count_;
  std::string what_;
  Clock::time_point began_, one_began_, said_;
};

// What sampling tells and asks while it runs: the bar, and Ctrl-C, which stops it after a step. One at a time in a
// process.
class SamplingWatch {
 public:
  SamplingWatch(bool silent, int64_t count, const char* what) : bar(silent, count, what) {}
  std::stop_token stop() const { return stop_.get_token(); }
  // of a batch, with so many pictures before it; it lives no longer than the watch
  std::function<void(int64_t step, int64_t steps)> progress(int64_t done, int64_t batch);
  std::function<void(double share)> decoding(int64_t done, int64_t batch);  // of clips, whose frames come part by part
  StepBar bar;

 private:
  train::StopOnInterrupt interrupt_;
  std::stop_source stop_;
};

double seconds_since(std::chrono::steady_clock::time_point began);

// A picture uint8 [3, H, W] that is forming: into a file that is replaced each time,
// or for "terminal" as coloured half blocks.
void show_preview(const std::string& where, const Tensor& picture);
// A picture uint8 [3, H, W] in characters, `columns` wide, two pixels in each.
std::string half_blocks(const Tensor& picture, int64_t columns);

}  // namespace sf::cli
