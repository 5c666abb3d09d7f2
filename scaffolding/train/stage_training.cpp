#include "scaffolding/train/stage_training.h"

namespace sf::train {

namespace {

std::vector<optim::AdamW::Group> optimizer_groups(const StageRecipe& recipe, nn::Module& model,
                                                  std::vector<StageTraining::Group> groups) {
  if (groups.empty()) groups.push_back({nn::parameters(model), recipe.learning_rate});
  std::vector<optim::AdamW::Group> out;
  for (auto& group : groups)
    out.push_back(
        {std::move(group.parameters),
         {.lr = group.learning_rate, .betas = {0.9, recipe.adam_beta2}, .weight_decay = recipe.weight_decay}});
  return out;
}

}  // namespace

StageTraining::StageTraining(const RecipeRun& run, const StageRecipe& recipe, const char* folder, uint64_t seed,
                             nn::Module& model, std::shared_ptr<const data::Dataset> data, std::vector<Group> groups)
    : model_(model),
      loader_(std::move(data),
              {.batch_size = recipe.batch_size, .shuffle = true, .num_workers = recipe.num_workers, .drop_last = true}),
      optimizer_(optimizer_groups(recipe, model, std::move(groups))),
      schedule_(recipe.schedule(optimizer_)),
      ema_(nn::parameters(model), {.decay = recipe.ema_decay}) {
  options.run = recipe.run(run.place(folder));
  options.scheduler = schedule_.get();
  options.ema = &ema_;
  options.seed = seed;
  options.resume = "latest";
  options.quiet = run.quiet;
  options.cuda_graph = run.cuda_graph;
}

bool StageTraining::train(Trainer::Prepare prepare, Trainer::PreparedStep step) {
  trainer_.emplace(model_, optimizer_, loader_, std::move(prepare), std::move(step), options);
  if (trainer_->fit().stopped) return false;
  ema_.copy_to(nn::parameters(model_));
  return true;
}

int64_t StageTraining::step() const { return trainer_ ? trainer_->step() : 0; }

void StageTraining::with_averages(const std::function<void()>& f) {
  ema_.store(nn::parameters(model_));
  ema_.copy_to(nn::parameters(model_));
  f();
  ema_.restore(nn::parameters(model_));
}

}  // namespace sf::train
