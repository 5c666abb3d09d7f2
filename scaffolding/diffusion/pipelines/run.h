// Run: one call of a pipeline between its steps. prepare() makes it; step() does one timestep; finish() makes pictures
// of what is there. A call drives one to its end; whoever wants to show, stop, thin out or interleave runs drives them
// itself:
//   auto run = pipe.start(options);
//   while (!run->done()) run->step();
//   PipelineOutput out = run->finish();
// Runs that take turns need a scheduler each (options.scheduler = fresh_scheduler(*pipe.scheduler)). One thread at a
// time for those that share networks.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <stop_token>

#include "scaffolding/core/stopping.h"
#include "scaffolding/diffusion/pipelines/denoising.h"

namespace sf::diffusion {

class DenoiserRun;
class DiffusionPipeline;

using sf::Stopped;  // a run that was stopped before it was done, by the token of its options or a StopWhen

// What a callback sees at the end of a step, and may change. Tensors have diffusers' names; with guidance on, those
// with a negative and a positive half hold both, the negative one first.
struct StepState {
  int64_t step = 0;
  Tensor timestep;  // 0-d
  std::map<std::string, Tensor*> tensors;
  Guidance& guidance;
  bool interrupt = false;  // true: the steps that remain are left out, and what is there is decoded
};
using StepCallback = std::function<void(StepState& state)>;
using StepProgress = std::function<void(int64_t done, int64_t total)>;
using DecodeProgress = std::function<void(double done)>;  // the share of all frames that are there, up to 1

// What is heard with clips; undefined of families that make none.
struct Sound {
  Tensor values;              // [B, channels, samples] about -1 to 1; or latents, of a run that was asked for those
  int64_t sampling_rate = 0;  // samples of a second
};

struct PipelineOutput {
  Tensor images;  // [B, 3, H, W] in [0, 1]; of clips [B, T, 3, H, W]; or latents
  Sound sound;
  std::vector<std::string> truncated;   // parts of prompts that did not fit
  std::vector<std::string> makeshifts;  // Run::makeshifts
};

struct PipelineFrames {
  std::vector<Tensors> clips;  // of each its frames, uint8 [H, W, 3], on the autoencoder's device
  Sound sound;
  std::vector<std::string> truncated, makeshifts;
};

// What a run does to take less memory, beside where its networks are: a memory plan says it (diffusion/memory/plan.h).
struct RunSavings {
  bool sequential_guidance = false;  // whatever the call's options say
  bool between_phases = false;  // freed memory, and that of captured calls, is given back before latents are decoded,
  int64_t every_steps = 0;      // and after so many steps; 0: not
};

// Steps after each other whose calls of the denoiser had so many rows, those of the run from `place` on: a picture's
// last bits depend on both (shared_steps.h). A sample is a row, or two where both halves of guidance are in one call.
struct CallRows {
  int64_t steps = 0, place = 0, rows = 0;
};

// Who put a pipeline's networks where they are, and can put them so that they take less of the GPU's memory
// (diffusion/memory/pipeline_memory.h). Shared by pipelines of the same networks.
class Placement {
 public:
  virtual ~Placement() = default;
  // Between calls of the networks: a part of the memory less at the peak, or false, and all is as it was.
  virtual bool make_room() = 0;
  // Lines of text: predicted peaks of memory, and those measured since the networks were put there.
  virtual std::string peaks() const { return {}; }
};

class Run {
 public:
  virtual ~Run() = default;

  bool done() const { return interrupted_ || at_ >= schedule.size(); }
  size_t at() const { return at_; }  // steps of the schedule that were done
  void step();                       // Stopped where that was asked for; RuntimeError where the run is done
  PipelineOutput finish();           // at any time between steps
  // The same as bytes, rounded to the nearest, half to even; a picture is a clip of one frame. What the autoencoder
  // decodes part by part becomes bytes as it comes, so that no clip is in memory as floating numbers. ValueError of a
  // run that was asked for latents. progress: after each part; where memory runs out, it begins anew.
  PipelineFrames finish_frames(const DecodeProgress& progress = {});
  // Pictures [n, 3, H, W] in [0, 1] of the first n samples as they are now, of clips [n, T, 3, H, W]; 0: of all.
  Tensor preview(int64_t n = 0) const;
  std::vector<Tensors> preview_frames(int64_t n = 0) const;  // as finish_frames() has them
  // Of the latents what is decoded, in the autoencoder's shape, of a family whose run has more or another one.
  virtual Tensor decodable(const Tensor& latents) const { return latents; }
  // Of a run that was asked for latents: what it returns.
  virtual Tensor returned_latents() const { return latents; }
  virtual Sound sound() const { return {}; }  // as the latents are now
  // Latents as a picture's [B, C, h, w]: of clips those of the first frame.
  virtual Tensor still(const Tensor& latents) const { return latents; }
  void interrupt() { interrupted_ = true; }  // the steps that remain are left out
  // What it did besides since memory ran out: "guidance in two calls". Empty where all was done as asked.
  const std::vector<std::string>& makeshifts() const { return makeshifts_; }
  const std::vector<CallRows>& calls() const { return calls_; }               // of the steps that were done
  int64_t rows() const { return latents.size(0) * (guidance.on() ? 2 : 1); }  // of a call of its own
  // Only the samples with these places in the batch go on, in this order. ValueError for places that are not there.
  void keep_samples(const std::vector<int64_t>& places);

