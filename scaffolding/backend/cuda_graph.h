// CudaGraph: work of one stream, captured once and run again as a whole: no Python, no shape checks,
// no launches one by one.
// What is captured does not run. A replay repeats it on the same memory: inputs are written into the tensors that it
// read, results are in the tensors that it returned. Its memory comes from a pool that nobody else uses while a graph
// of it lives. Random numbers go on from replay to replay as if the ops were called. What needs the host (item(),
// copies from and to it) is refused while capturing.
// One thread captures a graph; replays of one graph must not overlap, which those on one stream do not.
#pragma once
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "scaffolding/backend/accelerator.h"

namespace sf::cuda {

using GraphPool = uint64_t;  // 0: a new one
GraphPool new_graph_pool();

class CudaGraph {
 public:
  explicit CudaGraph(Device device = Device(Device::CUDA, 0));
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // From here the current stream's work is captured, which must not be the default stream's. Graphs that share a pool
  // are replayed in the order of their capture and never at once: each may overwrite what the ones before it returned.
  void capture_begin(GraphPool pool = 0, CaptureMode mode = CaptureMode::Global);
  // on the same thread and stream. RuntimeError when something broke the capture; the graph is empty then
  void capture_end();
  void replay();  // on the current stream, which it does not wait for. RuntimeError for a graph without a capture
  void reset();   // forgets the capture, gives the memory back that no tensor uses; waits for the device

  Device device() const { return device_; }
  GraphPool pool() const { return pool_; }  // 0 before a capture
  bool captured() const { return graph_ != nullptr; }
  size_t nodes() const { return captured() ? nodes_ : 0; }  // kernels, copies and fills, and events between streams

  static CudaGraph* recording();  // the one that the calling thread captures now, or null

  // ---- for kernels, while it is captured
  // Two words of device memory that hold before each replay what next() returns then; the same for the same owner.
  const uint64_t* words_before_replay(const void* owner, const std::function<std::pair<uint64_t, uint64_t>()>& next);
  void keep_alive(std::shared_ptr<const void> owner);  // as long as the capture

  // ---- for what is on the host, while it is captured
  // Called before each replay, in the order of registration: writes what the replay reads (a learning rate that a
  // schedule changed), or throws where the capture is of no use any more.
  void before_replay(std::function<void()> prepare);

 private:
  struct Words {
    const void* owner;
    std::function<std::pair<uint64_t, uint64_t>()> next;
  };
  static constexpr size_t kMostWords = 32;  // owners of words: generators that one graph draws from
  uint64_t* words_at(size_t i) const { return static_cast<uint64_t*>(memory_) + 2 * i; }

  Device device_;
  GraphPool pool_ = 0;
  GraphHandle graph_ = nullptr;
  size_t nodes_ = 0;
  StreamHandle stream_ = nullptr;  // while capturing
  bool joined_ = false;            // the pool counts this graph
  void* memory_ = nullptr;         // of the words
  std::vector<Words> words_;
  std::vector<std::function<void()>> prepare_;
  std::vector<std::shared_ptr<const void>> kept_;
};

// RuntimeError while the calling thread captures: CUDA would refuse too,
// but break the capture and not say what was asked.
void refuse_while_capturing(const char* op, const char* what);

// A stream of its own, current on the calling thread for as long as this lives; its work runs after that of the stream
// before.
class SideStream {
 public:
  explicit SideStream(Device device);
  ~SideStream();  // waits for it
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

 private:
  Accelerator& gpu_;
  int index_;
  StreamHandle before_, stream_;
};

struct CaptureOptions {
  int warmup = 1;  // calls of f before the one that is captured: libraries are loaded, plans made, tables copied
  GraphPool pool = 0;
  CaptureMode mode = CaptureMode::Global;
};

// Captures f on a stream of its own. What f assigns to tensors outside of it are the graph's results:
//   auto step = cuda::capture([&] { noise = unet(latents, t, text); });
//   latents.copy_(next); step->replay();
std::unique_ptr<CudaGraph> capture(const std::function<void()>& f, const CaptureOptions& options = {},
                                   Device device = Device(Device::CUDA, 0));

}  // namespace sf::cuda
