// DeviceEngine: what moves and adds numbers between the GPUs of a group's processes: a backend for tensors on CUDA.
// Every call is queued on a stream and returns; all processes make the same ones in the same order. It stands in a
// library of its own, libscaffolding_nccl.so (*.nccl.cpp), opened when a tensor on CUDA is first given to a group. Not
// public.
//
// One thread at a time, apart from failure() and abort(). Errors are RuntimeError.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/core/dtype.h"
#include "scaffolding/distributed/deadline.h"
#include "scaffolding/distributed/reduction.h"
#include "scaffolding/distributed/store.h"

namespace sf::distributed {

struct DeviceEngineOptions {
  int rank = 0, size = 1, device = 0;
  std::shared_ptr<Store> store;  // below a prefix of this engine alone
  Deadline deadline;             // of joining
};

// What goes to a process and what comes from it, in bytes of device memory; either may be empty.
struct Exchange {
  int peer;
  const void* send;
  size_t send_bytes;
  void* receive;
  size_t receive_bytes;
};

class DeviceEngine {
 public:
  virtual ~DeviceEngine() = default;
  virtual bool reduces(DType dtype, ReduceOp op) const = 0;  // by itself, in an order of its own
  virtual void all_reduce(const void* in, void* out, size_t count, DType dtype, ReduceOp op, StreamHandle s) = 0;
  virtual void reduce(const void* in, void* out, size_t count, DType dtype, ReduceOp op, int root, StreamHandle s) = 0;
  // in: size * count numbers; out: the sum of part `rank`
  virtual void reduce_scatter(const void* in, void* out, size_t count, DType dtype, ReduceOp op, StreamHandle s) = 0;
  virtual void broadcast(void* data, size_t bytes, int root, StreamHandle s) = 0;
  virtual void all_gather(const void* in, void* out, size_t bytes, StreamHandle s) = 0;  // out: size * bytes
  virtual void exchange(const std::vector<Exchange>& parts, StreamHandle s) = 0;         // all of them at once
  // By everyone of this one: an engine of those that say so, by their ranks here; null for the others.
  virtual std::unique_ptr<DeviceEngine> split(bool takes_part, Deadline deadline) = 0;

  virtual std::string failure() = 0;  // what has gone wrong since, "" for nothing; from any thread
  virtual void abort() = 0;           // what is queued ends, and every later call throws; from any thread
};

struct DeviceEngineLibrary {
  const char* version;  // of Scaffolding: a library of another one is refused
  std::unique_ptr<DeviceEngine> (*make)(const DeviceEngineOptions& options);
  const char* (*why_not)();  // null where it can be used
};

// Of the backend "nccl". RuntimeError saying what to install where it, or NCCL, is missing.
const DeviceEngineLibrary& nccl_library();
bool nccl_available(std::string* why_not = nullptr);

}  // namespace sf::distributed

extern "C" const sf::distributed::DeviceEngineLibrary* scaffolding_device_engine_library();
