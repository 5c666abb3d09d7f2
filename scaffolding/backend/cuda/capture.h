// What CudaGraph (backend/cuda_graph.h) asks of the runtime.
#pragma once
#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cuda/device.h"
#include "scaffolding/backend/cuda_graph.h"

namespace sf::cuda {

// A captured graph, ready to run.
struct ReadyGraph {
  cudaGraphExec_t exec;
  const char* name;  // in errors, interned
};

void begin_capture(int device, uint64_t pool, CaptureMode mode);
ReadyGraph* end_capture(int device, size_t& nodes);
void launch_graph(int device, const ReadyGraph& graph);
void destroy_graph(int device, ReadyGraph* graph, uint64_t pool);  // null: of a capture that failed
void write_words(int device, void* data, const uint64_t (&words)[2]);

}  // namespace sf::cuda
