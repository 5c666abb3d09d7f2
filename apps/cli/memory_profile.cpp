#include "apps/cli/memory_profile.h"

#include <algorithm>
#include <iostream>

#include "scaffolding/diffusion/memory/pipeline_memory.h"

namespace sf::cli {

bool is_planned(const GenerationSettings& s) { return !s.profile.empty() || !s.max_vram.empty() || !s.max_ram.empty(); }

void carry_out_plan(const char* command, const GenerationSettings& s, diffusion::DiffusionPipeline& pipeline) {
  diffusion::PlanRequest request;
  if (!s.profile.empty()) request.profile = s.profile;
  if (!s.max_vram.empty()) request.max_vram = diffusion::bytes_of("--max-vram", s.max_vram);
  if (!s.max_ram.empty()) request.max_ram = diffusion::bytes_of("--max-ram", s.max_ram);
  std::optional<Device> gpu;
  if (Device device(s.device); device.is_cuda()) gpu = device;
  // Pictures to begin with are as large as those that come out.
  const int64_t batch = std::min(s.batch, s.count);
  GenerationSettings largest = s;
  if (s.hires && *s.hires > 1) {  // of the second pass
    const auto size = pipeline.size(s.height, s.width);
    auto larger = [&](int64_t pixels) { return int64_t(double(pixels) * std::min(*s.hires, 8.0)) / 8 * 8; };
    largest.height = larger(size.height), largest.width = larger(size.width);
  }
  diffusion::AnyOptions call = batch_options(command, largest, pipeline, batch);
  const diffusion::AnyOptions shape =
      diffusion::options_for_shape(pipeline, {largest.height, largest.width, {}, batch});
  for (auto& field : call.fields())
    if (field.role == diffusion::OptionRole::Control)
      *std::get<Tensors*>(field.place) = *std::get<Tensors*>(shape.find(field.name)->place);
    else if (field.role != diffusion::OptionRole::Plain)
      *std::get<Tensor*>(field.place) = *std::get<Tensor*>(shape.find(field.name)->place);
  const diffusion::MemoryPlan plan = diffusion::plan_memory(pipeline, call, request, gpu);
  if (!s.quiet && !s.json) std::cerr << plan.str();
  diffusion::apply_memory_plan(pipeline, plan);
}

}  // namespace sf::cli
