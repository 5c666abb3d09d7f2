// TrainingLoop: the loop of a training run over its parts: accumulation, clipping, mixed precision, schedule, averages,
// captured steps, evaluation, checkpoints from which a run goes on bit for bit, metrics, and a stop before NaN reaches
// the weights. Trainer, in C++ and in Python, is a face of it. One thread; one run per output_dir.
#pragma once
#include <functional>
#include <map>

#include "scaffolding/optim/graphed_step.h"
#include "scaffolding/train/checkpoint_folders.h"
#include "scaffolding/train/nan_guard.h"
#include "scaffolding/train/training_parts.h"

namespace sf::train {

struct LoopOptions {
  RunOptions run;
  std::optional<uint64_t> seed;  // of the default generators, set when a run begins anew
  std::string resume;            // "latest", or a checkpoint folder
  bool cuda_graph = false;
  // in eval mode, without recording, on the averaged weights where there are some
  std::function<std::map<std::string, double>()> evaluate;
  std::function<void()> on_step_end;
  std::function<void(const std::string& folder)> on_checkpoint;  // after each that was written
  std::function<void()> save;  // called where a checkpoint is due, to call TrainingLoop::save; may be empty
};

class TrainingLoop {
 public:
  // Loads the checkpoint to resume from. ValueError for options that are impossible or contradict each other.
  TrainingLoop(Parts parts, LoopOptions options);
  TrainingLoop(const TrainingLoop&) = delete;

  // Trains to the end of the run, or until stop(). Called again, it goes on. RuntimeError for a loss or a gradient that
  // is not finite, and for a checkpoint that could not be written; what was written before is whole.
  FitResult fit();
  void stop() { stop_ = true; }  // after the step under way; for callbacks
  std::string save();            // a checkpoint now, between steps; its folder

  const RunState& state() const { return state_; }
  double loss();                                               // of the last step; waits for it
  std::vector<optim::GraphedStep::Statistics> graphs() const;  // of captured steps, for each form of batches
  std::shared_ptr<EventFile> tensorboard() const { return log_ ? log_->tensorboard() : nullptr; }  // during fit()
  // What is wrong with newer checkpoints that resume="latest" passed over.
  const std::vector<std::string>& damaged_checkpoints() const { return damaged_; }

 private:
  // of a checkpoint, in the order in which they are written and read
  std::vector<std::pair<std::string, Part*>> files() const;
  void load(const std::string& folder);
  void begin_with_peers();
  void go_on(RunState state, const std::string& folder);
  void save_with_peers();
  void save_alone();
  void save_if(bool due);
  void begin();
  void run(bool& stopped);
  void end();
  int64_t epochs() const { return parts_.data->epoch() - epochs_before_; }
  bool finished() const;
  bool next_batch();  // of this epoch or the next; false where the data ended
  bool plain_step();  // false: the data ended
  double micro_step();
  Tensor loss_of(const std::function<Tensor()>& loss) const;
  Tensor scaled(Tensor loss) const;
  Tensors gradients() const;
  double update();
  void follow(bool averages);
  using Forms = std::vector<std::pair<int64_t, size_t>>;  // of the batches of a step: their form, and how many tensors
  bool captured_step();
  Tensors step_to_capture(const Tensors& inputs, const Forms& forms);
  void settle(bool evaluation_due = false);
  bool evaluating() const { return o_.run.eval_steps && state_.step % *o_.run.eval_steps == 0; }
  std::map<std::string, double> evaluate();

  Parts parts_;
  LoopOptions o_;
  Named parameters_;  // of the model
  Tensors trained_;   // of the optimizer
  Device device_;
  // with a scale only the device knows whether a step was skipped, and a schedule and averages have to
  bool host_decides_;
  std::optional<CheckpointFolders> checkpoints_;
  std::optional<RunLog> log_;
  RunState state_;
  std::vector<std::string> damaged_;
  std::string newest_;
  // Steps that the host has not heard of: their losses and the norm, float64 on the device.
  struct Pending {
    int64_t step, epoch, samples;
    Value lr;
    Tensor results;
  };
  std::map<Forms, std::unique_ptr<optim::GraphedStep>> graphs_;
  std::vector<Pending> pending_;
  Tensor bad_;  // float32 []: 1 from the first loss or norm on that is not finite
  double loss_;
  int64_t saved_step_ = -1;
  int64_t epochs_before_ = 0;  // that the data had finished when the run began
  int barren_ = 0;             // epochs in a row without a batch; the first may be what was left of one
  bool stop_ = false, begun_ = false;
  bool others_stop_ = false;
};

}  // namespace sf::train
