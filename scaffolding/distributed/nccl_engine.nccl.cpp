// The backend "nccl": numbers between GPUs by NCCL, which is opened at run time. Communicators do not block: joining,
// and what NCCL does behind a call, is waited for up to a deadline, and whatever hangs can be aborted.
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "scaffolding/backend/library.h"
#include "scaffolding/core/error.h"
#include "scaffolding/distributed/device_engine.h"
#include "scaffolding/distributed/nccl_api.h"

namespace sf::distributed {

namespace {

using namespace nccl;

Functions load() {
  cuda::Library lib("libnccl.so.2", reinterpret_cast<const void*>(&load), "nvidia-nccl-cu13");
  Functions f{};
  lib.find(f.get_version, "ncclGetVersion");
  int version = 0;
  f.get_version(&version);
  SF_CHECK_AS(RuntimeError, version >= 21800, "nccl: needs NCCL 2.18 or later, which can split communicators, got ",
              version / 10000, ".", version / 100 % 100);
  lib.find(f.get_unique_id, "ncclGetUniqueId");
  lib.find(f.comm_init_rank_config, "ncclCommInitRankConfig");
  lib.find(f.comm_split, "ncclCommSplit");
  lib.find(f.comm_abort, "ncclCommAbort");
  lib.find(f.comm_get_async_error, "ncclCommGetAsyncError");
  lib.find(f.get_error_string, "ncclGetErrorString");
  lib.find(f.get_last_error, "ncclGetLastError");
  lib.find(f.all_reduce, "ncclAllReduce");
  lib.find(f.reduce, "ncclReduce");
  lib.find(f.reduce_scatter, "ncclReduceScatter");
  lib.find(f.broadcast, "ncclBroadcast");
  lib.find(f.all_gather, "ncclAllGather");
  lib.find(f.send, "ncclSend");
  lib.find(f.recv, "ncclRecv");
  lib.find(f.group_start, "ncclGroupStart");
  lib.find(f.group_end, "ncclGroupEnd");
  return f;
}

const Functions& api() {
  static const Functions functions = load();
  return functions;
}

std::optional<Type> type_of(DType dtype) {
  switch (dtype) {
    case DType::Int8: return Type::Int8;
    case DType::UInt8: return Type::UInt8;
    case DType::Int32: return Type::Int32;
    case DType::Int64: return Type::Int64;
    case DType::Float16: return Type::Half;
    case DType::Float32: return Type::Float;
    case DType::Float64: return Type::Double;
    case DType::BFloat16: return Type::BFloat;
    default: return {};
  }
}

std::optional<Op> op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::SUM: return Op::Sum;
    case ReduceOp::AVG: return Op::Avg;
    case ReduceOp::PRODUCT: return Op::Prod;
    case ReduceOp::MIN: return Op::Min;
    case ReduceOp::MAX: return Op::Max;
    default: return {};
  }
}

Config config() {
  Config c;
  c.blocking = 0;
  return c;
}

class NcclEngine final : public DeviceEngine {
 public:
  NcclEngine(Comm comm, int rank, Deadline deadline) : comm_(comm), rank_(rank), call_seconds_(seconds_to(deadline)) {
    try {
      settle("joining the processes", deadline);
    } catch (...) {
      abort();
      throw;
    }
  }
  // To destroy a communicator is collective, and the others may be gone.
  ~NcclEngine() override { abort(); }

  bool reduces(DType dtype, ReduceOp op) const override { return type_of(dtype) && op_of(op); }

  void all_reduce(const void* in, void* out, size_t n, DType dtype, ReduceOp op, StreamHandle s) override {
    call("all_reduce", [&] { return api().all_reduce(in, out, n, *type_of(dtype), *op_of(op), comm_, s); });
  }
  void reduce(const void* in, void* out, size_t n, DType dtype, ReduceOp op, int root, StreamHandle s) override {
    call("reduce", [&] { return api().reduce(in, out, n, *type_of(dtype), *op_of(op), root, comm_, s); });
  }
  void reduce_scatter(const void* in, void* out, size_t n, DType dtype, ReduceOp op, StreamHandle s) override {
    call("reduce_scatter", [&] { return api().reduce_scatter(in, out, n, *type_of(dtype), *op_of(op), comm_, s); });
  }
  void broadcast(void* data, size_t bytes, int root, StreamHandle s) override {
    call("broadcast", [&] { return api().broadcast(data, data, bytes, Type::UInt8, root, comm_, s); });
  }
  void all_gather(const void* in, void* out, size_t bytes, StreamHandle s) override {
    call("all_gather", [&] { return api().all_gather(in, out, bytes, Type::UInt8, comm_, s); });
  }
  void exchange(const std::vector<Exchange>& parts, StreamHandle s) override {
    call("exchange", [&] {
      Result first = api().group_start();
      if (first != Result::Success) return first;
      auto keep = [&](Result r) {
        if (first == Result::Success && r != Result::InProgress) first = r;
      };
      for (auto& p : parts) {
        if (p.send_bytes > 0) keep(api().send(p.send, p.send_bytes, Type::UInt8, p.peer, comm_, s));
        if (p.receive_bytes > 0) keep(api().recv(p.receive, p.receive_bytes, Type::UInt8, p.peer, comm_, s));
      }
      Result end = api().group_end();  // of a group in which a call has failed too
      return first == Result::Success ? end : first;
    });
  }
  std::unique_ptr<DeviceEngine> split(bool takes_part, Deadline deadline) override {
    Comm made = nullptr;
    Config c = config();
    call("split", [&] { return api().comm_split(comm_, takes_part ? 0 : kNoColor, rank_, &made, &c); });
    if (!made) return nullptr;
    return std::make_unique<NcclEngine>(made, 0, deadline);
  }

