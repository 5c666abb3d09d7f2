// One model out of a checkpoint of another program that holds it alone, or among things that nobody asks for: a
// training run's file of a transformer, without the rest of its pipeline. SingleFile takes whole pipelines apart.
#pragma once
#include "scaffolding/models/model_files.h"

namespace sf::models {

// The tensors of a model of this class and config under the names of any layout that the class has (SF_NAMES), or its
// own, with whatever prefix the file puts before all of them ("model.diffusion_model.", "module."); taken one by one
// from the mapped file. An empty config is that of the tensors' names and shapes where the class can tell it
// (config_of_weights), else the class's defaults. options: dtype and device. RuntimeError where the file cannot be
// read. ValueError for a file that holds no such model, lacks tensors of it, or has some of another shape.
std::unique_ptr<Model> load_single_model(const std::string& path, const std::string& class_name,
                                         const io::Object& config, const LoadModelOptions& options = {});

}  // namespace sf::models
