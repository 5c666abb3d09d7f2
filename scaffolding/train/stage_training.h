// StageTraining: what every stage of a recipe sets up alike around the networks that it trains: shuffled batches of its
// data, AdamW, the schedule, averages of the weights, and a Trainer that goes on from the stage's last checkpoint.
#pragma once
#include "scaffolding/train/recipe_run.h"
#include "scaffolding/train/trainer.h"

namespace sf::train {

class StageTraining {
 public:
  struct Group {
    Tensors parameters;
    double learning_rate;
  };
  // Of all parameters of `model`, at the recipe's learning rate, or of groups with rates of their own. folder: where
  // checkpoints and logs lie in the run's. The model must outlive it.
  StageTraining(const RecipeRun& run, const StageRecipe& recipe, const char* folder, uint64_t seed, nn::Module& model,
                std::shared_ptr<const data::Dataset> data, std::vector<Group> groups = {});
  StageTraining(const StageTraining&) = delete;

  TrainerOptions options;  // may be changed before train()
  // To the recipe's last step; once. True: the model has its averaged weights. False: SIGINT stopped it.
  bool train(Trainer::Prepare prepare, Trainer::PreparedStep step);
  int64_t step() const;  // that train() has done
  // Calls f while the model has its averaged weights: for on_step_end.
  void with_averages(const std::function<void()>& f);

 private:
  nn::Module& model_;
  data::DataLoader loader_;
  optim::AdamW optimizer_;
  std::unique_ptr<optim::LRScheduler> schedule_;
  optim::EMAModel ema_;
  std::optional<Trainer> trainer_;
};

}  // namespace sf::train
