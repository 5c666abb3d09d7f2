// Stream: the queue on which a thread's kernels and copies run, one current stream per thread and device.
// Kernels take Stream::current(device) and never wait; work on one stream runs in order. The default is CUDA's default
// stream, on which the work of all threads runs in order. A handle owns nothing: whoever made the stream destroys it.
#pragma once
#include "scaffolding/backend/cuda/device.h"

namespace sf::cuda {

struct Stream {
  int device = 0;
  cudaStream_t handle = nullptr;

  static Stream current(int device);
  // waits; RuntimeError when a kernel on it failed, IndexError when one reported a wrong index
  void synchronize() const;
};

// Makes a stream the calling thread's current one on its device for as long as the scope lives. A tensor made on one
// stream and used on another needs an event between them, and record_stream where it is freed before the other is done.
class StreamScope {
 public:
  explicit StreamScope(Stream stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  Stream previous_;
};

}  // namespace sf::cuda
