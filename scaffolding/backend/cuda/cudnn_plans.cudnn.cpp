#include "scaffolding/backend/cuda/cudnn_plans.h"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <sstream>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cuda/relaxed.h"
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/backend/cuda/timer.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/backend/cudnn_settings.h"
#include "scaffolding/backend/kernel_file.h"

namespace sf::cuda::cudnn {

int64_t alignment(const TensorView& t) {
  return int64_t(1) << std::countr_zero(reinterpret_cast<uintptr_t>(t.data) | 16);
}

void PlanKey::add(const TensorView& t) {
  if (!t.defined()) return add(-1);
  add(int64_t(t.dtype));
  add(alignment(t));
  for (int i = 0; i < t.ndim; ++i) add(t.sizes[i]);
}
void PlanKey::add_strides(const TensorView& t) {
  for (int i = 0; i < t.ndim; ++i) add(t.strides[i]);
}
std::string PlanKey::text() const {
  std::string s = op_;
  for (size_t i = 0; i < count_; ++i) s += ' ' + std::to_string(numbers_[i]);
  return s;
}
bool PlanKey::operator<(const PlanKey& o) const {
  if (op_ != o.op_) return std::less<const char*>()(op_, o.op_);
  if (count_ != o.count_) return count_ < o.count_;
  return std::lexicographical_compare(numbers_.begin(), numbers_.begin() + count_, o.numbers_.begin(),
                                      o.numbers_.begin() + count_);
}

struct PlannedGraph {
  std::shared_ptr<const Graph> graph;
  std::string file_key;  // on disk
  Wishes wishes;
  std::mutex mutex;  // of what follows
  std::shared_ptr<const Plan> plan;
  bool timed = false;
};

namespace {

constexpr size_t kMostPlans = 4096;  // then all are forgotten, as in gemm.cuda.cpp
constexpr size_t kRivals = 8;        // that are timed
constexpr int kRuns = 5;             // of each, after one that does not count

// "engine type:value type:value ..."; anything else is no choice.
bool read_choice(const std::string& key, Choice& choice) {
  KernelImage file;
  if (!read_kernel_file(key, file) || file.entry != "cudnn plan") return false;
  std::istringstream words(file.cubin);
  Choice read;
  if (!(words >> read.engine) || read.engine < 0) return false;
  for (int type = 0; words >> type;) {
    char colon = 0;
    int64_t value = 0;
    if (!(words >> colon >> value) || colon != ':' || int(read.knobs.size()) == kKnobs) return false;
    read.knobs.emplace_back(type, value);
  }
  choice = read;
  return words.eof();
}
void write_choice(const std::string& key, const Choice& choice) {
  std::string text = std::to_string(choice.engine);
  for (auto& [type, value] : choice.knobs) text += ' ' + std::to_string(type) + ':' + std::to_string(value);
  write_kernel_file(key, {"cudnn plan", text});
}

// The first `most` of the proposals that become plans. An engine may refuse when it is asked to be a plan; what is no
// refusal, such as a driver that does not load the kernel, is an error where nothing else came of it.
std::vector<std::shared_ptr<const Plan>> first_plans(const std::shared_ptr<const Graph>& graph, const Target& target,
                                                     const Wishes& wishes, size_t most) {
  std::vector<std::shared_ptr<const Plan>> plans;
  std::string broken;
  for (Descriptor& config : proposals(*graph, target, wishes)) {
    try {
      plans.push_back(std::make_shared<Plan>(graph, target, std::move(config)));
    } catch (const Failure& f) {
      if (!is_unsupported(f.status)) broken = f.what();
    }
    if (plans.size() == most) break;
  }
  SF_CHECK_AS(RuntimeError, !plans.empty() || broken.empty(), broken,
              ". scaffolding.backends.cudnn.enabled = False does without cuDNN");
  return plans;
}

std::shared_ptr<const Plan> choose(const PlannedGraph& p, const Target& target, bool& timed) {
  Choice choice;
  if (read_choice(p.file_key, choice)) {
    try {
      auto plan = std::make_shared<const Plan>(p.graph, target, choice);
      timed = true;  // as far as it will be
      return plan;
    } catch (const Failure&) {  // the file says what this cuDNN has not: chosen anew and written again
    }
  }
  auto plans = first_plans(p.graph, target, p.wishes, 1);
  if (plans.empty()) return nullptr;
  if (!cudnn_settings().benchmark) write_choice(p.file_key, plans[0]->choice());
  return plans[0];
}

void run_on_stream(int device, const Plan& plan, std::span<const std::pair<Id, void*>> memory) {
  Scratch workspace(Device(Device::CUDA, device), plan.workspace());
  Handle h = handle(device);
  std::lock_guard lock(execution_lock());
  Relaxed relaxed;  // a plan's first run may load its kernels
  check(api().set_stream(h, Stream::current(device).handle), "cudnnSetStream");
  plan.run(h, memory, plan.workspace() ? workspace.as<void>() : nullptr);
}

std::shared_ptr<const Plan> fastest(int device, const PlannedGraph& p, std::span<const std::pair<Id, void*>> memory) {
  std::shared_ptr<const Plan> best;
  float least = 0;
  Timer timer("cudnn");
  cudaStream_t stream = Stream::current(device).handle;
  for (auto& plan : first_plans(p.graph, {handle(device)}, p.wishes, kRivals)) {
    try {
      run_on_stream(device, *plan, memory);
    } catch (const Failure&) {
      continue;
    }
    float ms = timer.of(stream, kRuns, [&] { run_on_stream(device, *plan, memory); });
    if (!best || ms < least) best = plan, least = ms;
  }
  return best;
}

}  // namespace

PlanEntry find_plan(int device, PlanKey key, const Wishes& wishes, const std::function<Graph()>& build) {
  for (bool flag : {wishes.deterministic, wishes.exact_float32, cudnn_settings().benchmark}) key.add(flag);
  static std::mutex mutex;
  static auto& entries = *new std::map<std::pair<int, PlanKey>, PlanEntry>;
  std::lock_guard lock(mutex);
  auto at = entries.find({device, key});
  if (at != entries.end()) return at->second;
  if (entries.size() >= kMostPlans) entries.clear();
  auto entry = std::make_shared<PlannedGraph>();
  DeviceScope scope(device);
  Relaxed relaxed;
  Target target{handle(device)};
  try {
    Graph graph = build();
    graph.finalize(target);
    entry->graph = std::make_shared<const Graph>(std::move(graph));
    entry->file_key = "cuDNN " + std::to_string(api().version()) + '\n' + properties(device).name + '\n' + key.text();
    entry->wishes = wishes;
    entry->plan = choose(*entry, target, entry->timed);
  } catch (const Failure& f) {  // a graph or shape that cuDNN does not know is for the next provider
    if (f.status / 1000 != 2 && !is_unsupported(f.status)) throw;
  }
  if (!entry->plan) entry.reset();
  entries.emplace(std::pair(device, key), entry);
  return entry;
}

void run_plan(int device, const PlanEntry& entry, std::span<const std::pair<Id, void*>> memory) {
  DeviceScope scope(device);
  std::shared_ptr<const Plan> plan;
  {
    std::lock_guard lock(entry->mutex);
    if (cudnn_settings().benchmark && !entry->timed && !CudaGraph::recording()) {
      if (auto best = fastest(device, *entry, memory)) entry->plan = best;
      entry->timed = true;
      write_choice(entry->file_key, entry->plan->choice());
    }
    plan = entry->plan;
  }
  // Its replays run the plan's kernels, whatever this table holds by then.
  if (CudaGraph* graph = CudaGraph::recording()) graph->keep_alive(plan);
  run_on_stream(device, *plan, memory);
}

}  // namespace sf::cuda::cudnn
