// Trainer: the loop around a step function: accumulation, clipping, mixed precision, schedule, averages, checkpoints
// from which a run goes on bit for bit, in Python too, metrics, and a stop before NaN reaches the weights.
//   auto loss = [&](data::Batch& b) { return nn::mse_loss(model(b.image), b.target); };
//   train::Trainer trainer(model, optimizer, loader, loss,
//                          {.run = {.output_dir = "runs/a", .max_epochs = 10}, .scheduler = &schedule});
//   trainer.fit();
// Keeps references to all of them; the loop is TrainingLoop. One thread; one run per output_dir.
#pragma once
#include <functional>
#include <iosfwd>
#include <map>

#include "scaffolding/data/dataloader.h"
#include "scaffolding/nn/module.h"
#include "scaffolding/optim/optim.h"
#include "scaffolding/train/event_file.h"
#include "scaffolding/train/run_state.h"

namespace sf::train {

class Trainer;

struct TrainerOptions {
  RunOptions run;
  optim::LRScheduler* scheduler = nullptr;  // stepped after each optimizer step
  optim::EMAModel* ema = nullptr;           // of nn::parameters(model)
  std::optional<uint64_t> seed;             // of the default generators, set when a run begins anew
  std::string resume;                       // "latest", or a checkpoint folder
  // Numbers by name, every run.eval_steps: called in eval mode, without recording,
  // on the averaged weights where there is an ema.
  std::function<std::map<std::string, double>()> evaluate;
  std::function<void(Trainer&)> on_step_end;
  std::function<void(Trainer&, const std::string& folder)> on_checkpoint;  // after each that was written
  bool quiet = false;
  // On CUDA: a step (all of its batches, to the averages) is captured once for each shape and replayed, with the same
  // numbers. Needs the constructor with `prepare`; the optimizer becomes capturable. Nothing waits for the GPU but
  // every run.logging_steps, before an evaluation, a checkpoint and the end (with fp16, a schedule or averages: every
  // step). That is where a loss that is NaN is found; from its step on, no weight has changed.
  bool cuda_graph = false;
  std::ostream* progress = nullptr;  // where the progress line goes; without one, standard error
  bool stop_on_interrupt = true;     // the first SIGINT saves a checkpoint and ends fit()
};

class Trainer {
 public:
  // The loss of a batch: 0-d, on the tape. Called under autocast where mixed_precision asks for it.
  using Step = std::function<Tensor(data::Batch& batch)>;
  // Loads the checkpoint to resume from. ValueError for arguments that are impossible or contradict each other.
  Trainer(nn::Module& model, optim::Optimizer& optimizer, data::DataLoader& loader, Step step, TrainerOptions options);
  // A step in two parts: what the host makes of a batch, tensors of which there are always as many, and the loss of
  // those once they are on the model's device, which must do the same for every batch where steps are captured.
  using Prepare = std::function<Tensors(data::Batch& batch)>;
  using PreparedStep = std::function<Tensor(const Tensors& inputs)>;
  Trainer(nn::Module& model, optim::Optimizer& optimizer, data::DataLoader& loader, Prepare prepare, PreparedStep step,
          TrainerOptions options);

  Trainer(const Trainer&) = delete;

  FitResult fit();     // see TrainingLoop
  void stop();         // after the step under way; for callbacks
  std::string save();  // a checkpoint now, between steps; its folder

  int64_t step() const { return state().step; }
  const RunState& state() const;
  double loss();                                  // of the last step; waits for it
  optim::GraphedStep::Statistics graphs() const;  // of captured steps
  EventFile* tensorboard() const;                 // during fit()
  // What is wrong with newer checkpoints that resume="latest" passed over.
  const std::vector<std::string>& damaged_checkpoints() const;

 private:
  struct Run;
  std::shared_ptr<Run> run_;
};

}  // namespace sf::train
