// Pipelines in folders, as diffusers writes them: model_index.json, and a folder for each component.
#pragma once
#include "scaffolding/diffusion/pipelines/pipeline.h"
#include "scaffolding/io/hub.h"
#include "scaffolding/models/model_files.h"

namespace sf::diffusion {

// model_index.json. A row without a class is a component that is left out (safety_checker: [null, null]).
struct PipelineIndex {
  struct Row {
    std::string name, library, class_name;
  };
  std::string class_name;  // of the pipeline
  std::vector<Row> rows;
  std::optional<double> guidance_scale;                         // "_guidance_scale", a key of our own which diffusers passes over
  io::Object config = io::Object::container(io::Object::Dict);  // its other fields
};
// ValueError naming file and entry for what is none.
PipelineIndex read_pipeline_index(const std::string& folder);
void write_pipeline_index(const PipelineIndex& index, const std::string& folder);  // the folder is made

// "model", "scheduler", "tokenizer", "ignored" (what pictures are checked and described with), or "none". ValueError naming the row for a class
// that is not known.
std::string component_kind(const PipelineIndex::Row& row);

// Whether a component's folder has weights of that variant.
bool has_weights(const std::string& folder, const std::string& library, const std::string& variant);

struct LoadPipelineOptions {
  std::string variant;  // "fp16"; components that have no such files are read without. ValueError where none has
  std::optional<DType> dtype;
  Device device = {};
  std::optional<bool> use_safetensors;
  io::HubOptions hub;  // where the folder is the name of a repository
};
struct LoadedPipeline {
  std::string class_name;
  PipelineComponents components;
  std::vector<std::string> ignored;  // components that have no use here
};
// A folder, or a repository of the hub ("organisation/name") in its cache, downloaded where that is allowed.
// For StableDiffusionPipeline pipe(load_pipeline(folder).components).
LoadedPipeline load_pipeline(const std::string& folder, const LoadPipelineOptions& options = {});

struct LoadSingleFileOptions {
  std::optional<DType> dtype;
  Device device = {};
  std::string config;           // a pipeline's folder: its tokenizers, which no checkpoint holds, its scheduler, and configs of networks of unusual size.
                                // "": those of the kind, the tokenizers out of the hub's repository of it
  std::string prediction_type;  // "epsilon", "v_prediction"; "": as the kind has it
  bool extract_ema = false;
  io::HubOptions hub;
};
// From one checkpoint file of Stable Diffusion 1.x, 2.x or XL, or its address on the hub.
LoadedPipeline load_single_file_pipeline(const std::string& path_or_link, const LoadSingleFileOptions& options = {});

// The text-to-picture pipeline (or the one of that name) of diffusers' class name. ValueError naming those there are for another.
std::unique_ptr<DiffusionPipeline> make_pipeline(const std::string& class_name, PipelineComponents components);

// Writes every component that is there, and model_index.json last.
void save_pipeline(const DiffusionPipeline& pipeline, const std::string& folder, const models::SaveModelOptions& options = {});

}  // namespace sf::diffusion
