// StreamedGraph: a call of a streamed model, captured. The work between two comings or goings of weights is a CUDA
// graph, which reads them in the slots that they passed through at the capture. A replay launches one after another and
// queues the copies and events between them as a call does, each group into its slot: no module is called, nothing is
// allocated, the host waits for nothing that a call would not wait for.
#pragma once
#include <functional>
#include <memory>

#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/nn/streaming/streamer.h"

namespace sf::nn {

class StreamedPass;

class StreamedGraph {
 public:
  // As cuda::capture. f calls the model, whose groups must come in this order at each replay, and write none of their
  // weights; what f calls beside it is captured too. Where something fails, nothing is.
  StreamedGraph(Streamer& streamer, const std::function<void()>& f, const cuda::CaptureOptions& options = {});
  ~StreamedGraph();

  // On the current stream. RuntimeError where it is not current.
  void replay();
  // False since weights of the model were written or moved (offload, evict): its memory is given back then, and f must
  // be captured again.
  bool is_current() const;
  int64_t graphs() const;  // that a replay launches
  int64_t nodes() const;   // of all of them

 private:
  std::unique_ptr<StreamedPass> pass_;
};

}  // namespace sf::nn
