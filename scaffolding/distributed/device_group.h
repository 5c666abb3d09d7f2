// DeviceGroup: the calls of a ProcessGroup for tensors on CUDA. Each is queued on a stream of the group after what the
// current stream has, and the current stream goes on after it when the work is waited for; the host waits for nothing.
// A watchdog ends what hangs or fails. Not public.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "scaffolding/distributed/device_engine.h"
#include "scaffolding/distributed/process_group.h"

namespace sf::distributed {

class DeviceGroup {
 public:
  // options: of the group. The engine is made by the first call, which names the device: by all processes together.
  explicit DeviceGroup(const GroupOptions& options);
  ~DeviceGroup();  // when what is queued is done

  // Sums are those of the tree over the ranks (reduction.h), as on the CPU, at the price of more memory and time; else
  // NCCL's, whose order is its own. What NCCL cannot add (int16, bool, float8, bits) always takes the tree.
  std::atomic<bool> deterministic{false};

  WorkPtr all_reduce(const Tensor& t, ReduceOp op, bool async_op);
  WorkPtr reduce(const Tensor& t, int root, ReduceOp op, bool async_op);
  WorkPtr broadcast(const Tensor& t, int root, bool async_op);
  WorkPtr all_gather(const std::vector<Tensor>& into, const Tensor& t, bool async_op);
  WorkPtr all_gather_into_tensor(const Tensor& into, const Tensor& t, bool async_op);
  WorkPtr reduce_scatter_tensor(const Tensor& into, const Tensor& t, ReduceOp op, bool async_op);
  // gives, takes: bytes to and from each process, one after the other in t and into
  WorkPtr all_to_all(const Tensor& into, const Tensor& t, const std::vector<size_t>& gives,
                     const std::vector<size_t>& takes, bool async_op);
  WorkPtr gather(const Tensor& t, const std::vector<Tensor>& into, int root, bool async_op);
  WorkPtr scatter(const Tensor& into, const std::vector<Tensor>& parts, int root, bool async_op);
  WorkPtr point_to_point(const Tensor& t, int peer, bool sends);  // by a communicator of the two

  // By all processes of this group where it has an engine: `part` gets its own as a part of this one (null: no member).
  void share(DeviceGroup* part);
  bool begun() const { return main_ != nullptr; }
  void abort(const std::string& why);

 private:
  struct Lane;
  using Queue = std::function<void(DeviceEngine& engine, StreamHandle stream)>;
  Lane& lane(Device device);
  Lane& lane_to(int peer, Device device);
  WorkPtr run(const char* op, Lane& lane, const Tensors& used, const Queue& queue, std::function<void()> then,
              bool async_op);
  void check(const char* op);
  Queue with_root(const Tensor& own, const Tensors& of_all, int root, bool to_root) const;
  Tensor tree(DeviceEngine& engine, StreamHandle s, const Tensor& flat, ReduceOp op, int64_t part) const;
  bool native(DeviceEngine& engine, DType dtype, ReduceOp op) const;
  void watch();

  GroupOptions options_;
  std::unique_ptr<Lane> main_;
  std::map<int, std::unique_ptr<Lane>> pairs_;  // by the peer
  std::mutex mutex_;                            // of what follows
  std::string failure_;
  bool ends_ = false;
  std::thread watchdog_;
};

}  // namespace sf::distributed
