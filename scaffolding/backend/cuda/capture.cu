#include "scaffolding/backend/cuda/capture.h"

#include <memory>

#include "scaffolding/backend/cuda/caching_allocator.h"
#include "scaffolding/backend/cuda/launch.cuh"

namespace sf::cuda {

namespace {

__global__ void write_two(uint64_t* data, uint64_t first, uint64_t second) {
  if (blockIdx.x * blockDim.x + threadIdx.x > 0) return;
  data[0] = first;
  data[1] = second;
}

}  // namespace

void begin_capture(int device, uint64_t pool, CaptureMode mode) {
  DeviceScope scope(device);
  CachingAllocator& memory = CachingAllocator::of(device);
  memory.begin_capture(pool);
  cudaStreamCaptureMode how = mode == CaptureMode::Global        ? cudaStreamCaptureModeGlobal
                              : mode == CaptureMode::ThreadLocal ? cudaStreamCaptureModeThreadLocal
                                                                 : cudaStreamCaptureModeRelaxed;
  cudaError_t status = cudaStreamBeginCapture(Stream::current(device).handle, how);
  if (status == cudaSuccess) return begin_naming_graph();
  memory.end_capture();
  memory.leave_pool(pool);
  check(status, "CUDAGraph.capture_begin");
}

ReadyGraph* end_capture(int device, size_t& nodes) {
  DeviceScope scope(device);
  const char* name = end_naming_graph();
  cudaGraph_t graph = nullptr;
  cudaError_t status = cudaStreamEndCapture(Stream::current(device).handle, &graph);
  CachingAllocator::of(device).end_capture();
  check(status, "CUDAGraph.capture_end");
  cudaGraphExec_t ready = nullptr;
  status = cudaGraphGetNodes(graph, nullptr, &nodes);
  if (status == cudaSuccess) status = cudaGraphInstantiate(&ready, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "CUDAGraph.capture_end");
  return new ReadyGraph{ready, name};
}

void launch_graph(int device, const ReadyGraph& graph) {
  DeviceScope scope(device);
  cudaStream_t stream = Stream::current(device).handle;
  check(cudaGraphLaunch(graph.exec, stream), "CUDAGraph.replay");
  queued(graph.name, device, stream);
}

void destroy_graph(int device, ReadyGraph* graph, uint64_t pool) {
  const std::unique_ptr<ReadyGraph> owned(graph);
  DeviceScope scope(device);
  const cudaError_t status = graph ? cudaGraphExecDestroy(graph->exec) : cudaSuccess;
  CachingAllocator::of(device).leave_pool(pool);
  check(status, "CUDAGraph");
}

void write_words(int device, void* data, const uint64_t (&words)[2]) {
  launch("CUDAGraph.replay", Device(Device::CUDA, device), 1, write_two, static_cast<uint64_t*>(data), words[0],
         words[1]);
}

}  // namespace sf::cuda
