// Timer: how long work on a stream takes, by two events. Waits for it; not while a graph is captured.
// One thread uses one.
#pragma once
#include "scaffolding/backend/cuda/device.h"

namespace sf::cuda {

class Timer {
 public:
  explicit Timer(const char* op) : op_(op) {
    check(cudaEventCreateWithFlags(&begin_, cudaEventDefault), op);
    check(cudaEventCreateWithFlags(&end_, cudaEventDefault), op);
  }
  ~Timer() {
    for (cudaEvent_t e : {begin_, end_})
      if (e) cudaEventDestroy(e);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Milliseconds of `runs` calls of queue, each of which puts work on the stream.
  template <class F> float of(cudaStream_t stream, int runs, const F& queue) const {
    check(cudaEventRecord(begin_, stream), op_);
    for (int i = 0; i < runs; ++i) queue();
    check(cudaEventRecord(end_, stream), op_);
    check(cudaEventSynchronize(end_), op_);
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin_, end_), op_);
    return ms;
  }

 private:
  const char* op_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace sf::cuda
