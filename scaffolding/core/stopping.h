// Work that is given up between its parts: whoever starts it says when, and what is long asks between its tiles, chunks
// and blocks. Of the thread that asks.
//   StopWhen stop([&] { return job.cancelled; });
//   vae.decode(latents);        // Stopped between two tiles
#pragma once
#include <functional>

#include "scaffolding/core/error.h"

namespace sf {

// What was asked for is not wanted any more; nothing is left behind.
struct Stopped : RuntimeError {
  using RuntimeError::RuntimeError;
};

class StopWhen {
 public:
  explicit StopWhen(std::function<bool()> is_over);
  ~StopWhen();
  StopWhen(const StopWhen&) = delete;
  StopWhen& operator=(const StopWhen&) = delete;

 private:
  friend void stop_here(const char* who);
  std::function<bool()> is_over_;
  const StopWhen* outer_;  // which is asked too
};

// Stopped as "who: stopped" where somebody who waits for this thread says so.
void stop_here(const char* who);

}  // namespace sf
