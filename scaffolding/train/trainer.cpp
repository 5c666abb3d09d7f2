#include "scaffolding/train/trainer.h"

#include "scaffolding/train/interrupt.h"
#include "scaffolding/train/native_parts.h"
#include "scaffolding/train/training_loop.h"

namespace sf::train {

struct Trainer::Run {
  // `parts` is called with what says whether the run was interrupted.
  template <class F>
  Run(Trainer& trainer, const TrainerOptions& o, const F& parts)
      : stop_on_interrupt(o.stop_on_interrupt),
        loop(parts([this] { return interrupt && interrupt->asked(); }), loop_options(trainer, o)) {}

  static LoopOptions loop_options(Trainer& trainer, const TrainerOptions& o) {
    LoopOptions out{
        .run = o.run, .seed = o.seed, .resume = o.resume, .cuda_graph = o.cuda_graph, .evaluate = o.evaluate};
    if (o.on_step_end) out.on_step_end = [&trainer, f = o.on_step_end] { f(trainer); };
    if (o.on_checkpoint)
      out.on_checkpoint = [&trainer, f = o.on_checkpoint](const std::string& folder) { f(trainer, folder); };
    return out;
  }

  bool stop_on_interrupt;
  std::optional<StopOnInterrupt> interrupt;  // during fit()
  TrainingLoop loop;
};

Trainer::Trainer(nn::Module& model, optim::Optimizer& optimizer, data::DataLoader& loader, Step step,
                 TrainerOptions options)
    : run_(std::make_shared<Run>(*this, options, [&](std::function<bool()> interrupted) {
        return native_parts(model, optimizer, loader, std::move(step), options, std::move(interrupted));
      })) {}

Trainer::Trainer(nn::Module& model, optim::Optimizer& optimizer, data::DataLoader& loader, Prepare prepare,
                 PreparedStep step, TrainerOptions options)
    : run_(std::make_shared<Run>(*this, options, [&](std::function<bool()> interrupted) {
        return native_parts(model, optimizer, loader, std::move(prepare), std::move(step), options,
                            std::move(interrupted));
      })) {}

FitResult Trainer::fit() {
  struct Leave {
    std::optional<StopOnInterrupt>& interrupt;
    ~Leave() { interrupt.reset(); }
  } leave{run_->interrupt};
  run_->interrupt.emplace(run_->stop_on_interrupt);
  return run_->loop.fit();
}

void Trainer::stop() { run_->loop.stop(); }
std::string Trainer::save() { return run_->loop.save(); }
const RunState& Trainer::state() const { return run_->loop.state(); }
double Trainer::loss() { return run_->loop.loss(); }

optim::GraphedStep::Statistics Trainer::graphs() const {
  auto all = run_->loop.graphs();
  return all.empty() ? optim::GraphedStep::Statistics{} : all[0];
}

EventFile* Trainer::tensorboard() const { return run_->loop.tensorboard().get(); }
const std::vector<std::string>& Trainer::damaged_checkpoints() const { return run_->loop.damaged_checkpoints(); }

}  // namespace sf::train
