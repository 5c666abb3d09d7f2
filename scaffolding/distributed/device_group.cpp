#include "scaffolding/distributed/device_group.h"

#include <algorithm>
#include <chrono>
#include <deque>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/ops/ops.h"

namespace sf::distributed {

namespace {

// A place in a stream.
class Event {
 public:
  Event(Accelerator& gpu, int index) : gpu_(gpu), index_(index), handle_(gpu.make_event(index, false)) {}
  ~Event() { gpu_.destroy_event(index_, handle_); }
  Event(const Event&) = delete;
  void record(StreamHandle s) { gpu_.record_event(index_, handle_, s); }
  void hold_back(StreamHandle s) { gpu_.stream_wait(index_, s, handle_); }

 private:
  Accelerator& gpu_;
  int index_;
  EventHandle handle_;
};

class CurrentStream {
 public:
  CurrentStream(Accelerator& gpu, int index, StreamHandle s)
      : gpu_(gpu), index_(index), before_(gpu.current_stream(index)) {
    gpu_.set_current_stream(index, s);
  }
  ~CurrentStream() { gpu_.set_current_stream(index_, before_); }
  CurrentStream(const CurrentStream&) = delete;

 private:
  Accelerator& gpu_;
  int index_;
  StreamHandle before_;
};

Tensor flat_of(const Tensor& t) { return contiguous(t.detach()).reshape({-1}); }

std::function<void()> back(const Tensor& t, const Tensor& values) {
  if (t.data_ptr() == values.data_ptr()) return [] {};
  return [t, values] {
    autograd::NoGrad no_grad;
    t.detach().copy_(values.reshape(t.shape()));
  };
}

Tensor both(const Tensor& a, const Tensor& b, ReduceOp op) {
  switch (op) {
    case ReduceOp::PRODUCT: return a * b;
    case ReduceOp::MIN: return minimum(a, b);
    case ReduceOp::MAX: return maximum(a, b);
    case ReduceOp::BAND: return bitwise_and(a, b);
    case ReduceOp::BOR: return bitwise_or(a, b);
    case ReduceOp::BXOR: return bitwise_xor(a, b);
    default: return a + b;
  }
}

}  // namespace

// An engine with its stream, and what of it the host has not seen end.
struct DeviceGroup::Lane {
  Accelerator& gpu;
  int index;
  StreamHandle stream;
  std::unique_ptr<DeviceEngine> engine;
  int64_t queued = 0;
  // In pinned memory, written by the stream: how many calls have ended. To ask an event would break captures.
  std::atomic<int64_t>* ended;
  struct Watched {
    int64_t number;
    Deadline deadline;
    std::string text;
  };
  std::deque<Watched> watched;  // under the group's mutex

  Lane(Device device, std::unique_ptr<DeviceEngine> e)
      : gpu(accelerator(device)), index(device.index), stream(gpu.make_stream(index)), engine(std::move(e)) {
    ended = new (gpu.allocate_pinned(sizeof *ended)) std::atomic<int64_t>(0);
  }
  ~Lane() {
    engine->abort();
    gpu.destroy_stream(index, stream);
    gpu.release_pinned(ended);
  }
  // The stream says that it has come so far.
  void mark(int64_t number) {
    Tensor n = full({1}, double(number), kInt64, Device(Device::CUDA, index));
    gpu.copy_async(ended, Device::CPU, n.data_ptr(), Device(Device::CUDA, index), sizeof *ended);
  }
};

DeviceGroup::DeviceGroup(const GroupOptions& options) : options_(options) {
  if (options_.world_size == 1) options_.store = std::make_shared<HashStore>();
}

DeviceGroup::~DeviceGroup() {
  auto finish = [](Lane& lane) {  // or the watchdog ends it
    try {
      lane.gpu.synchronize_stream(lane.index, lane.stream);
    } catch (const std::exception&) {}  // who waits for the device hears of it
  };
  if (main_) finish(*main_);
  for (auto& [peer, lane] : pairs_) finish(*lane);
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  if (watchdog_.joinable()) watchdog_.join();
}

void DeviceGroup::abort(const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = why;
  }
  if (main_) main_->engine->abort();
  for (auto& [peer, lane] : pairs_) lane->engine->abort();
}

