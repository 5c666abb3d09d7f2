// Relaxed: a scope in which the calling thread may allocate and ask for events while a graph is captured:
// memory is no part of the graph, nor is what a library loads when it is first called.
#pragma once
#include <cuda_runtime_api.h>

namespace sf::cuda {

class Relaxed {
 public:
  Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace sf::cuda
