#include "scaffolding/diffusion/memory/pipeline_memory.h"

#include <algorithm>
#include <set>

#include "scaffolding/backend/free_memory.h"
#include "scaffolding/core/error.h"
#include "scaffolding/io/file.h"
#include "scaffolding/nn/adapter.h"

namespace sf::diffusion {

namespace {

struct WeightBytes {
  int64_t all = 0, on_device = 0, in_memory = 0;  // on a GPU; on the host and no pages of a file
};

// Of each storage once, adapters included.
WeightBytes weight_bytes(nn::Module& module, std::set<const Storage*>& seen) {
  WeightBytes out;
  auto add = [&](const Tensor& t) {
    if (!t || !t.storage() || !seen.insert(t.storage().get()).second) return;
    // a tensor that borrows a part of a larger storage counts with its own bytes
    const int64_t bytes = int64_t(std::min<size_t>(t.storage()->bytes, t.nbytes()));
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

bool has_weights(nn::Module& module) {  // of its own
  return !nn::named_parameters(module, "", false).empty() || !nn::named_buffers(module, "", false).empty();
}

// Whether the module or what is below it became a block.
bool add_blocks(nn::Module& module, bool numbered, std::vector<nn::Module*>& blocks) {
  nn::Descent down(module);
  bool below = false;
  for (auto& child : nn::named_children(module)) {
    const bool number = child.name.find_first_not_of("0123456789") == child.name.npos;
    below = add_blocks(*child.module, number, blocks) || below;
  }
  if (below || !numbered || module.is_list()) return below;
  const auto all = nn::named_modules(module);
  if (std::count_if(all.begin(), all.end(), [](auto& m) { return has_weights(*m.module); }) < 2) return false;
  blocks.push_back(&module);
  return true;
}

// How weights are stored: the dtype of most of their bytes, or what quantised layers have.
std::string format_of(nn::Module& model) {
  std::map<std::string, int64_t> bytes;
  for (auto& m : nn::named_modules(model)) {
    const std::string_view type = m.module->type();
    const char* quantised = type == "LinearNF4" ? "nf4" : type == "LinearFP8" ? "float8" : nullptr;
    if (quantised)
      for (auto& b : nn::named_buffers(*m.module)) bytes[quantised] += int64_t(b.tensor.nbytes());
  }
  for (auto& p : nn::named_parameters(model)) bytes[std::string(name(p.tensor.dtype()))] += int64_t(p.tensor.nbytes());
  auto most = std::max_element(bytes.begin(), bytes.end(), [](auto& a, auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "" : most->first;
}

PartKind kind_of(const ComponentSlot& slot) {
  return slot.as<Ref<Denoiser>>()      ? PartKind::Denoiser
         : slot.as<Ref<Autoencoder>>() ? PartKind::Autoencoder
                                       : PartKind::TextEncoder;
}

}  // namespace

std::vector<int64_t> bytes_of_repeated_blocks(nn::Module& module) {
  std::vector<nn::Module*> blocks;
  add_blocks(module, false, blocks);
  std::vector<int64_t> out;
  std::set<const Storage*> seen;
  for (auto* block : blocks)
    if (const int64_t bytes = weight_bytes(*block, seen).all) out.push_back(bytes);
  return out;
}

PlanFacts memory_facts(const DiffusionPipeline& pipeline, const AnyOptions& options, std::optional<Device> gpu,
                       std::string* why_not, const NetworkModules& modules) {
  PlanFacts facts;
  facts.pipeline = pipeline.name();
  int64_t device_now = 0, host_now = int64_t(cpu::cached_bytes());
  std::set<const Storage*> seen;
  for (auto& slot : const_cast<DiffusionPipeline&>(pipeline).components()) {
    Component* network = slot.network();
    if (!network) continue;
    auto at = modules.find(slot.name);
    nn::Module* model = network->model() ? network->model() : at == modules.end() ? nullptr : at->second;
    PartFacts part{.name = slot.name, .kind = kind_of(slot)};
    if (model) {
      const WeightBytes bytes = weight_bytes(*model, seen);
      part.type = model->type(), part.format = format_of(*model);
      part.bytes = bytes.all, part.blocks = bytes_of_repeated_blocks(*model);
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
    facts.total_device = int64_t(accelerator(*gpu).memory(gpu->index).total);
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

void apply_memory_plan(DiffusionPipeline& pipeline, const MemoryPlan& plan) {
  struct Move {
    ComponentSlot slot;
    const PartPlan* part;
  };
  std::vector<Move> moves;
  for (auto& slot : pipeline.components()) {
    if (!slot.network()) continue;
    const PartPlan* part = plan.find(slot.name);
    SF_CHECK(part, "apply_memory_plan: the plan is of another pipeline and has no ", slot.name);
    SF_CHECK_AS(NotSupported, part->residency == Residency::Resident || !part->on_device,
                "apply_memory_plan: ", slot.name, " comes and goes in this plan, which needs a streamer");
    moves.push_back({slot, part});
  }
  SF_CHECK(moves.size() == plan.parts.size(), "apply_memory_plan: the plan is of another pipeline with ",
           plan.parts.size(), " networks, this one has ", moves.size());
  pipeline.graphs->clear();
  for (auto& m : moves) {
    Component& network = *m.slot.network();
    const Device device = m.part->on_device ? Device(plan.device) : Device();
    if (network.model() && network.device() != device) nn::to(*network.model(), {.device = device});
    if (auto* vae = m.slot.as<Ref<Autoencoder>>()) (*vae)->save(plan.vae);
  }
  pipeline.savings = plan.savings();
}

}  // namespace sf::diffusion
