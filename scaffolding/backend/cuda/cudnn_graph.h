// A cuDNN operation graph: tensors by number, ops between them, and plans that run it. Descriptors are owned and
// destroyed here; nothing is linked. Building is for one thread; a finished Plan may be run by any,
// one at a time (execution_lock).
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "scaffolding/backend/cuda/cudnn.h"
#include "scaffolding/core/dtype.h"

namespace sf::cuda::cudnn {

DataType data_type(DType t);  // of a floating dtype or bool

// One of cuDNN's descriptors. Setters throw Failure.
class Descriptor {
 public:
  explicit Descriptor(Kind kind);
  ~Descriptor();
  Descriptor(Descriptor&& o) noexcept : raw_(std::exchange(o.raw_, nullptr)), print_(o.print_) {}
  Descriptor& operator=(Descriptor&& o) noexcept {
    std::swap(raw_, o.raw_);
    std::swap(print_, o.print_);
    return *this;
  }

  void set(Attribute a, Type type, int64_t count, const void* values);
  void set(Attribute a, std::span<const int64_t> values) { set(a, Type::Int64, int64_t(values.size()), values.data()); }
  void set(Attribute a, int64_t value) { set(a, Type::Int64, 1, &value); }
  void set(Attribute a, bool value) { set(a, Type::Boolean, 1, &value); }
  void set(Attribute a, float value) { set(a, Type::Float, 1, &value); }
  void set(Attribute a, DataType value) { set(a, Type::DataType, 1, &value); }
  void set(Attribute a, const Descriptor& value);
  Status try_finalize() { return api().finalize(raw_); }
  void finalize(const char* what) { check(try_finalize(), what); }
  int64_t integer(Attribute a) const;
  RawDescriptor raw() const { return raw_; }
  // The same for descriptors that the same was set on, in any process. 0 for a variant pack, which each run makes.
  uint64_t print() const { return print_; }

 private:
  void note(Attribute a, const void* bytes, size_t size);
  RawDescriptor raw_ = nullptr;
  uint64_t print_;
};

// Where plans are to run: on a device, or, as in a test without one,
// on the GPU that a description of cuDNN's (9.8 and later) names.
struct Target {
  Handle handle = nullptr;
  const Descriptor* properties = nullptr;
};

using Id = int64_t;  // of a tensor in a graph, from 1
using Dims = std::vector<int64_t>;

class Graph {
 public:
  // in memory, which each run names
  Id tensor(DataType type, const Dims& sizes, const Dims& strides, int64_t alignment);
  Id hidden(DataType type, const Dims& sizes, const Dims& strides);  // between two ops
  Id number(float value, size_t dims);                               // one element, fixed here

  struct Window {
    Dims padding, stride, dilation;  // one number for each spatial dimension
  };
  enum class Convolution { Forward, Data, Filter };
  // x[N, C, ...], w[O, C / groups, ...], y[N, O, ...]: the one that is computed is y, x or w. Sums in float32.
  void convolve(Convolution what, Id x, Id w, Id y, const Window& window);
  void pointwise(Pointwise f, Id y, Id x, Id b = 0, Id t = 0);
  void index(Id y, Id x, int64_t axis);  // y = the position along an axis; x gives the shape
  void compare(Pointwise f, Id y, Id a, Id b);
  void reduce(ReduceOp f, Id y, Id x);  // over the dimensions in which y has size 1
  void matmul(Id c, Id a, Id b);        // of the last two dimensions
  void reshape(Id y, Id x);             // the same elements under other sizes and strides
  void finalize(const Target& target);  // Failure where cuDNN does not know such a graph

  const Descriptor& descriptor() const { return *graph_; }
  uint64_t print() const;  // of its operations with all that they name
  const std::vector<std::pair<Id, float>>& numbers() const { return numbers_; }

 private:
  Id add(DataType type, const Dims& sizes, const Dims& strides, int64_t alignment, bool is_virtual, bool by_value);
  const Descriptor& at(Id id) const { return tensors_[size_t(id - 1)]; }
  void pointwise(Pointwise f, DataType precision, int64_t axis, Id y, Id x, Id b, Id t);
  std::vector<Descriptor> tensors_, parts_, operations_;
  std::vector<std::pair<Id, float>> numbers_;
  std::unique_ptr<Descriptor> graph_;
};

// An engine of cuDNN with its settings: enough to make the same plan again.
struct Choice {
  int64_t engine = -1;
  std::vector<std::pair<int, int64_t>> knobs;  // type, value
};
// Which engines may be taken.
struct Wishes {
  bool deterministic = false;
  bool exact_float32 = false;  // neither TF32 nor smaller types within
};

class Plan {
 public:
  // Failure where the engine cannot do it.
  Plan(std::shared_ptr<const Graph> graph, const Target& target, Descriptor config);
  Plan(std::shared_ptr<const Graph> graph, const Target& target, const Choice& choice);
  // From another plan's text for the same graph and GPU. Nothing is compiled; it has no choice().
  Plan(std::shared_ptr<const Graph> graph, const Target& target, const std::string& text);

  Choice choice() const;
  // As cuDNN writes it, with the kernels that were compiled for it; empty for an engine whose plans it does not write.
  std::string text() const;
  size_t workspace() const { return workspace_; }
  // On the handle's stream. Each Id of Graph::tensor with its memory.
  void run(Handle handle, std::span<const std::pair<Id, void*>> memory, void* workspace) const;

 private:
  void finalize(const Target& target);
  std::shared_ptr<const Graph> graph_;
  std::optional<Descriptor> config_;
  Descriptor plan_;
  size_t workspace_ = 0;
};

// Configurations that cuDNN's heuristics propose for a graph, the most promising first, that fulfil the wishes.
std::vector<Descriptor> proposals(const Graph& graph, const Target& target, const Wishes& wishes);

}  // namespace sf::cuda::cudnn
