// What ProcessGroup keeps, for the files that make its calls (process_group.cpp, collectives.cpp). Not public.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "scaffolding/distributed/device_group.h"
#include "scaffolding/distributed/engine.h"
#include "scaffolding/distributed/process_group.h"
#include "scaffolding/distributed/tree_reduction.h"

namespace sf::distributed {

// What a call does; tag is its number. It ends with the deadline.
struct ProcessGroup::Body : std::function<void(uint32_t tag, Deadline deadline)> {
  using function::function;
};

// What the processes show each other before a call: it must be the same in all.
struct ProcessGroup::Call {
  char name[32] = {};
  int64_t count = 0, dtype = -1, root = -1, op = -1;
  int64_t tensors = 1;
  uint64_t sizes = 0;  // a hash of those of several tensors

  Call() = default;
  explicit Call(const char* call) { std::strncpy(name, call, sizeof name - 1); }
  Call(const char* call, const Tensor& t, int root_ = -1) : Call(call) {
    count = t.numel(), dtype = int64_t(t.dtype()), root = root_;
  }
  Call(const char* call, const Tensor& t, ReduceOp op_, int root_ = -1) : Call(call, t, root_) { op = int64_t(op_); }
  Call(const char* call, const std::vector<Tensor>& list, ReduceOp op_) : Call(call, list[0], op_) {
    tensors = int64_t(list.size()), count = 0;
    for (const Tensor& t : list) {
      count += t.numel();
      sizes = (sizes ^ uint64_t(t.numel())) * 0x9E3779B97F4A7C15;
    }
  }
  bool same(const Call& o) const { return !std::memcmp(this, &o, sizeof o); }
  std::string text() const {
    Message m;
    m << name;
    if (dtype >= 0 && dtype < kNumDTypes) m << " of " << count << " " << DType(dtype);
    if (tensors != 1) m << " in " << tensors << " tensors, whose sizes have the hash " << sizes % 1000000;
    if (op >= 0 && op <= int64_t(ReduceOp::BXOR)) m << " by ReduceOp." << distributed::name(ReduceOp(op));
    if (root >= 0) m << " with root " << root;
    return m.str();
  }
};

struct ProcessGroup::State {
  std::unique_ptr<Engine> engine;       // absent in a group of one
  std::unique_ptr<DeviceGroup> device;  // of tensors on CUDA, where there is a backend for them
  ReductionMemory memory;
  std::atomic<int64_t> calls{0}, bytes{0};
  uint32_t sequence = 0;  // of the calls; they are the same everywhere
  int64_t barriers = 0;   // monitored ones

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> waiting;
  bool busy = false, ends = false;
  std::string failure;  // of the group, after which it does nothing more
  std::thread thread;

  ~State() { close(); }
  void close();
  // In the order of the calls: here where nothing is under way, else by the thread.
  void execute(std::function<void()> job, bool async_op);
  void work();
};

}  // namespace sf::distributed