  // What a training run beside the denoiser asks. The times that it is told for a scheduler's timesteps [B]: these, or
  // NotSupported where `schedule` has others and the family does not say which. Latents [B, C, h, w] as its samples
  // are, and what its output is to the scheduler, in the latents' shape. Calls of one sample each, without guidance, as
  // one call of all.
  virtual Tensor told_times(const Tensor& timesteps) const;
  virtual Tensor as_sample(const Tensor& latents) const { return latents; }
  virtual Tensor as_predicted(const Tensor& output) const { return output; }
  virtual DenoiserCall joined(const std::vector<DenoiserCall>& calls) const;

  // What prepare() sets. In `told`, all but the shared have 2 B samples where guidance is on.
  Ref<Denoiser> denoiser;  // that the steps call; absent: the pipeline's own
  Ref<Scheduler> scheduler;
  StepSchedule schedule;
  StepOptions step_options;
  Guidance guidance;
  Tensor latents;  // [B, ...]
  DenoiserCall told;
  bool shares_calls = true;     // false: what it tells or asks its denoiser changes from step to step (shared_steps.h)
  int64_t output_channels = 0;  // of the denoiser's output, those before the variance that it predicts besides; 0: all
  std::map<std::string, Tensor*> tensors;  // what a callback sees, by diffusers' names; members of this run
  std::vector<std::string> truncated;
  bool output_latents = false;

 protected:
  virtual void prepare_step() {}  // before each: what a callback changed may have to reach the denoiser
  // The denoiser's guided output for these of the samples, told what `call` says, at this step. A family may ask for
  // more than guidance does; its runs then share no calls with others (shares_calls).
  virtual Tensor predicted(Denoiser& denoiser, const Tensor& samples, const DenoiserCall& call);
  // The latents after a step from the denoiser's guided output; families change what is special there.
  virtual void advance(const Tensor& model_output);
  virtual void keep_more(const Tensor& /*places*/) {}  // the tensors of B samples that a family has besides
  // Decoded values [B, 3, H, W], about -1 to 1, as large as was asked for: of a family that computes in another size.
  // Clips [B, 3, T, H, W] as [B, T, 3, H, W].
  virtual Tensor shaped(const Tensor& values) const { return values; }

 private:
  friend class DiffusionPipeline;
  friend class SharedSteps;
  void begin_step();
  void end_step(int64_t place, int64_t rows);
  Tensor pictures_of(const Tensor& latents) const;  // PipelineOutput::images, float32
  std::vector<Tensors> frames_of(const Tensor& latents,
                                 const DecodeProgress& progress = {}) const;  // PipelineFrames::clips
  Tensor first_samples(int64_t n) const;                                      // latents; 0: of all
  StopWhen stops() const;                                                     // while latents are decoded
  void leave_steps() const;                                                   // before latents are decoded
  Tensor noise();
  Tensor noise_within_memory();
  bool make_room() const;
  void say_room_was_made() const;
  void decode_within_memory(const std::function<void()>& decode) const;
  [[noreturn]] void fail_out_of_memory(const Error& e) const;
  void give_back() const;  // what allocators keep of freed tensors
  std::shared_ptr<const DiffusionPipeline> pipeline_;
  std::shared_ptr<DenoiserRun> denoiser_;
  RunSavings savings_;
  StepCallback callback_;
  StepProgress progress_;
  std::stop_token stop_;
  size_t at_ = 0;
  int64_t warmup_ = 0, done_ = 0;
  int64_t samples_ = 0;  // of the denoiser's calls at most; 0: all
  bool interrupted_ = false;
  std::vector<CallRows> calls_;
  mutable std::vector<std::string> makeshifts_;
};

}  // namespace sf::diffusion
