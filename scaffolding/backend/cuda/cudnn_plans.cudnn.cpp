#include "scaffolding/backend/cuda/cudnn_plans.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <sstream>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cuda/queued.h"
#include "scaffolding/backend/cuda/relaxed.h"
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/backend/cuda/timer.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/backend/cudnn_settings.h"
#include "scaffolding/backend/kernel_file.h"
#include "scaffolding/core/env.h"

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
  const char* op = nullptr;
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

struct Kept {
  Choice choice;
  std::string text;  // Plan::text
};

void say_anew(const std::string& key, const std::string& why) {
  if (env::flag("SF_TRACE"))
    std::fprintf(stderr, "cudnn plan %s: made anew: %s\n", kernel_file_path(key).c_str(), why.c_str());
}

// "engine type:value type:value ...", and from the next line on the plan's text; anything else is no choice.
bool read_kept(const std::string& key, Kept& kept) {
  KernelImage file;
  const bool whole = read_kernel_file(key, file) && file.entry == "cudnn plan";
  std::error_code none;
  if (!whole && std::filesystem::exists(kernel_file_path(key), none)) say_anew(key, "its file is damaged or another's");
  if (!whole) return false;
  const size_t line = std::min(file.cubin.find('\n'), file.cubin.size());
  std::istringstream words(file.cubin.substr(0, line));
  Kept read;
  if (!(words >> read.choice.engine) || read.choice.engine < 0) return false;
  for (int type = 0; words >> type;) {
    char colon = 0;
    int64_t value = 0;
    if (!(words >> colon >> value) || colon != ':' || int(read.choice.knobs.size()) == kKnobs) return false;
    read.choice.knobs.emplace_back(type, value);
  }
  if (!words.eof()) return false;
  if (line < file.cubin.size()) read.text = file.cubin.substr(line + 1);
  kept = std::move(read);
  return true;
}
void write_kept(const std::string& key, const Kept& kept) {
  std::string all = std::to_string(kept.choice.engine);
  for (auto& [type, value] : kept.choice.knobs) all += ' ' + std::to_string(type) + ':' + std::to_string(value);
  if (!kept.text.empty()) all += '\n' + kept.text;
  write_kernel_file(key, {"cudnn plan", all});
}
void write_kept(const std::string& key, const Plan& plan) { write_kept(key, {plan.choice(), plan.text()}); }

// The plan that the file of an earlier process names: made of its text, or of its choice where this cuDNN refuses that.
std::shared_ptr<const Plan> plan_of_file(const PlannedGraph& p, const Target& target) {
  Kept kept;
  if (!read_kept(p.file_key, kept)) return nullptr;
  if (!kept.text.empty()) try {
      return std::make_shared<const Plan>(p.graph, target, kept.text);
    } catch (const Failure& f) {
      say_anew(p.file_key, f.what());
    }
  try {
    auto plan = std::make_shared<const Plan>(p.graph, target, kept.choice);
    // a text that is written the same and not read is not tried again
    if (std::string text = plan->text(); !kept.text.empty())
      write_kept(p.file_key, {kept.choice, text == kept.text ? std::string() : text});
    return plan;
  } catch (const Failure& f) {  // the file says what this cuDNN has not: chosen anew and written again
    say_anew(p.file_key, f.what());
  }
  return nullptr;
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
  if (auto plan = plan_of_file(p, target)) {
    timed = true;  // as far as it will be
    return plan;
  }
  auto plans = first_plans(p.graph, target, p.wishes, 1);
  if (plans.empty()) return nullptr;
  if (!cudnn_settings().benchmark) write_kept(p.file_key, *plans[0]);
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

// A plan's text serves the same graph, GPU and driver alone. The graph's print differs where another version of this
// library builds another graph for the same call.
std::string file_key(int device, const PlanKey& key, const Graph& graph) {
  int driver = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  const DeviceProperties& gpu = properties(device);
  std::ostringstream text;
  text << "cuDNN " << api().version() << ", driver " << driver << '\n'
       << gpu.name << ", " << gpu.architecture() << '\n'
       << key.text() << '\n'
       << std::hex << graph.print();
  return text.str();
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
  entry->op = key.op();
  DeviceScope scope(device);
  Relaxed relaxed;
  Target target{handle(device)};
  try {
    Graph graph = build();
    graph.finalize(target);
    entry->graph = std::make_shared<const Graph>(std::move(graph));
    entry->file_key = file_key(device, key, *entry->graph);
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
      write_kept(entry->file_key, *entry->plan);
    }
    plan = entry->plan;
  }
  // Its replays run the plan's kernels, whatever this table holds by then.
  if (CudaGraph* graph = CudaGraph::recording()) graph->keep_alive(plan);
  run_on_stream(device, *plan, memory);
  queued(entry->op, device, Stream::current(device).handle);
}

}  // namespace sf::cuda::cudnn
