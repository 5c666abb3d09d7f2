// From a job's request to a run of the pipeline, and from its picture or clip to a file that says how it was made.
// Functions only; the worker's thread.
#pragma once
#include "scaffolding/diffusion/pipelines/hires.h"
#include "scaffolding/diffusion/pipelines/image_processor.h"
#include "scaffolding/server/jobs/encoded_prompts.h"
#include "scaffolding/server/jobs/history.h"
#include "scaffolding/server/jobs/samplers.h"

namespace sf::server {

// A picture that a stranger sent, uint8 [C, H, W]. ValueError naming `field` for what is none, is damaged, or has more
// than most_pixels.
Tensor picture_of(const std::string& field, std::string_view bytes, int64_t most_pixels, bool grey = false);

// The making of the picture at one place of a job, in steps: the pipeline's run, or the two of a hires fix, and what is
// done with its picture afterwards. The worker's thread.
class PictureRun {
 public:
  // prompts: the model's. ValueError for settings that the pipeline does not take.
  PictureRun(const diffusion::DiffusionPipeline& pipeline, const JobRequest& request, int64_t place,
             const History& history, const Samplers& samplers, EncodedPrompts& prompts);
  bool done() const;
  void skip() { skipped_ = true; }  // the steps that remain are left out: between steps
  void step();                      // begins the second pass where the first is done
  // What does the next step, for those who take it with others: as step() begins it.
  diffusion::Run& next_run();
  int64_t at() const { return before_ + int64_t(run_->at()); }  // steps that were done, of both passes
  int64_t steps() const { return steps_; }
  int64_t rows() const { return run_->rows(); }  // of its calls of the denoiser
  const Tensor& latents() const { return run_->latents; }
  Tensor still() const { return run_->still(run_->latents); }  // [1, C, h, w]: of a clip its first frame
  bool is_clip() const { return clip_; }
  struct Made {
    int64_t height = 0, width = 0, frames = 1;
    Tensor latents;                     // its first frame was decoded from these...
    Tensor decoded;                     // ...to this, [H, W, 3], before it was put into another picture
    std::function<std::string()> file;  // makes its bytes, on any thread, once
    std::string suffix;
  };
  // scratch: as clip_bytes() has it. Stopped where that is asked for meanwhile.
  Made finish(const WeightTypes& weights, const std::string& scratch, const diffusion::DecodeProgress& progress = {});

 private:
  void check_kind();
  void set_options();
  void give_pictures(const History& history);
  void give_controls(const History& history);
  nlohmann::ordered_json settings(const WeightTypes& weights, int64_t height, int64_t width) const;
  Tensor filled_latents(const Tensor& image, const Tensor& mask) const;
  JobRequest request_;
  int64_t place_;
  std::shared_ptr<diffusion::DiffusionPipeline> pipeline_;
  diffusion::AnyOptions options_;
  std::optional<diffusion::Hires> hires_;
  std::unique_ptr<diffusion::Run> run_;
  double fps() const;  // of a clip: what was asked for, else what the model is told, else usual
  bool clip_ = false, second_ = false, skipped_ = false;
  int64_t before_ = 0, steps_ = 0;
  std::vector<diffusion::CallRows> calls_before_;  // of the first pass
  double guidance_;
  Tensor original_, mask_;  // that the picture is put into: uint8 [3, H, W], [1, H, W]
  std::optional<diffusion::CropBox> crop_;
};

// Options of a call that a request may set by their names as text: of all pipelines of the task.
std::vector<std::string> option_names(diffusion::Task task);
// Trajectories of JSON as a pipeline's text of them: a text, or a list with a text or a list of points [x, y] for each.
// ValueError naming the field.
std::string trajectories_text(const std::string& name, const json& value);
// A value of JSON as text for an option. ValueError for what is none.
std::string option_text(const std::string& name, const json& value);

// As the web UI writes it: the text of a picture's "parameters".
std::string parameters_text(const JobRequest& request, int64_t place, const char* scheduler, int64_t width,
                            int64_t height, double guidance);
double guidance_of(const JobRequest& request, const diffusion::DiffusionPipeline& pipeline);

}  // namespace sf::server
