// What a model on the disk is, for a listing of many: told by names, shapes and dtypes in its header (or a folder's
// configs) alone, so that neither a large file nor a hostile one costs more than kMostHead bytes.
#pragma once
#include "scaffolding/io/checkpoint.h"
#include "scaffolding/io/hub/local_models.h"

namespace sf::models {

struct ModelDescription {
  // "model": one file with a denoiser and what belongs to it; "pipeline": a folder in diffusers' layout; "lora", "vae",
  // "upscaler", "embedding"; "part": another network alone; "other"; "broken": `problem` says why
  std::string kind;
  std::string title;       // "Stable Diffusion XL inpainting", "StableDiffusionPipeline"
  std::string precision;   // of most of its numbers: "float16", "Q4_K"; of a pipeline its denoiser's. "": not known
  int64_t parameters = 0;  // of a pipeline its denoiser's
  uint64_t bytes = 0;      // on the disk
  std::string problem;
};

// The kinds, in the order in which a listing shows them.
const std::vector<std::string>& described_kinds();

// Of a file that is open, whose folder is for `use`.
ModelDescription describe_checkpoint(const io::Checkpoint& file, const std::string& path, io::ModelUse use);
// Of one that was found. Throws nothing of the file's making.
ModelDescription describe_model(const io::LocalModel& model);

}  // namespace sf::models
