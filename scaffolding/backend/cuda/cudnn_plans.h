// Plans of cuDNN by what they are for: kept in memory by key, and on disk (kernel_file.h) which engine was chosen and
// cuDNN's text of the plan, by key, graph, GPU, driver and cuDNN's version, so that a later process asks no heuristics,
// times nothing and compiles nothing. Thread-safe. A plan is shared: it outlives its place in the table.
#pragma once
#include <array>
#include <functional>
#include <memory>

#include "scaffolding/backend/cuda/cudnn_graph.h"
#include "scaffolding/core/tensor_view.h"

namespace sf::cuda::cudnn {

// Everything that a graph depends on, as numbers in an order of the op's own. find_plan adds what CudnnSettings say.
class PlanKey {
 public:
  explicit PlanKey(const char* op) : op_(op) {}  // a literal of one place in the program
  void add(int64_t x) { numbers_.at(count_++) = x; }
  void add(const TensorView& t);  // dtype, sizes, alignment; a mark for an absent one
  void add_strides(const TensorView& t);
  const char* op() const { return op_; }
  std::string text() const;
  bool operator<(const PlanKey& o) const;

 private:
  const char* op_;
  size_t count_ = 0;
  std::array<int64_t, 96> numbers_{};
};

// Bytes to which a tensor's first element is aligned: at most 16, which is the most that kernels profit from.
int64_t alignment(const TensorView& t);

struct PlannedGraph;
using PlanEntry = std::shared_ptr<PlannedGraph>;

// Null where cuDNN has no plan. `build` makes the graph, not yet finalized; it is called when the key is new.
PlanEntry find_plan(int device, PlanKey key, const Wishes& wishes, const std::function<Graph()>& build);
// On the device's current stream, with a workspace of the allocator. With CudnnSettings::benchmark the first run of an
// entry times its rivals, on the same memory: what a graph writes must not be what it reads.
void run_plan(int device, const PlanEntry& entry, std::span<const std::pair<Id, void*>> memory);

}  // namespace sf::cuda::cudnn
