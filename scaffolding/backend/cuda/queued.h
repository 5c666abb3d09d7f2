// Queued: the names of what was given to a GPU since it was last waited for. A kernel that fails is reported by some
// later call, whichever it is; the names say which it may have been. Lock-free, 10 ns a launch. What is captured
// into a graph is left out here and is in the name of the graph instead.
#pragma once
#include <string>

#include "scaffolding/backend/cuda/device.h"

namespace sf::cuda {

// After a call that gives `name` to a stream, which is a literal or interned: RuntimeError as check() has it where the
// call failed, else the name is kept.
void queued(cudaError_t status, const char* name, int device, cudaStream_t stream);
// The same for what reported no error, with errors of its own.
void queued(const char* name, int device, cudaStream_t stream);

// A wait of the host that succeeded forgets what was queued before it began.
class Wait {
 public:
  explicit Wait(int device);  // before it
  void over_for(cudaStream_t stream) const;
  void over_for_device() const;

 private:
  int device_;
  uint64_t before_;
};

// "; queued since the last synchronisation: a, b (3 times), c (newest last)" of each device that has something queued,
// or nothing. For errors that a kernel of before may have caused.
std::string suspects();

const char* interned(const std::string& text);  // the same for the same text, as long as the process

// What the calling thread captures from here on, and its name as one replay: "CUDAGraph.replay of a, b (3 times)".
void begin_naming_graph();
const char* end_naming_graph();

}  // namespace sf::cuda
