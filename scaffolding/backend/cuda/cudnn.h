// cuDNN: the functions of the library that convolutions and attention use, found at run time, and a handle per device. Where the library is missing, the
// kernels that need it support no call and the next provider takes it. Thread-safe; a handle is used by one thread at a time (execution_lock).
#pragma once
#include <mutex>
#include <string>

#include "scaffolding/backend/cuda/cudnn_api.h"
#include "scaffolding/core/error.h"

namespace sf::cuda::cudnn {

const Functions* functions();  // null where the library is missing or of another version; asked once
const std::string& missing();  // why functions() is null
const Functions& api();        // RuntimeError saying missing()

Handle handle(int device);  // made on first use, for the process. Failure saying what cuDNN lacks
std::mutex& execution_lock();

// While it lives, calls of this thread break no capture: what cuDNN loads and allocates for itself is part of no graph.
struct OutsideCaptures {
  OutsideCaptures() { cudaThreadExchangeStreamCaptureMode(&mode); }
  ~OutsideCaptures() { cudaThreadExchangeStreamCaptureMode(&mode); }
  OutsideCaptures(const OutsideCaptures&) = delete;
  OutsideCaptures& operator=(const OutsideCaptures&) = delete;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
};

// What cuDNN answered other than success.
struct Failure : RuntimeError {
  Failure(Status s, const std::string& text) : RuntimeError(text), status(s) {}
  Status status;
};
void check(Status status, const char* what);  // Failure "cuDNN: <what>: <its text>"

}  // namespace sf::cuda::cudnn
