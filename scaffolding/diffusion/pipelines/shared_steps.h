// SharedSteps: runs of the same networks that share calls of the denoiser, each with its own timestep, prompt, guidance
// and scheduler. They join and leave between steps:
//   SharedSteps shared;
//   if (SharedSteps::fit(*a, *b)) shared.step({a, b});
// A row's last bits depend on how many rows its call has and on its place there, not on what the others are:
// Run::calls() says both for each step, and step_beside() repeats them beside rows of zeros. One thread at a time.
#pragma once
#include <exception>

#include "scaffolding/diffusion/pipelines/run.h"

namespace sf::diffusion {

class SharedSteps {
 public:
  // Whether a call can have both: it is of one denoiser, and what it is told has the same names, dtypes and sizes.
  static bool fit(const Run& a, const Run& b);

  // A step of each of runs that fit, in this order. What the call itself throws, OutOfMemory above all, leaves all of
  // them as they were; what a run's own part of the step throws comes back at its place, and the others went on.
  std::vector<std::exception_ptr> step(const std::vector<Run*>& runs);
  // The run's step in a call of so many rows, its own from `place` on. ValueError where they are no rows that it has.
  void step_beside(Run& run, int64_t place, int64_t rows);

 private:
  // An argument of the call that stays from step to step, so that what is made of the text stays too.
  struct Joined {
    std::vector<Tensor> parts;
    std::vector<uint32_t> versions;
    int64_t place = 0, rows = 0;
    Tensor tensor;
  };
  std::vector<std::exception_ptr> call(const std::vector<Run*>& runs, int64_t place, int64_t rows);
  Tensor joined(size_t argument, bool is_text, const std::vector<Tensor>& parts, int64_t place, int64_t rows);

  std::shared_ptr<DenoiserRun> denoiser_;
  std::shared_ptr<const DiffusionPipeline> of_;  // whose denoiser that is
  Ref<Denoiser> denoiser_of_;                    // that one calls
  std::vector<Joined> kept_;                     // by the argument's place
};

}  // namespace sf::diffusion
