// How far the thread that computes is ahead of a GPU, and how long steps take there. A step's work is queued in a
// fraction of its time: without waiting all steps of a picture would be queued before the next job comes, which could
// then join none of them. So while a GPU computes one step the next one is queued, and no more. One thread's.
#pragma once
#include <string>

#include "scaffolding/backend/accelerator.h"

namespace sf::server {

class StepClock {
 public:
  StepClock() = default;
  ~StepClock() { forget(); }
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;

  // A step of so many rows, whose call began at that time of the clock, was computed, or queued on a GPU, where this
  // waits for the step before it. Seconds that a step of them takes; below 0: not known, because the one before was
  // another, or there was other work.
  double stepped(Device device, const std::string& kind, int64_t rows, double began);
  static double now();            // in seconds
  void broke() { waited_ = -1; }  // there was other work since the last step

 private:
  void forget();
  Device device_;
  EventHandle queued_ = nullptr;  // the end of the last step
  std::string kind_;
  int64_t rows_ = 0;    // of it
  double waited_ = -1;  // when the step before it was done; below 0: not known
};

}  // namespace sf::server
