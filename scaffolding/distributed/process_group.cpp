#include "scaffolding/distributed/process_group.h"

#include <chrono>
#include <mutex>
#include <numeric>
#include <thread>

#include "scaffolding/backend/cpu/sealed_pages.h"
#include "scaffolding/distributed/process_group_state.h"
#include "scaffolding/ops/copy/copy.h"

namespace sf::distributed {

namespace {

constexpr uint32_t kOwnTags = 1 << 26;  // below: those of users' sends
constexpr const char* kFailure = "failure";

std::string seconds_text(double seconds) {
  Message m;
  m << seconds << " s";
  return m.str();
}

}  // namespace

void ProcessGroup::State::close() {
  bool under_way;
  {
    std::lock_guard lock(mutex);
    under_way = busy || !waiting.empty();
    if (failure.empty()) failure = "the group was destroyed";
    ends = true;
    changed.notify_all();
  }
  if (under_way && engine) engine->abort();  // nobody waits for it any more
  if (thread.joinable()) thread.join();
  device.reset();
}

void ProcessGroup::State::execute(std::function<void()> job, bool async_op) {
  std::unique_lock lock(mutex);
  if (!async_op && !busy && waiting.empty()) {
    busy = true;
    lock.unlock();
    job();
    lock.lock();
    busy = false;
    changed.notify_all();
    return;
  }
  waiting.push_back(std::move(job));
  if (!thread.joinable()) thread = std::thread([this] { work(); });
  changed.notify_all();
}

void ProcessGroup::State::work() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return (!waiting.empty() && !busy) || (ends && waiting.empty()); });
    if (waiting.empty()) return;
    auto job = std::move(waiting.front());
    waiting.pop_front();
    busy = true;
    lock.unlock();
    job();
    job = nullptr;  // its tensors go before the lock is taken
    lock.lock();
    busy = false;
    changed.notify_all();
  }
}

ProcessGroup::ProcessGroup(const GroupOptions& o) : options_(o), state_(std::make_unique<State>()) {
  SF_CHECK(o.world_size > 0 && o.world_size <= 65536, "ProcessGroup: world_size must be 1 to 65536, got ",
           o.world_size);
  SF_CHECK(o.rank >= 0 && o.rank < o.world_size, "ProcessGroup: rank must be 0 to ", o.world_size - 1, ", got ",
           o.rank);
  check_timeout("ProcessGroup", o.timeout_seconds);
  if (o.ranks.empty()) {
    options_.ranks.resize(size_t(o.world_size));
    std::iota(options_.ranks.begin(), options_.ranks.end(), 0);
  }
  SF_CHECK(int(options_.ranks.size()) == o.world_size, "ProcessGroup: ranks must have world_size=", o.world_size,
           " numbers, got ", options_.ranks.size());
  check_backend(o.backend);
  std::string why;
  // In a group of one too: a script must not find out about it only on a cluster.
  SF_CHECK_AS(RuntimeError, engine_available(o.backend, &why), "init_process_group: backend '", o.backend,
              "' is not available: ", why);
  SF_CHECK(o.device_backend.empty() || o.device_backend == "nccl",
           "init_process_group: the backend for tensors on CUDA must be 'nccl', got '", o.device_backend, "'");
  if (o.world_size == 1) {
    if (!o.device_backend.empty()) state_->device = std::make_unique<DeviceGroup>(options_);
    return;
  }
  if (o.backend != "fake") {
    SF_CHECK_AS(TypeError, o.store, "ProcessGroup: processes need a store to find each other");
    // Two processes with one rank would take each other's connections.
    auto store = std::make_shared<PrefixStore>(o.name, o.store);
    store->set_timeout(o.timeout_seconds);
    options_.store = store;
    SF_CHECK(store->add("joined/" + std::to_string(o.rank), 1) == 1, "ProcessGroup: two processes have rank ", o.rank,
             " of ", o.world_size);
    std::string size = std::to_string(o.world_size), agreed = store->compare_set("world_size", "", size);
    SF_CHECK(agreed == size, "ProcessGroup: rank ", o.rank, " has world_size=", size, ", another process has ", agreed);
    std::vector<std::string> missing;
    Deadline deadline = in_seconds(o.timeout_seconds);
    for (int r = 0; r < o.world_size; ++r) {
      double left = seconds_to(deadline);
      try {
        store->wait({"joined/" + std::to_string(r)}, std::max(left, 0.001));
      } catch (const RuntimeError& e) {
        if (left > 0.5 && std::chrono::steady_clock::now() < deadline) throw;  // the store is gone
        missing.push_back(std::to_string(options_.ranks[size_t(r)]));
      }
    }
    SF_CHECK_AS(RuntimeError, missing.empty(), "init_process_group: not every process has come within ",
                seconds_text(o.timeout_seconds), ": missing are the ranks ", listed(missing),
                "; are they started, and by the same address and port?");
  }
  state_->engine = make_engine(o.backend, {.rank = o.rank,
                                           .size = o.world_size,
                                           .world_ranks = options_.ranks,
                                           .name = o.name,
                                           .store = options_.store,
                                           .timeout_seconds = o.timeout_seconds});
  if (!o.device_backend.empty() && o.backend != "fake") state_->device = std::make_unique<DeviceGroup>(options_);
}

