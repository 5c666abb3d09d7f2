// ProcessGroup: processes that work on one thing together, on one machine or several, each with a rank,
// joined by TCP in a ring.
// Owned by whoever made it. Its calls are collective: every process makes the same ones, in the same order, with
// tensors of one size and dtype; what differs is a RuntimeError in the processes that see it. One thread at a time.
//   ProcessGroup group({.address = "10.0.0.1", .port = 29500, .rank = rank, .world_size = 4});
//   group.all_reduce(gradient, Reduction::Mean);
#pragma once
#include <memory>
#include <vector>

#include "scaffolding/core/tensor.h"

namespace sf::distributed {

enum class Reduction { Sum, Mean, Product, Min, Max };

struct GroupOptions {
  std::string address = "127.0.0.1";  // of the process of rank 0, which listens there until all have come
  int port = 29500;
  int rank = 0, world_size = 1;
  double timeout_seconds = 1800;  // of joining, and of each call
};

class ProcessGroup {
 public:
  // Returns when all processes have joined. ValueError for a rank that cannot be or that two processes have.
  explicit ProcessGroup(const GroupOptions& options);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.world_size; }

  // In place; afterwards all processes hold the same bits. Numbers of 16 bits travel and are added as float32.
  void all_reduce(const Tensor& t, Reduction how = Reduction::Sum);
  void broadcast(const Tensor& t, int source);  // into t of every process but source's
  // into[i] becomes t of rank i; sizes and dtypes are those of t
  void all_gather(const std::vector<Tensor>& into, const Tensor& t);
  void barrier();  // returns when every process has called it

 private:
  struct Ring;
  GroupOptions options_;
  std::unique_ptr<Ring> ring_;  // absent in a group of one
};

}  // namespace sf::distributed
