// ProcessGroup: processes that work on one thing together, on one machine or several, each with a rank. Bytes are moved
// by a backend: "gloo" or "mpi" between CPUs, "nccl" between GPUs, "fake" without peers.
// Owned by whoever made it. Its calls are collective: every process makes the same ones, in the same order, with
// tensors of one size and dtype; what differs is a RuntimeError everywhere that says who differs. One thread at a time.
//   ProcessGroup group({.backend = "gloo", .store = store, .rank = rank, .world_size = 4});
//   group.all_reduce(gradient, ReduceOp::AVG);                     // waits
//   auto work = group.all_reduce(gradient, ReduceOp::AVG, true);   // a thread of the group does it
//   work->wait();
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "scaffolding/core/tensor.h"
#include "scaffolding/distributed/reduction.h"
#include "scaffolding/distributed/store.h"
#include "scaffolding/distributed/work.h"

namespace sf::distributed {

struct GroupOptions {
  std::string backend = "gloo";
  std::shared_ptr<Store> store;  // not needed in a group of one
  int rank = 0, world_size = 1;
  double timeout_seconds = 1800;  // of joining, and of each call
  std::vector<int> ranks;         // of a part of the world: the ranks there of its processes; empty: 0, 1, ...
  std::string name = "world";     // the same in all its processes, another one for each group
  std::string device_backend;     // of tensors on CUDA: "nccl", or "" for none
};

using WorkPtr = std::shared_ptr<Work>;

class DeviceGroup;

class ProcessGroup {
 public:
  // Returns when all processes have joined. ValueError for a rank that cannot be, RuntimeError for a backend that is
  // not there or processes that do not come.
  explicit ProcessGroup(const GroupOptions& options);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  // Gives up what is under way and lets the others go; every later call is an error.
  void close();

  int rank() const { return options_.rank; }
  int size() const { return options_.world_size; }
  const std::string& backend() const { return options_.backend; }
  const std::string& group_name() const { return options_.name; }
  const std::vector<int>& ranks() const { return options_.ranks; }
  const std::shared_ptr<Store>& store() const { return options_.store; }
  double timeout() const { return options_.timeout_seconds; }
  void set_timeout(double seconds);

  // Roots and peers are ranks of this group. With async_op the tensors are the group's until the work has been waited
  // for. All processes end with the same bits; sums are those of a binary tree over the ranks (reduction.h).
  WorkPtr all_reduce(const Tensor& t, ReduceOp op = ReduceOp::SUM, bool async_op = false);  // in place
  // The same of several tensors of one dtype and device, which travel together from where each of them lies.
  WorkPtr all_reduce_coalesced(const std::vector<Tensor>& list, ReduceOp op = ReduceOp::SUM, bool async_op = false);
  WorkPtr reduce(const Tensor& t, int root, ReduceOp op = ReduceOp::SUM, bool async_op = false);
  WorkPtr broadcast(const Tensor& t, int root, bool async_op = false);  // into t of every process but the root
  // into[i] becomes t of rank i; sizes and dtypes are those of t
  WorkPtr all_gather(const std::vector<Tensor>& into, const Tensor& t, bool async_op = false);
  // into: size times as many numbers as t has
  WorkPtr all_gather_into_tensor(const Tensor& into, const Tensor& t, bool async_op = false);
  // t: size times as many numbers as into has
  WorkPtr reduce_scatter_tensor(const Tensor& into, const Tensor& t, ReduceOp op = ReduceOp::SUM,
                                bool async_op = false);
  // Rows of dim 0: input_splits[i] of them go to rank i, output_splits[i] come from it; empty: equal ones.
  WorkPtr all_to_all_single(const Tensor& into, const Tensor& t, const std::vector<int64_t>& output_splits = {},
                            const std::vector<int64_t>& input_splits = {}, bool async_op = false);
  WorkPtr gather(const Tensor& t, const std::vector<Tensor>& into, int root,
                 bool async_op = false);  // into: the root's
  WorkPtr scatter(const Tensor& into, const std::vector<Tensor>& parts, int root, bool async_op = false);
  WorkPtr barrier(bool async_op = false);  // returns when every process has called it
  // A barrier by the store: rank 0 names who has not come, all of them with wait_all_ranks. It leaves the group whole.
  void monitored_barrier(double timeout_seconds, bool wait_all_ranks = false);

  // From one process to another; to be waited for. They wait for no other call of the group.
  WorkPtr isend(const Tensor& t, int to, int tag = 0);
  WorkPtr irecv(const Tensor& t, int from, int tag = 0);

  // Of tensors on CUDA, whose calls are queued on a stream: the host does not wait, and nobody checks that all make the
  // same one. deterministic: sums are those of the tree there too, else NCCL's.
  void set_deterministic(bool on);
  bool device_begun() const;  // a call with a tensor on CUDA has been, by which the processes' GPUs know each other
  // By all processes of this group, where device_begun: `part`, a group of some of them, gets its share of that; null
  // in a process that is not in it.
  void share_device(ProcessGroup* part);

  struct Counts {
    int64_t calls = 0, bytes = 0;  // of tensors that were given to be sent or reduced
  };
  Counts counts() const;

 private:
  struct Call;
  struct State;
  struct Body;
  WorkPtr run(const Call& call, Body body, bool async_op);
  WorkPtr all_reduce_here(const Call& call, const std::vector<Tensor>& list, ReduceOp op, bool async_op);
  DeviceGroup* device(const char* op, const Tensor& t);
  Tensor dense(const char* op, const Tensor& t) const;
  void check_rank(const char* op, const char* what, int rank) const;
  WorkPtr point_to_point(const char* op, const Tensor& t, int peer, int tag, bool sends);

  GroupOptions options_;
  std::unique_ptr<State> state_;
};

}  // namespace sf::distributed