  std::string failure() override {
    std::lock_guard lock(mutex_);
    if (!comm_) return "the communicator was aborted";
    Result state = Result::Success;
    Result asked = api().comm_get_async_error(comm_, &state);
    if (asked != Result::Success) state = asked;
    return state == Result::Success || state == Result::InProgress ? "" : text_of(state);
  }
  void abort() override {
    std::lock_guard lock(mutex_);
    if (Comm comm = std::exchange(comm_, nullptr)) api().comm_abort(comm);
  }

 private:
  std::string text_of(Result r) {
    const char* more = comm_ ? api().get_last_error(comm_) : nullptr;
    return std::string("NCCL: ") + api().get_error_string(r) + (more && *more ? std::string(": ") + more : "");
  }
  template <class F> void call(const char* what, const F& f) {
    {
      std::lock_guard lock(mutex_);
      SF_CHECK_AS(RuntimeError, comm_, what, ": the communicator was aborted");
      Result r = f();
      SF_CHECK_AS(RuntimeError, r == Result::Success || r == Result::InProgress, what, ": ", text_of(r));
      if (r == Result::Success) return;
    }
    settle(what, in_seconds(call_seconds_));
  }
  // Until NCCL has done what it does behind a call that does not block.
  void settle(const char* what, Deadline deadline) {
    for (int turns = 0;; ++turns) {
      {
        std::lock_guard lock(mutex_);
        SF_CHECK_AS(RuntimeError, comm_, what, ": the communicator was aborted");
        Result state = Result::Success;
        Result asked = api().comm_get_async_error(comm_, &state);
        SF_CHECK_AS(RuntimeError, asked == Result::Success, what, ": ", text_of(asked));
        if (state == Result::Success) return;
        SF_CHECK_AS(RuntimeError, state == Result::InProgress, what, ": ", text_of(state));
      }
      SF_CHECK_AS(RuntimeError, std::chrono::steady_clock::now() < deadline, what,
                  ": NCCL has not done it before the timeout; does a process not come?");
      if (turns < 100) std::this_thread::yield();
      else std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  std::mutex mutex_;  // of the communicator, which the watchdog may abort
  Comm comm_;
  int rank_;
  double call_seconds_;
};

// Rank 0 makes the id, and the store tells it to the others.
std::unique_ptr<DeviceEngine> make(const DeviceEngineOptions& o) {
  UniqueId id{};
  if (o.rank == 0) {
    Result r = api().get_unique_id(&id);
    SF_CHECK_AS(RuntimeError, r == Result::Success, "nccl: cannot make an id: ", api().get_error_string(r));
    o.store->set("id", std::string(id.internal, sizeof id.internal));
  } else {
    o.store->wait({"id"}, std::max(seconds_to(o.deadline), 1e-3));
    std::string text = o.store->get("id");
    SF_CHECK_AS(RuntimeError, text.size() == sizeof id.internal, "nccl: the store has an id of ", text.size(),
                " bytes, not ", sizeof id.internal);
    std::memcpy(id.internal, text.data(), text.size());
  }
  Comm comm = nullptr;
  Config c = config();
  Result r = api().comm_init_rank_config(&comm, o.size, id, o.rank, &c);
  SF_CHECK_AS(RuntimeError, comm && (r == Result::Success || r == Result::InProgress),
              "nccl: cannot join: ", api().get_error_string(r));
  return std::make_unique<NcclEngine>(comm, o.rank, o.deadline);
}

const char* why_not() {
  static const std::string why = [] {
    try {
      api();
      return std::string();
    } catch (const std::exception& e) {
      return std::string(e.what());
    }
  }();
  return why.empty() ? nullptr : why.c_str();
}

}  // namespace
}  // namespace sf::distributed

extern "C" const sf::distributed::DeviceEngineLibrary* scaffolding_device_engine_library() {
  static const sf::distributed::DeviceEngineLibrary library{SF_VERSION, sf::distributed::make,
                                                            sf::distributed::why_not};
  return &library;
}
