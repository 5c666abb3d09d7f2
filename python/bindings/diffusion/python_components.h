// The parts of a pipeline in Python as the C++ loops see them: models of ours as they are, whatever Python overrides or
// brings along by calls through Python. They hold their objects; any thread may use and drop them.
#pragma once
#include <memory>
#include <string>

#include "python/bindings/core/bind_arguments.h"
#include "scaffolding/diffusion/pipelines/pipeline.h"

namespace sf::py {

// The class's pipeline around Python's components: {name: component}, with the class's other fields, "graphs" and
// "savings", and "make_room": a callable, of a memory plan. TypeError for a component of another kind.
std::unique_ptr<diffusion::DiffusionPipeline> pipeline_of(const std::string& class_name, nb::dict parts);

// The scheduler of C++ in a Python one's `_core`, which keeps it alive; null for what has none.
diffusion::Scheduler* native_scheduler(nb::handle o);

}  // namespace sf::py
