// From a job's request to a run of the pipeline, and from its picture to a PNG that says how it was made. Functions
// only; the worker's thread.
#pragma once
#include "scaffolding/server/jobs/history.h"
#include "scaffolding/server/jobs/samplers.h"

namespace sf::server {

inline constexpr double kGuidance = 5;  // of models that advise none

// A picture that a stranger sent, uint8 [C, H, W]. ValueError naming `field` for what is none, is damaged, or has more
// than most_pixels.
Tensor picture_of(const std::string& field, std::string_view bytes, int64_t most_pixels, bool grey = false);

// The run of the picture at this place of the job. ValueError for settings that the pipeline does not take.
std::unique_ptr<diffusion::Run> start_run(const diffusion::DiffusionPipeline& pipeline, const JobRequest& request,
                                          int64_t place, const History& history, const Samplers& samplers);
// Options of a call that a request may set by their names as text: of all pipelines of the task.
std::vector<std::string> option_names(diffusion::Task task);
// A value of JSON as text for an option. ValueError for what is none.
std::string option_text(const std::string& name, const json& value);

// frame: uint8 [H, W, 3]. With the settings as `scaffolding txt2img --like` reads them and as the web UI writes them.
std::string png_of(const Tensor& frame, const JobRequest& request, int64_t place, const char* scheduler, DType dtype,
                   double guidance);
// As the web UI writes it: the text of a picture's "parameters".
std::string parameters_text(const JobRequest& request, int64_t place, const char* scheduler, int64_t width,
                            int64_t height, double guidance);
double guidance_of(const JobRequest& request, const diffusion::DiffusionPipeline& pipeline);

}  // namespace sf::server
