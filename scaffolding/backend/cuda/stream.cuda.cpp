#include "scaffolding/backend/cuda/stream.h"

#include "scaffolding/backend/cuda/capture.h"
#include "scaffolding/backend/cuda/current_stream.h"
#include "scaffolding/backend/cuda/queued.h"
#include "scaffolding/backend/cuda/reports.h"

namespace sf::cuda {

static thread_local cudaStream_t current_streams[kMaxDevices] = {};

Stream Stream::current(int device) { return {device, current_streams[device]}; }

void set_current(Stream stream) { current_streams[stream.device] = stream.handle; }

void Stream::synchronize() const {
  refuse_while_capturing("synchronize", "waiting for a stream");
  DeviceScope scope(device);
  const Wait wait(device);
  check(cudaStreamSynchronize(handle), "synchronize");
  wait.over_for(handle);
  Reports::instance().raise();
}

StreamScope::StreamScope(Stream stream) : previous_(Stream::current(stream.device)) {
  current_streams[stream.device] = stream.handle;
}
StreamScope::~StreamScope() { current_streams[previous_.device] = previous_.handle; }

}  // namespace sf::cuda
