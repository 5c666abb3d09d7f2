// Trainer: the loop around a step function: accumulation, clipping, mixed precision, schedule, averages, checkpoints from
// which a run goes on bit for bit, in Python too, metrics, and a stop before NaN reaches the weights.
//   train::Trainer trainer(model, optimizer, loader, [&](data::Batch& b) { return nn::mse_loss(model(b.image), b.target); },
//                          {.run = {.output_dir = "runs/a", .max_epochs = 10}, .scheduler = &schedule});
//   trainer.fit();
// Keeps references to all of them. One thread; one run per output_dir.
#pragma once
#include <functional>
#include <iosfwd>

#include "scaffolding/data/dataloader.h"
#include "scaffolding/io/object.h"
#include "scaffolding/nn/module.h"
#include "scaffolding/optim/optim.h"
#include "scaffolding/train/checkpoint_folders.h"
#include "scaffolding/train/nan_guard.h"
#include "scaffolding/train/run_log.h"

namespace sf::train {

class Trainer;

struct TrainerOptions {
  RunOptions run;
  optim::LRScheduler* scheduler = nullptr;  // stepped after each optimizer step
  optim::EMAModel* ema = nullptr;           // of nn::parameters(model)
  std::optional<uint64_t> seed;             // of the default generators, set when a run begins anew
  std::string resume;                       // "latest", or a checkpoint folder
  // Numbers by name, every run.eval_steps: called in eval mode, without recording, on the averaged weights where there is an ema.
  std::function<std::map<std::string, double>()> evaluate;
  std::function<void(Trainer&)> on_step_end;
  std::function<void(Trainer&, const std::string& folder)> on_checkpoint;  // after each that was written
  bool quiet = false;
  // On CUDA: a step (all of its batches, to the averages) is captured once for each shape and replayed, with the same numbers. Needs the constructor with
  // `prepare`; the optimizer becomes capturable. Nothing waits for the GPU but every run.logging_steps, before an evaluation, a checkpoint and the end (with
  // fp16, a schedule or averages: every step). That is where a loss that is NaN is found; from its step on, no weight has changed.
  bool cuda_graph = false;
  std::ostream* progress = nullptr;  // where the progress line goes; without one, standard error
  bool stop_on_interrupt = true;     // the first SIGINT saves a checkpoint and ends fit()
};

struct FitResult {
  bool stopped = false;  // by SIGINT or stop()
  int64_t step = 0, epoch = 0;
  double loss = 0;         // of the last step
  std::string checkpoint;  // the newest; empty without an output_dir
};

class Trainer {
 public:
  // The loss of a batch: 0-d, on the tape. Called under autocast where mixed_precision asks for it.
  using Step = std::function<Tensor(data::Batch& batch)>;
  // Loads the checkpoint to resume from. ValueError for arguments that are impossible or contradict each other.
  Trainer(nn::Module& model, optim::Optimizer& optimizer, data::DataLoader& loader, Step step, TrainerOptions options);
  // A step in two parts: what the host makes of a batch, tensors of which there are always as many, and the loss of those once they are on the model's
  // device, which must do the same for every batch where steps are captured.
  using Prepare = std::function<Tensors(data::Batch& batch)>;
  using PreparedStep = std::function<Tensor(const Tensors& inputs)>;
  Trainer(nn::Module& model, optim::Optimizer& optimizer, data::DataLoader& loader, Prepare prepare, PreparedStep step, TrainerOptions options);

  // Trains to the end of the run, or until stop(). Called again, it goes on. RuntimeError for a loss or a gradient that is not
  // finite, and for a checkpoint that could not be written; what was written before is whole.
  FitResult fit();
  void stop() { stop_ = true; }  // after the step under way; for callbacks
  std::string save();            // a checkpoint now, between steps; its folder

  int64_t step() const { return state_.step; }
  const RunState& state() const { return state_; }
  double loss();                                                             // of the last step; waits for it
  optim::GraphedStep::Statistics graphs() const;                             // of captured steps
  EventFile* tensorboard() { return log_ ? log_->tensorboard() : nullptr; }  // during fit()
  // What is wrong with newer checkpoints that resume="latest" passed over.
  const std::vector<std::string>& damaged_checkpoints() const { return damaged_; }

 private:
  void load(const std::string& folder);
  void write_checkpoint(const std::string& folder);
  void begin();
  int64_t epochs() const { return loader_.epoch() - epochs_before_; }
  bool finished() const;
  std::optional<data::Batch> next_batch();  // of this epoch or the next; none where the data ended
  bool train_step(StepRecord& record);      // false: the data ended
  double micro_step(data::Batch& batch);
  Tensor loss_of(const std::function<Tensor()>& step) const;
  void backward(Tensor loss);
  Tensors gradients() const;
  void make_capturable();
  bool captured_step();
  Tensors step_to_capture(const Tensors& inputs);
  void settle(bool evaluating = false);
  double update();
  std::map<std::string, double> evaluate();
  void show(const std::string& text) const;

  nn::Module& model_;
  optim::Optimizer& optimizer_;
  data::DataLoader& loader_;
  Step step_;
  Prepare prepare_;
  PreparedStep prepared_;
  TrainerOptions o_;
  Named parameters_;  // of the model
  Tensors trained_;   // of the optimizer
  std::optional<CheckpointFolders> checkpoints_;
  std::optional<optim::GradScaler> scaler_;
  std::optional<RunLog> log_;
  std::optional<int64_t> last_step_;
  RunState state_;
  std::optional<io::Object> random_states_;  // to be set when fit() begins
  std::vector<std::string> damaged_;
  std::string newest_;
  // Steps that the host has not heard of: their losses and the norm, float64 on the device.
  struct Pending {
    StepRecord record;
    int64_t step, epoch;
    Tensor results;
  };
  std::unique_ptr<optim::GraphedStep> graphed_;
  std::vector<Pending> pending_;
  Tensor bad_;  // float32 []: 1 from the first loss or norm on that is not finite
  double loss_ = 0;
  int64_t saved_step_ = -1;
  int64_t epochs_before_ = 0;  // that the loader had finished when the run began
  bool stop_ = false, begun_ = false;
};

}  // namespace sf::train
