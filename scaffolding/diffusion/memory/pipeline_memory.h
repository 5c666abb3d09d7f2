// A memory plan for a pipeline at hand: its facts, and the plan carried out.
#pragma once
#include "scaffolding/diffusion/memory/plan.h"

namespace sf::diffusion {

// Of the pipeline's networks as they are, for a call with these options (their values do not matter but for sizes), on
// this machine with that GPU; without one where there is none. What the networks take of a memory now counts as free:
// the plan puts them anew. Where activations cannot be counted, they are 0 and `why_not` says so.
PlanFacts memory_facts(const DiffusionPipeline& pipeline, const AnyOptions& options, std::optional<Device> gpu,
                       std::string* why_not = nullptr, const NetworkModules& modules = {});

// memory_facts and plan_memory. gpu: absent, cuda:0 where it is there.
MemoryPlan plan_memory(const DiffusionPipeline& pipeline, const AnyOptions& options, const PlanRequest& request = {},
                       std::optional<Device> gpu = {}, const NetworkModules& modules = {});

// Moves the networks, streams those that come and go (pipeline.placement), and sets guidance, cleanup and how pictures
// are decoded for all calls from now on. Calls that run out of memory go on with less of the networks on the GPU.
// Another plan takes this one's place. Before anything is moved: NotSupported naming a network that would come and go
// and is no C++ model, ValueError for one that somebody else streams.
void apply_memory_plan(DiffusionPipeline& pipeline, const MemoryPlan& plan);

}  // namespace sf::diffusion
