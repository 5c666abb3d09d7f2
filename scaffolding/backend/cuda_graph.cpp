#include "scaffolding/backend/cuda_graph.h"

#include <algorithm>
#include <atomic>

#include "scaffolding/core/error.h"

namespace sf::cuda {

namespace {

thread_local CudaGraph* recording_graph = nullptr;

}  // namespace

SideStream::SideStream(Device device)
    : gpu_(accelerator(device)),
      index_(device.index),
      before_(gpu_.current_stream(index_)),
      stream_(gpu_.make_stream(index_)) {
  EventHandle e = gpu_.make_event(index_, false);
  gpu_.record_event(index_, e, before_);
  gpu_.stream_wait(index_, stream_, e);
  gpu_.destroy_event(index_, e);
  gpu_.set_current_stream(index_, stream_);
}

SideStream::~SideStream() {
  gpu_.set_current_stream(index_, before_);
  gpu_.destroy_stream(index_, stream_);  // waits for it
}

GraphPool new_graph_pool() {
  static std::atomic<GraphPool> last{0};
  return ++last;
}

CudaGraph* CudaGraph::recording() { return recording_graph; }

CudaGraph::CudaGraph(Device device) : device_(device) {
  SF_CHECK(device.is_cuda(), "CUDAGraph: needs a CUDA device, got ", device);
}

CudaGraph::~CudaGraph() {
  try {
    reset();
  } catch (const Error&) {
    // A broken context: nothing of it can be given back.
  }
}

void CudaGraph::capture_begin(GraphPool pool, CaptureMode mode) {
  SF_CHECK_AS(RuntimeError, !recording_graph,
              "CUDAGraph.capture_begin: this thread captures a graph already; end that first");
  SF_CHECK_AS(RuntimeError, !captured(),
              "CUDAGraph.capture_begin: this graph holds a capture already; call reset() before another one");
  Accelerator& gpu = accelerator(device_);
  stream_ = gpu.current_stream(device_.index);
  SF_CHECK_AS(RuntimeError, stream_,
              "CUDAGraph.capture_begin: the default stream cannot be captured; make another one current: with "
              "sf.cuda.stream(sf.cuda.Stream())");
  reset();
  pool_ = pool ? pool : new_graph_pool();
  // Not of the pool: a captured op may write to what it used before in the capture.
  memory_ = gpu.allocate(kMostWords * 2 * sizeof(uint64_t), device_.index);
  gpu.begin_capture(device_.index, pool_, mode);
  joined_ = true;
  recording_graph = this;
}

void CudaGraph::capture_end() {
  SF_CHECK_AS(RuntimeError, recording_graph == this,
              "CUDAGraph.capture_end: this thread does not capture this graph; call capture_begin first");
  Accelerator& gpu = accelerator(device_);
  StreamHandle now = gpu.current_stream(device_.index);
  gpu.set_current_stream(device_.index, stream_);
  recording_graph = nullptr;
  try {
    graph_ = gpu.end_capture(device_.index, nodes_);
  } catch (const Error&) {
    gpu.set_current_stream(device_.index, now);
    reset();
    throw;
  }
  gpu.set_current_stream(device_.index, now);
}

void CudaGraph::replay() {
  SF_CHECK_AS(RuntimeError, captured(),
              "CUDAGraph.replay: nothing was captured; use the graph in `with sf.cuda.graph(g):` first");
  SF_CHECK_AS(RuntimeError, !recording_graph, "CUDAGraph.replay: a replay cannot be part of a capture");
  for (auto& prepare : prepare_) prepare();
  Accelerator& gpu = accelerator(device_);
  for (size_t i = 0; i < words_.size(); ++i) {
    auto [first, second] = words_[i].next();
    gpu.write_words(device_.index, words_at(i), {first, second});
  }
  gpu.launch_graph(device_.index, graph_);
}

void CudaGraph::reset() {
  if (recording_graph == this) {
    try {
      capture_end();
    } catch (const Error&) {
      return;  // the capture was broken, and has been dropped
    }
  }
  if (!joined_ && !memory_) return;
  Accelerator& gpu = accelerator(device_);
  if (joined_) gpu.destroy_graph(device_.index, std::exchange(graph_, nullptr), pool_);
  joined_ = false;
  if (memory_) gpu.release(std::exchange(memory_, nullptr), kMostWords * 2 * sizeof(uint64_t), device_.index);
  words_.clear();
  prepare_.clear();
  kept_.clear();
}

const uint64_t* CudaGraph::words_before_replay(const void* owner,
                                               const std::function<std::pair<uint64_t, uint64_t>()>& next) {
  auto at = std::find_if(words_.begin(), words_.end(), [&](const Words& w) { return w.owner == owner; });
  size_t i = size_t(at - words_.begin());
  if (at == words_.end()) {
    SF_CHECK_AS(RuntimeError, i < kMostWords, "CUDAGraph: a graph draws from at most ", kMostWords, " generators");
    words_.push_back({owner, next});
  }
  return words_at(i);
}

void CudaGraph::before_replay(std::function<void()> prepare) { prepare_.push_back(std::move(prepare)); }

void CudaGraph::keep_alive(std::shared_ptr<const void> owner) { kept_.push_back(std::move(owner)); }

void refuse_while_capturing(const char* op, const char* what) {
  SF_CHECK_AS(RuntimeError, !CudaGraph::recording(), op, ": ", what,
              " is not allowed while a CUDA graph is captured, since a replay runs without the host: do it before, or "
              "run the code once before it is captured");
}

std::unique_ptr<CudaGraph> capture(const std::function<void()>& f, const CaptureOptions& options, Device device) {
  auto graph = std::make_unique<CudaGraph>(device);
  SideStream side(device);
  for (int i = 0; i < options.warmup; ++i) f();
  accelerator(device).synchronize(device.index);
  graph->capture_begin(options.pool, options.mode);
  try {
    f();
  } catch (...) {
    graph->reset();
    throw;
  }
  graph->capture_end();
  return graph;
}

}  // namespace sf::cuda
