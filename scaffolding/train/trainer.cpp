#include "scaffolding/train/trainer.h"

#include "scaffolding/train/native_parts.h"

namespace sf::train {

LoopOptions Trainer::loop_options(const TrainerOptions& o) {
  LoopOptions out{.run = o.run, .seed = o.seed, .resume = o.resume, .cuda_graph = o.cuda_graph, .evaluate = o.evaluate};
  if (o.on_step_end) out.on_step_end = [this, f = o.on_step_end] { f(*this); };
  if (o.on_checkpoint) out.on_checkpoint = [this, f = o.on_checkpoint](const std::string& folder) { f(*this, folder); };
  return out;
}

Trainer::Trainer(nn::Module& model, optim::Optimizer& optimizer, data::DataLoader& loader, Step step,
                 TrainerOptions options)
    : stop_on_interrupt_(options.stop_on_interrupt),
      loop_(native_parts(model, optimizer, loader, std::move(step), options, [this] { return interrupted(); }),
            loop_options(options)) {}

Trainer::Trainer(nn::Module& model, optim::Optimizer& optimizer, data::DataLoader& loader, Prepare prepare,
                 PreparedStep step, TrainerOptions options)
    : stop_on_interrupt_(options.stop_on_interrupt),
      loop_(native_parts(model, optimizer, loader, std::move(prepare), std::move(step), options,
                         [this] { return interrupted(); }),
            loop_options(options)) {}

FitResult Trainer::fit() {
  struct Leave {
    std::optional<StopOnInterrupt>& interrupt;
    ~Leave() { interrupt.reset(); }
  } leave{interrupt_};
  interrupt_.emplace(stop_on_interrupt_);
  return loop_.fit();
}

optim::GraphedStep::Statistics Trainer::graphs() const {
  auto all = loop_.graphs();
  return all.empty() ? optim::GraphedStep::Statistics{} : all[0];
}

}  // namespace sf::train
