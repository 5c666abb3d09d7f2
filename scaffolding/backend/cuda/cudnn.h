// cuDNN: the functions of the library that convolutions and attention use, found at run time, and a handle per device.
// Where the library is missing, the kernels that need it support no call and the next provider takes it. Thread-safe; a
// handle is used by one thread at a time (execution_lock).
#pragma once
#include <mutex>
#include <string>

#include "scaffolding/backend/cuda/cudnn_api.h"
#include "scaffolding/core/error.h"

namespace sf::cuda::cudnn {

const Functions* functions();  // null where the library is missing or of another version; asked once
const Functions& api();        // RuntimeError saying what is missing
// Whether the library is there and starts on a device; asked once, unless the device had no memory for it, which is a
// RuntimeError. Else why says what is missing: a driver too old for this cuDNN, say.
bool usable(int device, std::string* why = nullptr);
Handle handle(int device);  // of a usable device, for the process
std::mutex& execution_lock();

// What cuDNN answered other than success.
struct Failure : RuntimeError {
  Failure(Status s, const std::string& text) : RuntimeError(text), status(s) {}
  Status status;
};
void check(Status status, const char* what);  // Failure "cuDNN: <what>: <its text>"

}  // namespace sf::cuda::cudnn