void DeviceGroup::check(const char* op) {
  std::lock_guard lock(mutex_);
  SF_CHECK_AS(RuntimeError, failure_.empty(), op, ": this group has failed before: ", failure_);
}

DeviceGroup::Lane& DeviceGroup::lane(Device device) {
  if (!main_) {
    auto store = std::make_shared<PrefixStore>("nccl", options_.store);
    main_ = std::make_unique<Lane>(device, nccl_library().make({.rank = options_.rank,
                                                                .size = options_.world_size,
                                                                .device = device.index,
                                                                .store = store,
                                                                .deadline = in_seconds(options_.timeout_seconds)}));
  }
  SF_CHECK(main_->index == device.index, "nccl: a group works on one GPU in each process, here cuda:", main_->index,
           ", got a tensor on ", device);
  return *main_;
}

DeviceGroup::Lane& DeviceGroup::lane_to(int peer, Device device) {
  if (auto known = pairs_.find(peer); known != pairs_.end()) return *known->second;
  const int low = std::min(peer, options_.rank), high = std::max(peer, options_.rank);
  std::string name = "nccl/" + std::to_string(low) + "-" + std::to_string(high);
  auto made =
      std::make_unique<Lane>(device, nccl_library().make({.rank = options_.rank == low ? 0 : 1,
                                                          .size = 2,
                                                          .device = device.index,
                                                          .store = std::make_shared<PrefixStore>(name, options_.store),
                                                          .deadline = in_seconds(options_.timeout_seconds)}));
  std::lock_guard lock(mutex_);  // the watchdog looks through them
  return *(pairs_[peer] = std::move(made));
}

void DeviceGroup::share(DeviceGroup* part) {
  if (!main_) return;
  check("new_group");
  main_->gpu.synchronize_stream(main_->index, main_->stream);  // NCCL splits what has nothing to do
  Device device(Device::CUDA, main_->index);
  auto engine = main_->engine->split(part != nullptr, in_seconds(options_.timeout_seconds));
  if (part && engine) part->main_ = std::make_unique<Lane>(device, std::move(engine));
}

WorkPtr DeviceGroup::run(const char* op, Lane& lane, const Tensors& used, const Queue& queue,
                         std::function<void()> then, bool async_op) {
  check(op);
  Accelerator& gpu = lane.gpu;
  int index = lane.index;
  bool captured = cuda::CudaGraph::recording() != nullptr;  // a replay is not watched
  {
    Event before(gpu, index);
    before.record(gpu.current_stream(index));
    before.hold_back(lane.stream);
  }
  auto after = std::make_shared<Event>(gpu, index);
  try {
    CurrentStream current(gpu, index, lane.stream);
    autograd::NoGrad no_grad;
    if (!captured) {
      std::lock_guard lock(mutex_);
      lane.watched.push_back({++lane.queued, in_seconds(options_.timeout_seconds), std::string(op)});
      if (!watchdog_.joinable()) watchdog_ = std::thread([this] { watch(); });
    }
    queue(*lane.engine, lane.stream);
    if (!captured) lane.mark(lane.queued);
    after->record(lane.stream);
  } catch (const std::exception& e) {
    std::string text = std::string(op) + ": " + e.what() + " (group '" + options_.name + "')";
    abort(text);
    fail<RuntimeError>(text);
  }
  for (auto& t : used)
    if (t.nbytes() > 0) gpu.record_stream(index, t.storage()->data, lane.stream);
  auto work = std::make_shared<Work>([this, op = std::string(op), &gpu, index, after, then, used] {
    after->hold_back(gpu.current_stream(index));
    then();
    check(op.c_str());
  });
  if (!async_op) work->wait();
  return work;
}

