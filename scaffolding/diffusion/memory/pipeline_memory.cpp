#include "scaffolding/diffusion/memory/pipeline_memory.h"

#include <algorithm>
#include <set>

#include "scaffolding/backend/cpu/bf16_dot.h"
#include "scaffolding/backend/free_memory.h"
#include "scaffolding/core/error.h"
#include "scaffolding/io/file.h"
#include "scaffolding/nn/adapter.h"
#include "scaffolding/nn/quantize.h"
#include "scaffolding/nn/streaming/stream_groups.h"

namespace sf::diffusion {

namespace {

struct WeightBytes {
  int64_t all = 0, on_device = 0, in_memory = 0;  // on a GPU; on the host and no pages of a file
};

// Of each tensor once, whoever shares it, adapters included. Several may lie in one storage: rows of one product.
WeightBytes weight_bytes(nn::Module& module, std::set<const void*>& seen) {
  WeightBytes out;
  auto add = [&](const Tensor& t) {
    if (!t || !t.storage() || t.numel() == 0) return;
    // without memory, as models on the meta device are, tensors are told apart by themselves
    if (!seen.insert(t.device().is_meta() ? static_cast<const void*>(t.impl()) : t.data_ptr()).second) return;
    const auto bytes = int64_t(t.nbytes());
    out.all += bytes;
    if (t.device().is_cuda()) out.on_device += bytes;
    else if (t.device().is_cpu() && !io::is_mapped(t.storage()->data)) out.in_memory += bytes;
  };
  for (auto& p : nn::named_parameters(module)) add(p.tensor);
  for (auto& b : nn::named_buffers(module)) add(b.tensor);
  for (auto& m : nn::named_modules(module))
    if (auto adapter = m.module->adapter()) adapter->each_tensor(add);
  return out;
}

// How weights are stored: the dtype of most of their bytes, or what quantised layers have.
std::string format_of(nn::Module& model) {
  std::map<std::string, int64_t> bytes;
  for (auto& m : nn::named_modules(model)) {
    std::string quantised = nn::format_of(*m.module);
    if (quantised.starts_with("float8")) quantised = "float8";
    if (!quantised.empty())
      for (auto& b : nn::named_buffers(*m.module)) bytes[quantised] += int64_t(b.tensor.nbytes());
  }
  for (auto& p : nn::named_parameters(model)) bytes[std::string(name(p.tensor.dtype()))] += int64_t(p.tensor.nbytes());
  auto most = std::max_element(bytes.begin(), bytes.end(), [](auto& a, auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "" : most->first;
}

// Scratch of one product with its largest weight, which is packed whole, and of others that another kernel packs: its
// buffers stay as long as they were at their largest.
int64_t packed_bytes(nn::Module& model) {
  int64_t most = 0;
  for (auto& m : nn::named_modules(model)) {
    const std::string_view type = m.module->type();
    if (!type.starts_with("Linear") && !type.starts_with("Conv")) continue;
    for (auto& p : nn::named_parameters(*m.module, "", false)) {
      const DType dtype = p.tensor.dtype();
      const bool narrow = dtype == kBFloat16 && cpu::bf16_dot_pays();
      most = std::max(most, p.tensor.numel() * (dtype == kFloat64 ? 8 : narrow ? 2 : 4));
    }
  }
  return 2 * most;
}

PartKind kind_of(const DiffusionPipeline& pipeline, const ComponentSlot& slot) {
  auto* vae = slot.as<Ref<Autoencoder>>();
  return slot.as<Ref<Denoiser>>()                    ? PartKind::Denoiser
         : vae && *vae == pipeline.the_autoencoder() ? PartKind::Autoencoder
                                                     : PartKind::TextEncoder;
}

}  // namespace

PlanFacts memory_facts(const DiffusionPipeline& pipeline, const AnyOptions& options, std::optional<Device> gpu,
                       std::string* why_not, const NetworkModules& modules) {
  PlanFacts facts;
  facts.pipeline = pipeline.name();
  int64_t device_now = 0, host_now = int64_t(cpu::cached_bytes());
  std::set<const void*> seen;
  for (auto& slot : const_cast<DiffusionPipeline&>(pipeline).components()) {
    Component* network = slot.network();
    if (!network) continue;
    auto at = modules.find(slot.name);
    nn::Module* model = network->model() ? network->model() : at == modules.end() ? nullptr : at->second;
    PartFacts part{.name = slot.name, .kind = kind_of(pipeline, slot)};
    if (model) {
      const WeightBytes bytes = weight_bytes(*model, seen);
      part.type = model->type(), part.format = format_of(*model);
      part.bytes = bytes.all, part.packed = packed_bytes(*model);
      for (auto& group : nn::stream_groups(*model, nn::StreamLevel::Block).groups) part.blocks.push_back(group.bytes);
      part.mapped = bytes.in_memory < bytes.all / 8;  // a few converted tensors change nothing
      device_now += bytes.on_device, host_now += bytes.in_memory;
    }
    facts.parts.push_back(std::move(part));
  }
  try {
    facts.host_activations = count_activations(pipeline, options, Device(), modules);
    facts.activations = count_activations(pipeline, options, Device(Device::CUDA), modules);
  } catch (const NotSupported& e) {
    if (why_not) *why_not = e.what();
  }
  const FreeHostMemory host = free_host_memory();
  facts.free_host = int64_t(host.free) + host_now, facts.total_host = int64_t(host.total);
  if (gpu && gpu->is_cuda() && backend_available(gpu->type)) {
    facts.device = gpu->str();
    facts.free_device = int64_t(free_device_memory(*gpu)) + device_now;
    facts.total_device = int64_t(accelerator(*gpu).device_memory(gpu->index).total);
  }
  return facts;
}

MemoryPlan plan_memory(const DiffusionPipeline& pipeline, const AnyOptions& options, const PlanRequest& request,
                       std::optional<Device> gpu, const NetworkModules& modules) {
  if (!gpu && backend_available(Device::CUDA)) gpu = Device(Device::CUDA, 0);
  std::string why_not;
  const PlanFacts facts = memory_facts(pipeline, options, gpu, &why_not, modules);
  MemoryPlan plan = plan_memory(facts, request);
  if (!why_not.empty()) plan.notes.push_back("activations are not in it: " + why_not);
  return plan;
}

namespace {

// The networks that a plan put where they are, and those that come and go.
class PlannedNetworks final : public Placement {
 public:
  explicit PlannedNetworks(DiffusionPipeline& pipeline) : graphs_(pipeline.graphs) {
    for (auto& slot : pipeline.components())
      if (slot.network()) networks_.push_back({slot.name, slot.shared_network(), {}});
  }

  bool are_of(DiffusionPipeline& pipeline) const {
    size_t same = 0, networks = 0;
    for (auto& slot : pipeline.components()) {
      if (!slot.network()) continue;
      ++networks;
      for (auto& n : networks_) same += n.name == slot.name && n.component == slot.shared_network();
    }
    return same == networks && networks == networks_.size();
  }

  void carry_out(const MemoryPlan& plan) {
    for (auto& n : networks_) {
      SF_CHECK(plan.find(n.name), "apply_memory_plan: the plan is of another pipeline and has no ", n.name);
      models::Model* model = n.component->model();
      SF_CHECK_AS(NotSupported, model || plan.find(n.name)->residency == Residency::Resident,
                  "apply_memory_plan: ", n.name, " comes and goes in this plan, and is no C++ model");
      SF_CHECK(!model || n.streamer || !nn::Streamer::of(*model), "apply_memory_plan: the weights of ", n.name,
               " are streamed already; take that off first");
    }
    SF_CHECK(networks_.size() == plan.parts.size(), "apply_memory_plan: the plan is of another pipeline with ",
             plan.parts.size(), " networks, this one has ", networks_.size());
    graphs_->clear();
    std::vector<Device> before;
    for (auto& n : networks_) before.push_back(n.streamer ? Device() : n.component->device());
    try {
      std::vector<Network*> anew;
      for (auto& n : networks_) {
        const auto evicted = n.streamer ? plan.bytes_to_evict(plan_, *plan.find(n.name)) : std::nullopt;
        if (!evicted || (*evicted > 0 && n.streamer->evict(*evicted) == 0)) anew.push_back(&n);
      }
      for (auto* n : anew) n->streamer.reset();
      for (bool arrives : {false, true})  // what leaves a device makes room on it
        for (auto* n : anew) {
          models::Model* model = n->component->model();
          const PartPlan& part = *plan.find(n->name);
          const bool stays_on_device = part.on_device && part.residency == Residency::Resident;
          if (!model || stays_on_device != arrives) continue;
          if (const Device device = arrives ? Device(plan.device) : Device(); model->device() != device)
            nn::to(*model, {.device = device});
          if (auto options = plan.stream_options(part, part.on_device ? on_gpu_ : on_host_))
            n->streamer = std::make_unique<nn::Streamer>(*model, *options);
        }
    } catch (...) {
      for (auto& n : networks_) n.streamer.reset();
      for (size_t i = 0; i < networks_.size(); ++i)
        if (auto* model = networks_[i].component->model()) nn::to(*model, {.device = before[i]});
      plan_ = {};
      throw;
    }
    plan_ = plan;
    measured_.emplace(plan.device_peak ? std::optional(Device(plan.device)) : std::nullopt);
  }

  std::string peaks() const override { return plan_.peaks(&*measured_); }

  bool make_room() override {
    auto less = plan_.with_less();
    if (less) carry_out(*less);
    return bool(less);
  }

 private:
  struct Network {
    std::string name;
    Ref<Component> component;
    std::unique_ptr<nn::Streamer> streamer;  // goes before its model
  };
  Ref<DenoiserGraphs> graphs_;
  MemoryPlan plan_;  // that is carried out; of nothing at first
  std::optional<PeakMemory> measured_;
  std::shared_ptr<nn::StreamPhases> on_gpu_ = std::make_shared<nn::StreamPhases>(),
                                    on_host_ = std::make_shared<nn::StreamPhases>();
  std::vector<Network> networks_;
};

}  // namespace

void apply_memory_plan(DiffusionPipeline& pipeline, const MemoryPlan& plan) {
  auto networks = std::dynamic_pointer_cast<PlannedNetworks>(pipeline.placement);
  if (!networks || !networks->are_of(pipeline)) networks = std::make_shared<PlannedNetworks>(pipeline);
  networks->carry_out(plan);
  if (auto vae = pipeline.the_autoencoder()) vae->save(plan.vae);
  pipeline.savings = plan.savings();
  pipeline.placement = std::move(networks);
}

}  // namespace sf::diffusion