// Of a call with this tensor; null where it lies on the CPU.
DeviceGroup* ProcessGroup::device(const char* op, const Tensor& t) {
  check_defined(op, "tensor", t);
  if (!t.device().is_cuda() || !state_->device) return nullptr;
  ++state_->calls;
  state_->bytes += int64_t(t.numel()) * int64_t(size_of(t.dtype()));
  return state_->device.get();
}

void ProcessGroup::set_deterministic(bool on) {
  if (state_->device) state_->device->deterministic = on;
}
bool ProcessGroup::device_begun() const { return state_->device && state_->device->begun(); }
void ProcessGroup::share_device(ProcessGroup* part) {
  if (state_->device) state_->device->share(part ? part->state_->device.get() : nullptr);
}

ProcessGroup::~ProcessGroup() = default;

void ProcessGroup::close() { state_->close(); }

void ProcessGroup::set_timeout(double seconds) {
  check_timeout("ProcessGroup.set_timeout", seconds);
  options_.timeout_seconds = seconds;
}

ProcessGroup::Counts ProcessGroup::counts() const { return {state_->calls, state_->bytes}; }

void ProcessGroup::check_rank(const char* op, const char* what, int rank) const {
  SF_CHECK(rank >= 0 && rank < size(), op, ": ", what, " must be 0 to ", size() - 1, ", got ", rank);
}

// A tensor's values in one piece on the CPU: its own memory where that is one.
Tensor ProcessGroup::dense(const char* op, const Tensor& t) const {
  check_defined(op, "tensor", t);
  SF_CHECK_AS(RuntimeError, !t.device().is_meta(), op, ": a tensor on the meta device has no values");
  SF_CHECK_AS(RuntimeError, !t.device().is_cuda() || backend() == "fake", op, ": backend '", backend(),
              "' carries tensors of CPUs, got one on ", t.device(), "; use backend 'nccl', or t.cpu()");
  Tensor values = contiguous(t.detach().to(Device::CPU));
  cpu::will_write(values);
  return values;
}

