// What CudaGraph (backend/cuda_graph.h) asks of the runtime.
#pragma once
#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cuda/device.h"
#include "scaffolding/backend/cuda_graph.h"

namespace sf::cuda {

void begin_capture(int device, uint64_t pool, CaptureMode mode);
cudaGraphExec_t end_capture(int device, size_t& nodes);
void launch_graph(int device, cudaGraphExec_t graph);
void destroy_graph(int device, cudaGraphExec_t graph, uint64_t pool);
void write_words(int device, void* data, const uint64_t (&words)[2]);

}  // namespace sf::cuda
