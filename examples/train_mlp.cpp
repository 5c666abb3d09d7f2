// Fits a small network to a function of two variables, with a schedule, averaged weights and checkpoints.
//   train_mlp [output_dir]      with an output_dir, Ctrl-C saves and the next call goes on
#include <cstdio>

#include "scaffolding/scaffolding.h"

namespace nn = sf::nn;
namespace optim = sf::optim;
namespace data = sf::data;
namespace train = sf::train;

struct Mlp : nn::Module {
  nn::Linear first{2, 64};
  nn::Linear second{64, 64};
  nn::Linear last{64, 1};
  SF_MODULE(Mlp, first, second, last)
  sf::Tensor forward(const sf::Tensor& x) const { return last(sf::silu(second(sf::silu(first(x))))); }
};

// z[N, 1] = sin(3 x) cos(2 y) of points [N, 2].
static sf::Tensor surface(const sf::Tensor& points) {
  return sf::sin(points.narrow(1, 0, 1) * 3.0) * sf::cos(points.narrow(1, 1, 1) * 2.0);
}

int main(int argc, char** argv) try {
  sf::manual_seed(0);
  sf::Tensor points = sf::rand({2048, 2}) * 2.0 - 1.0, unseen = sf::rand({512, 2}) * 2.0 - 1.0;
  Mlp net;
  data::DataLoader loader(std::make_shared<data::TensorDataset>(points, surface(points)),
                          {.batch_size = 64, .shuffle = true});
  optim::AdamW optimizer(nn::parameters(net), {.lr = 3e-3});
  auto schedule =
      optim::get_scheduler("cosine", optimizer, {.num_warmup_steps = 20, .num_training_steps = 60 * loader.size()});
  optim::EMAModel ema(nn::parameters(net), {.decay = 0.98});

  train::TrainerOptions options;
  options.run.max_epochs = 60;
  options.run.max_grad_norm = 1;
  options.run.eval_steps = 5 * loader.size();
  options.scheduler = schedule.get();
  options.ema = &ema;
  options.evaluate = [&] {
    return std::map<std::string, double>{{"error", sf::mse_loss(net(unseen), surface(unseen)).item()}};
  };
  if (argc > 1) options.run.output_dir = argv[1], options.resume = "latest";
  train::Trainer trainer(
      net, optimizer, loader, [&](data::Batch& batch) { return sf::mse_loss(net(batch.image), batch.target); },
      options);
  train::FitResult result = trainer.fit();
  double error = trainer.state().best.at("error").lowest;
  std::printf("%lld steps, mean squared error %.2g at points it has not seen\n", static_cast<long long>(result.step),
              error);
  return error < 0.01 ? 0 : 1;
} catch (const sf::Error& e) {
  std::fprintf(stderr, "train_mlp: %s\n", e.what());
  return 1;
}
