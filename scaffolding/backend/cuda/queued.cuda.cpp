#include "scaffolding/backend/cuda/queued.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "scaffolding/backend/cuda_graph.h"

namespace sf::cuda {

namespace {

constexpr uint64_t kMost = 1024;  // about what a driver queues before it lets the host wait
constexpr char kReplay[] = "CUDAGraph.replay";
constexpr size_t kMostNames = 32;  // different ones, of a list in an error

// Threads that lap each other by a whole ring may pair a name with another's stream, which costs the error a name.
struct Ring {
  struct Entry {
    std::atomic<const char*> name;  // null: waited for
    std::atomic<cudaStream_t> stream;
  };
  std::atomic<uint64_t> next, first;  // of all that were ever queued; those before `first` were waited for
  Entry entries[kMost];

  Entry& at(uint64_t i) { return entries[i % kMost]; }
  uint64_t oldest() const {
    const uint64_t n = next.load(std::memory_order_relaxed), all = first.load(std::memory_order_relaxed);
    return std::max(all, n > kMost ? n - kMost : 0);
  }
};
Ring rings[kMaxDevices];

thread_local std::vector<const char*> captured;  // of the graph that this thread captures

// "a, b (3 times), c": each once, where it was last.
std::string listed(const std::vector<const char*>& names) {
  struct Named {
    std::string_view name;
    size_t times;
  };
  std::vector<Named> newest_first;
  for (auto at = names.rbegin(); at != names.rend(); ++at) {
    auto same = std::find_if(newest_first.begin(), newest_first.end(), [&](const Named& n) { return n.name == *at; });
    if (same == newest_first.end()) newest_first.push_back({*at, 1});
    else ++same->times;
  }
  std::string text;
  if (newest_first.size() > kMostNames) {
    text = std::to_string(newest_first.size() - kMostNames) + " others";
    newest_first.resize(kMostNames);
  }
  for (auto n = newest_first.rbegin(); n != newest_first.rend(); ++n) {
    text.append(text.empty() ? "" : ", ").append(n->name);
    if (n->times > 1) text += " (" + std::to_string(n->times) + " times)";
  }
  return text;
}

}  // namespace

void queued(const char* name, int device, cudaStream_t stream) {
  if (CudaGraph::recording()) [[unlikely]]
    return captured.push_back(name);
  Ring& ring = rings[device];
  Ring::Entry& entry = ring.at(ring.next.fetch_add(1, std::memory_order_relaxed));
  entry.stream.store(stream, std::memory_order_relaxed);
  entry.name.store(name, std::memory_order_release);
}

void queued(cudaError_t status, const char* name, int device, cudaStream_t stream) {
  check(status, name);
  queued(name, device, stream);
}

Wait::Wait(int device) : device_(device), before_(rings[device].next.load(std::memory_order_relaxed)) {}

void Wait::over_for_device() const {
  std::atomic<uint64_t>& first = rings[device_].first;
  uint64_t now = first.load(std::memory_order_relaxed);
  while (now < before_ && !first.compare_exchange_weak(now, before_, std::memory_order_relaxed)) {}
}

void Wait::over_for(cudaStream_t stream) const {
  Ring& ring = rings[device_];
  bool all = true;
  for (uint64_t i = ring.oldest(); i < before_; ++i) {
    Ring::Entry& entry = ring.at(i);
    if (!entry.name.load(std::memory_order_acquire)) continue;
    if (entry.stream.load(std::memory_order_relaxed) == stream) entry.name.store(nullptr, std::memory_order_relaxed);
    else all = false;
  }
  if (all) over_for_device();
}

std::string suspects() {
  // CUDA's own variable: every launch waits then, and the call that failed is the one, unless it was in a graph.
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  const bool launches_wait = blocking && std::strcmp(blocking, "1") == 0;
  std::string text;
  for (int device = 0; device < kMaxDevices; ++device) {
    Ring& ring = rings[device];
    std::vector<const char*> names;
    const uint64_t end = ring.next.load(std::memory_order_relaxed);
    for (uint64_t i = ring.oldest(); i < end; ++i)
      if (const char* name = ring.at(i).name.load(std::memory_order_acquire);
          name && (!launches_wait || std::string_view(name).starts_with(kReplay)))
        names.push_back(name);
    if (names.empty()) continue;
    text += text.empty() ? "; queued since the last synchronisation" : "; and";
    if (device > 0) text += " on cuda:" + std::to_string(device);
    text += ": " + listed(names) + (names.size() > 1 ? " (newest last)" : "");
  }
  return text;
}

const char* interned(const std::string& text) {
  static std::mutex mutex;
  static auto& all = *new std::unordered_set<std::string>;  // whose elements stay where they are
  std::lock_guard lock(mutex);
  return all.insert(text).first->c_str();
}

void begin_naming_graph() { captured.clear(); }

const char* end_naming_graph() {
  const std::string what = listed(captured);
  captured.clear();
  return interned(what.empty() ? kReplay : std::string(kReplay) + " of " + what);
}

}  // namespace sf::cuda
