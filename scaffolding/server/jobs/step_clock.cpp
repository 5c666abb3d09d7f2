#include "scaffolding/server/jobs/step_clock.h"

#include <chrono>

namespace sf::server {

double StepClock::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void StepClock::forget() {
  if (queued_) accelerator(device_).destroy_event(device_.index, queued_);
  queued_ = nullptr;
}

double StepClock::stepped(Device device, const std::string& kind, int64_t rows, double began) {
  if (!device.is_cuda()) return now() - began;
  Accelerator& gpu = accelerator(device);
  EventHandle end = gpu.make_event(device.index, false);
  gpu.record_event(device.index, end, gpu.current_stream(device.index));
  const bool is_like = queued_ && device == device_ && rows == rows_ && kind == kind_;
  if (queued_) accelerator(device_).synchronize_event(device_.index, queued_);
  forget();
  const double done = now(), seconds = is_like && waited_ >= 0 ? done - waited_ : -1;
  device_ = device, queued_ = end, kind_ = kind, rows_ = rows, waited_ = done;
  return seconds;
}

}  // namespace sf::server