// What hangs beyond the timeout, and what NCCL says has failed, is aborted: the stream goes on, and every later call of
// the group says why.
void DeviceGroup::watch() {
  for (;;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::string why;
    {
      std::lock_guard lock(mutex_);
      if (ends_) return;
      std::vector<Lane*> lanes;
      if (main_) lanes.push_back(main_.get());
      for (auto& [peer, lane] : pairs_) lanes.push_back(lane.get());
      for (Lane* lane : lanes) {
        auto& watched = lane->watched;
        while (!watched.empty() && watched.front().number <= lane->ended->load()) watched.pop_front();
        if (watched.empty() || !failure_.empty()) continue;
        std::string text = lane->engine->failure();
        if (!text.empty()) why = watched.front().text + ": " + text;
        else if (std::chrono::steady_clock::now() > watched.front().deadline)
          why = watched.front().text + ": not done within " + std::to_string(options_.timeout_seconds) +
                " s; a process has not come, or hangs";
      }
    }
    if (!why.empty()) abort(why + " (group '" + options_.name + "')");
  }
}

bool DeviceGroup::native(DeviceEngine& engine, DType dtype, ReduceOp op) const {
  return !deterministic && engine.reduces(dtype, op);
}

// The sum of this process's part of everyone's flat numbers, [part], in the order of reduction.h: the parts come by an
// exchange and are added here.
Tensor DeviceGroup::tree(DeviceEngine& engine, StreamHandle s, const Tensor& flat, ReduceOp op, int64_t part) const {
  int size = options_.world_size, rank = options_.rank;
  int64_t n = flat.numel(), item = int64_t(size_of(flat.dtype()));
  auto length = [&](int p) { return std::clamp<int64_t>(n - p * part, 0, part); };
  int64_t mine = length(rank);
  Tensor all = empty({size, std::max<int64_t>(mine, 1)}, flat.dtype(), flat.device());
  std::vector<Exchange> parts;
  auto* from = static_cast<char*>(flat.data_ptr());
  auto* to = static_cast<char*>(all.data_ptr());
  for (int p = 0; p < size; ++p)
    if (p != rank)
      parts.push_back({p, from + p * part * item, size_t(length(p) * item), to + p * mine * item, size_t(mine * item)});
  engine.exchange(parts, s);
  if (mine == 0) return all.reshape({-1}).narrow(0, 0, 0);
  bool is_bool = flat.dtype() == kBool;
  bool narrow = is_floating(flat.dtype()) && size_of(flat.dtype()) < 4;
  std::vector<Tensor> level;
  for (int p = 0; p < size; ++p) {
    Tensor addend = p == rank ? flat.narrow(0, rank * part, mine) : all.select(0, p);
    level.push_back(narrow ? addend.to(kFloat32) : is_bool ? addend.to(kUInt8) : addend);
  }
  // As a counter in binary carries: neighbours, then neighbours of those; what is left over comes last.
  ReduceOp how = !is_bool ? op : op == ReduceOp::SUM ? ReduceOp::BOR : op == ReduceOp::PRODUCT ? ReduceOp::BAND : op;
  while (level.size() > 1) {
    std::vector<Tensor> next;
    for (size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(both(level[i], level[i + 1], how));
    if (level.size() % 2) next.push_back(level.back());
    level = std::move(next);
  }
  Tensor sum = level[0];
  if (op == ReduceOp::AVG) sum = sum / double(size);
  return contiguous(sum.to(flat.dtype()));
}

WorkPtr DeviceGroup::all_reduce(const Tensor& t, ReduceOp op, bool async_op) {
  Tensor flat = flat_of(t);
  int64_t n = flat.numel(), part = (n + options_.world_size - 1) / options_.world_size;
  auto queue = [this, flat, op, n, part](DeviceEngine& engine, StreamHandle s) {
    if (n == 0) return;
    if (native(engine, flat.dtype(), op))
      return engine.all_reduce(flat.data_ptr(), flat.data_ptr(), size_t(n), flat.dtype(), op, s);
    Tensor own = zeros({part}, flat.dtype(), flat.device()), sum = tree(engine, s, flat, op, part);
    if (sum.numel() > 0) own.narrow(0, 0, sum.numel()).copy_(sum);
    Tensor all = empty({part * options_.world_size}, flat.dtype(), flat.device());
    engine.all_gather(own.data_ptr(), all.data_ptr(), own.nbytes(), s);
    Tensor(flat).copy_(all.narrow(0, 0, n));
  };
  return run("all_reduce", lane(t.device()), {flat}, queue, back(t, flat), async_op);
}

WorkPtr DeviceGroup::reduce(const Tensor& t, int root, ReduceOp op, bool async_op) {
  Tensor flat = flat_of(t);
  int64_t n = flat.numel(), part = (n + options_.world_size - 1) / options_.world_size;
  bool is_root = options_.rank == root;
  auto queue = [this, flat, op, n, part, root, is_root](DeviceEngine& engine, StreamHandle s) {
    if (n == 0) return;
    if (native(engine, flat.dtype(), op)) {
      Tensor out = is_root ? flat : empty({1}, flat.dtype(), flat.device());
      return engine.reduce(flat.data_ptr(), out.data_ptr(), size_t(n), flat.dtype(), op, root, s);
    }
    Tensor sum = tree(engine, s, flat, op, part);
    int64_t item = int64_t(size_of(flat.dtype()));
    auto length = [&](int p) { return size_t(std::clamp<int64_t>(n - p * part, 0, part) * item); };
    std::vector<Exchange> parts;
    if (!is_root) {
      parts.push_back({root, sum.data_ptr(), length(options_.rank), nullptr, 0});
    } else {
      for (int p = 0; p < options_.world_size; ++p)
        if (p != root)
          parts.push_back({p, nullptr, 0, static_cast<char*>(flat.data_ptr()) + p * part * item, length(p)});
      if (sum.numel() > 0) flat.narrow(0, root * part, sum.numel()).copy_(sum);
    }
    engine.exchange(parts, s);
  };
  return run(
      "reduce", lane(t.device()), {flat}, queue, is_root ? back(t, flat) : [] {}, async_op);
}

WorkPtr DeviceGroup::broadcast(const Tensor& t, int root, bool async_op) {
  Tensor flat = flat_of(t);
  auto queue = [flat, root](DeviceEngine& engine, StreamHandle s) {
    if (flat.nbytes() > 0) engine.broadcast(flat.data_ptr(), flat.nbytes(), root, s);
  };
  return run("broadcast", lane(t.device()), {flat}, queue, options_.rank == root ? [] {} : back(t, flat), async_op);
}

WorkPtr DeviceGroup::all_gather_into_tensor(const Tensor& into, const Tensor& t, bool async_op) {
  Tensor own = flat_of(t), all = flat_of(into);
  auto queue = [own, all](DeviceEngine& engine, StreamHandle s) {
    if (own.nbytes() > 0) engine.all_gather(own.data_ptr(), all.data_ptr(), own.nbytes(), s);
  };
  return run("all_gather_into_tensor", lane(t.device()), {own, all}, queue, back(into, all), async_op);
}

WorkPtr DeviceGroup::all_gather(const std::vector<Tensor>& into, const Tensor& t, bool async_op) {
  Tensor own = flat_of(t);
  Tensor all = empty({options_.world_size, std::max<int64_t>(own.numel(), 1)}, own.dtype(), own.device());
  auto queue = [own, all](DeviceEngine& engine, StreamHandle s) {
    if (own.nbytes() > 0) engine.all_gather(own.data_ptr(), all.data_ptr(), own.nbytes(), s);
  };
  auto then = [into, own, all] {
    autograd::NoGrad no_grad;
    for (size_t i = 0; i < into.size() && own.numel() > 0; ++i)
      into[i].detach().copy_(all.select(0, int64_t(i)).reshape(into[i].shape()));
  };
  return run("all_gather", lane(t.device()), {own, all}, queue, then, async_op);
}

WorkPtr DeviceGroup::reduce_scatter_tensor(const Tensor& into, const Tensor& t, ReduceOp op, bool async_op) {
  Tensor all = flat_of(t), own = flat_of(into);
  auto queue = [this, all, own, op](DeviceEngine& engine, StreamHandle s) {
    if (own.numel() == 0) return;
    if (native(engine, own.dtype(), op))
      return engine.reduce_scatter(all.data_ptr(), own.data_ptr(), size_t(own.numel()), own.dtype(), op, s);
    Tensor(own).copy_(tree(engine, s, all, op, own.numel()));
  };
  return run("reduce_scatter_tensor", lane(t.device()), {all, own}, queue, back(into, own), async_op);
}

WorkPtr DeviceGroup::all_to_all(const Tensor& into, const Tensor& t, const std::vector<size_t>& gives,
                                const std::vector<size_t>& takes, bool async_op) {
  Tensor in = flat_of(t), out = flat_of(into);
  auto queue = [this, in, out, gives, takes](DeviceEngine& engine, StreamHandle s) {
    std::vector<Exchange> parts;
    size_t give_at = 0, take_at = 0;
    int64_t item = int64_t(size_of(in.dtype()));
    for (int p = 0; p < options_.world_size; ++p) {
      size_t give = gives[size_t(p)], take = takes[size_t(p)];
      if (p == options_.rank) {
        SF_CHECK(give == take, "the rows that a process sends to itself must be those it takes");
        if (give > 0)
          out.narrow(0, int64_t(take_at) / item, int64_t(take) / item)
              .copy_(in.narrow(0, int64_t(give_at) / item, int64_t(give) / item));
      } else {
        parts.push_back(
            {p, static_cast<char*>(in.data_ptr()) + give_at, give, static_cast<char*>(out.data_ptr()) + take_at, take});
      }
      give_at += give, take_at += take;
    }
    engine.exchange(parts, s);
  };
  return run("all_to_all_single", lane(t.device()), {in, out}, queue, back(into, out), async_op);
}

// What the root has of each process, and what each has: from those to the root, or the other way.
DeviceGroup::Queue DeviceGroup::with_root(const Tensor& own, const Tensors& of_all, int root, bool to_root) const {
  return [this, own, of_all, root, to_root](DeviceEngine& engine, StreamHandle s) {
    auto exchange = [&](int peer, const Tensor& t, bool sends) -> Exchange {
      if (sends) return {peer, t.data_ptr(), t.nbytes(), nullptr, 0};
      return {peer, nullptr, 0, t.data_ptr(), t.nbytes()};
    };
    std::vector<Exchange> parts;
    if (options_.rank != root) parts.push_back(exchange(root, own, to_root));
    for (int p = 0; p < int(of_all.size()); ++p) {
      const Tensor& its = of_all[size_t(p)];
      if (p != root) parts.push_back(exchange(p, its, !to_root));
      else if (to_root) Tensor(its).copy_(own);
      else Tensor(own).copy_(its);
    }
    engine.exchange(parts, s);
  };
}

WorkPtr DeviceGroup::gather(const Tensor& t, const std::vector<Tensor>& into, int root, bool async_op) {
  Tensor own = flat_of(t);
  Tensors values, used{own};
  for (auto& p : into) used.push_back(values.emplace_back(flat_of(p)));
  auto then = [into, values] {
    for (size_t i = 0; i < into.size(); ++i) back(into[i], values[i])();
  };
  return run("gather", lane(t.device()), used, with_root(own, values, root, true), then, async_op);
}

WorkPtr DeviceGroup::scatter(const Tensor& into, const std::vector<Tensor>& from, int root, bool async_op) {
  Tensor own = flat_of(into);
  Tensors values, used{own};
  for (auto& p : from) used.push_back(values.emplace_back(flat_of(p)));
  return run("scatter", lane(into.device()), used, with_root(own, values, root, false), back(into, own), async_op);
}

WorkPtr DeviceGroup::point_to_point(const Tensor& t, int peer, bool sends) {
  Tensor flat = flat_of(t);
  int other = peer > options_.rank ? 1 : 0;  // the peer's rank among the two
  auto queue = [flat, sends, other](DeviceEngine& engine, StreamHandle s) {
    engine.exchange({{other, flat.data_ptr(), sends ? flat.nbytes() : 0, flat.data_ptr(), sends ? 0 : flat.nbytes()}},
                    s);
  };
  return run(sends ? "isend" : "irecv", lane_to(peer, t.device()), {flat}, queue, sends ? [] {} : back(t, flat), true);
}

}  // namespace sf::distributed