// The call by everyone, or an error that names who does something else or nothing.
WorkPtr ProcessGroup::run(const Call& call, Body body, bool async_op) {
  ++state_->calls;
  if (call.dtype >= 0) state_->bytes += call.count * int64_t(size_of(DType(call.dtype)));
  auto work = std::make_shared<Work>();
  if (!state_->engine) {
    body(0, in_seconds(timeout()));
    work->complete(nullptr);
    return work;
  }
  uint32_t number = state_->sequence++;
  auto job = [this, call, body = std::move(body), work, number] {
    uint32_t tag = kOwnTags + (number & 0xFFFFF) * 4;
    Deadline deadline = in_seconds(timeout());
    std::string failure;
    {
      std::lock_guard lock(state_->mutex);
      failure = state_->failure;
    }
    if (!failure.empty()) {
      work->complete(
          std::make_exception_ptr(RuntimeError(std::string(call.name) + ": this group has failed before: " + failure)));
      return;
    }
    try {
      if (backend() != "fake") {
        std::vector<Call> theirs(static_cast<size_t>(size()));
        std::vector<std::unique_ptr<Transfer>> in, out;
        for (int p = 0; p < size(); ++p)
          if (p != rank()) in.push_back(state_->engine->receive(&theirs[size_t(p)], sizeof(Call), p, tag));
        for (int p = 0; p < size(); ++p)
          if (p != rank()) out.push_back(state_->engine->send(&call, sizeof(Call), p, tag));
        for (auto& t : in) t->wait(deadline);
        for (auto& t : out) t->wait(deadline);
        theirs[size_t(rank())] = call;
        for (int p = 0; p < size(); ++p) {
          theirs[size_t(p)].name[sizeof call.name - 1] = 0;
          SF_CHECK_AS(RuntimeError, theirs[size_t(p)].same(theirs[0]),
                      "every process must make the same call, in the same order: rank ", ranks()[0], " makes ",
                      theirs[0].text(), ", rank ", ranks()[size_t(p)], " makes ", theirs[size_t(p)].text());
        }
      }
      body(tag + 1, deadline);
      work->complete(nullptr);
    } catch (const std::exception& e) {
      std::string text = std::string(call.name) + ": " + e.what() + " (call " + std::to_string(number) + " of group '" +
                         group_name() + "', timeout " + seconds_text(timeout()) + ")";
      // Who fails first knows why; the others only see that it has gone.
      try {
        std::string mine = "rank " + std::to_string(ranks()[size_t(rank())]) + ": " + text;
        std::string first = options_.store ? options_.store->compare_set(kFailure, "", mine) : mine;
        if (first != mine) text += "; the first failure was that of " + first;
      } catch (const std::exception&) {}  // the store has gone with its process
      {
        std::lock_guard lock(state_->mutex);
        if (state_->failure.empty()) state_->failure = text;
      }
      try {
        state_->engine->abort();  // the others learn it now
      } catch (const std::exception&) {}
      work->complete(std::make_exception_ptr(RuntimeError(text)));
    }
  };
  state_->execute(std::move(job), async_op);
  if (!async_op) work->wait();
  return work;
}

WorkPtr ProcessGroup::barrier(bool async_op) {
  return run(
      Call("barrier"), [](uint32_t, Deadline) {}, async_op);  // who has heard from all knows that all came
}

void ProcessGroup::monitored_barrier(double timeout_seconds, bool wait_all_ranks) {
  check_timeout("monitored_barrier", timeout_seconds);
  if (!state_->engine || backend() == "fake") return;
  Store& store = *options_.store;
  std::string prefix = "monitored_barrier/" + std::to_string(state_->barriers++) + "/";
  if (rank() != 0) {
    store.set(prefix + std::to_string(rank()), "");
    try {
      store.wait({prefix + "result"}, timeout_seconds * 1.5 + 1);  // rank 0 may have begun later
    } catch (const RuntimeError& e) {
      fail<RuntimeError>("monitored_barrier: rank ", ranks()[0], " did not come within ", timeout_seconds, " s (",
                         e.what(), ")");
    }
    std::string result = store.get(prefix + "result");
    SF_CHECK_AS(RuntimeError, result.empty(), result);
    return;
  }
  Deadline deadline = in_seconds(timeout_seconds);
  std::vector<std::string> missing;
  for (int r = 1; r < size() && (wait_all_ranks || missing.empty()); ++r) {
    double left = seconds_to(deadline);
    std::vector<std::string> key{prefix + std::to_string(r)};
    try {
      if (left > 0) store.wait(key, left);
      else if (!store.check(key)) missing.push_back(std::to_string(ranks()[size_t(r)]));
    } catch (const RuntimeError&) {
      if (std::chrono::steady_clock::now() < deadline) throw;  // the store is gone
      missing.push_back(std::to_string(ranks()[size_t(r)]));
    }
  }
  std::string result;
  if (!missing.empty()) {
    Message m;
    m << "monitored_barrier: within " << timeout_seconds
      << " s did not come: " << (missing.size() > 1 ? "ranks " : "rank ") << listed(missing);
    result = m.str();
  }
  store.set(prefix + "result", result);
  SF_CHECK_AS(RuntimeError, result.empty(), result);
}

}  // namespace sf::distributed
