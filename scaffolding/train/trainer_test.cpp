#include "scaffolding/train/trainer.h"

#include <cmath>
#include <csignal>
#include <sstream>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/nn/nn.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/train/training_files.h"

namespace sf::train {

namespace {

struct Net : nn::Module {
  nn::Linear first{5, 16};
  nn::BatchNorm1d norm{16};
  nn::Dropout drop{0.25};
  nn::Linear last{16, 2};
  SF_MODULE(Net, first, norm, drop, last)
  Tensor forward(const Tensor& x) const { return last(drop(relu(norm(first(x))))); }
};

struct Killed {};

// Everything that a run is made of, from the same seed each time.
struct Training {
  int seeded = (manual_seed(3), 0);
  Tensor x = randn({40, 5}), y = randn({40, 2});
  Net net;
  optim::AdamW optimizer{nn::parameters(net), {.lr = 1e-2}};
  optim::CosineAnnealingLR schedule{optimizer, {.T_max = 12}};
  optim::EMAModel ema{nn::parameters(net), {.decay = 0.9}};
  data::DataLoader loader{std::make_shared<data::TensorDataset>(x, y),
                          {.batch_size = 8, .shuffle = true, .num_workers = 1}};
  TrainerOptions options{.run = {.max_steps = 12,
                                 .gradient_accumulation_steps = 2,
                                 .max_grad_norm = 1.0,
                                 .checkpointing_steps = 4,
                                 .checkpoints_total_limit = 2,
                                 .logging_steps = 1,
                                 .tensorboard = false},
                         .scheduler = &schedule,
                         .ema = &ema,
                         .seed = 9,
                         .quiet = true};
  Trainer trainer() {
    return Trainer(
        net, optimizer, loader, [this](data::Batch& b) { return mse_loss(net(b.image), b.target); }, options);
  }
};

// A run on CUDA, its steps captured or not; batches of 8, the last of an epoch of 5.
struct CudaTraining {
  int seeded = (manual_seed(4), 0);
  Tensor x = randn({29, 5}), y = randn({29, 2});
  nn::Sequential net{nn::Linear(5, 16), nn::GELU(), nn::Dropout(0.25), nn::Linear(16, 2)};
  std::unique_ptr<optim::AdamW> optimizer;
  std::unique_ptr<optim::CosineAnnealingLR> schedule;
  std::unique_ptr<optim::EMAModel> ema;
  data::DataLoader loader{std::make_shared<data::TensorDataset>(x, y), {.batch_size = 8, .shuffle = true}};
  std::unique_ptr<Trainer> trainer;

  CudaTraining(const std::string& folder, bool captured, const std::string& precision, int64_t accumulate,
               int64_t steps = 14) {
    nn::to(net, {.device = Device("cuda")});
    optimizer = std::make_unique<optim::AdamW>(nn::parameters(net), optim::AdamWOptions{.lr = 1e-2});
    schedule = std::make_unique<optim::CosineAnnealingLR>(*optimizer, optim::CosineAnnealingOptions{.T_max = 20});
    ema = std::make_unique<optim::EMAModel>(nn::parameters(net), optim::EmaOptions{.decay = 0.9});
    TrainerOptions options{.run = {.output_dir = folder,
                                   .max_steps = steps,
                                   .gradient_accumulation_steps = accumulate,
                                   .max_grad_norm = 0.5,
                                   .mixed_precision = precision,
                                   .checkpointing_steps = {},
                                   .logging_steps = 4,
                                   .tensorboard = false},
                           .scheduler = schedule.get(),
                           .ema = ema.get(),
                           .seed = 9,
                           .resume = "latest",
                           .quiet = true,
                           .cuda_graph = captured};
    trainer = std::make_unique<Trainer>(
        net, *optimizer, loader,
        [](data::Batch& b) {
          return Tensors{b.image, b.target};
        },
        [this](const Tensors& in) { return mse_loss(net(in[0]), in[1]); }, options);
  }
  std::vector<double> weights() {
    std::vector<double> all;
    for (const Tensors& list : {nn::parameters(net), Tensors(ema->shadow_params())})
      for (const Tensor& t : list)
        for (double v : t.detach().cpu().to_vector()) all.push_back(v);
    return all;
  }
};

class TrainerTest : public io::TestFolder {
 protected:
  // metrics.jsonl without what depends on the clock.
  std::string losses(const std::string& folder) const {
    std::istringstream in(bytes_of(folder + "/metrics.jsonl"));
    std::string out;
    for (std::string line; std::getline(in, line);) out += line.substr(0, line.find(",\"samples_per_second")) + "\n";
    return out;
  }
};

class CudaTrainer : public TrainerTest {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
    TrainerTest::SetUp();
  }
};

TEST_F(CudaTrainer, captured_runs_are_the_plain_ones_bit_for_bit) {
  for (auto [precision, accumulate] : {std::pair{"no", 1}, std::pair{"bf16", 2}, std::pair{"fp16", 1}}) {
    std::vector<std::vector<double>> weights;
    std::vector<std::string> lines;
    for (bool captured : {false, true}) {
      std::string folder = path(std::string(precision) + (captured ? "-captured" : "-plain"));
      CudaTraining run(folder, captured, precision, accumulate);
      FitResult end = run.trainer->fit();
      EXPECT_EQ(end.step, 14);
      EXPECT_EQ(end.loss, run.trainer->loss());
      weights.push_back(run.weights());
      lines.push_back(losses(folder));
      auto graphs = run.trainer->graphs();
      EXPECT_EQ(graphs.eager + graphs.replays, captured ? 14 : 0);
      EXPECT_EQ(graphs.captures > 0, captured);
    }
    EXPECT_EQ(weights[1], weights[0]) << precision;
    EXPECT_EQ(lines[1], lines[0]) << precision;
  }
}

TEST_F(CudaTrainer, a_captured_run_goes_on_from_its_checkpoint_bit_for_bit) {
  CudaTraining whole(path("whole"), false, "no", 1);
  whole.trainer->fit();
  CudaTraining(path("cut"), true, "no", 1, 6).trainer->fit();
  CudaTraining rest(path("cut"), true, "no", 1);
  EXPECT_EQ(rest.trainer->step(), 6);
  rest.trainer->fit();
  EXPECT_EQ(rest.weights(), whole.weights());
}

TEST_F(CudaTrainer, a_captured_run_stops_at_the_step_that_is_not_finite_with_the_weights_before_it) {
  CudaTraining run(path("spoilt"), true, "no", 1);
  run.x.narrow(0, 0, 29).fill_(NAN);
  std::vector<double> before;
  for (const Tensor& p : nn::parameters(run.net))
    for (double v : p.detach().cpu().to_vector()) before.push_back(v);
  std::string message;
  try {
    run.trainer->fit();
  } catch (const RuntimeError& e) {
    message = e.what();
  }
  EXPECT_NE(message.find("the loss is nan at step 1"), std::string::npos) << message;
  std::vector<double> now;
  for (const Tensor& p : nn::parameters(run.net))
    for (double v : p.detach().cpu().to_vector()) now.push_back(v);
  EXPECT_EQ(now, before);
}

TEST_F(CudaTrainer, refuses_to_capture_what_it_cannot) {
  CudaTraining run(path("refused"), false, "no", 1);
  auto message = [](const std::function<void()>& f) {
    try {
      f();
    } catch (const ValueError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  TrainerOptions options{.run = {.max_steps = 1}, .quiet = true, .cuda_graph = true};
  auto whole = [&](data::Batch& b) { return mse_loss(run.net(b.image.cuda()), b.target.cuda()); };
  EXPECT_NE(message([&] {
              Trainer(run.net, *run.optimizer, run.loader, whole, options).fit();
            }).find("needs a step in two parts"),
            std::string::npos);
  optim::Adafactor adafactor(nn::parameters(run.net), {});
  EXPECT_NE(message([&] {
              Trainer(run.net, adafactor, run.loader, whole, options);
            }).find("Adafactor: has no option 'capturable'"),
            std::string::npos);
  nn::Linear here(5, 2);
  optim::SGD sgd(nn::parameters(here), {});
  EXPECT_NE(
      message([&] { Trainer(here, sgd, run.loader, whole, options); }).find("needs a model on CUDA, got one on cpu"),
      std::string::npos);
}

TEST(TrainingFiles, StatesThatOnlyPythonHasAreRefused) {
  auto state = [](io::Object seed, io::Object sampler) {
    return io::Object::container(io::Object::Dict, {"epoch", int64_t(1), "batches", int64_t(0), "base_seed", seed,
                                                    "sampler", sampler, "generator", io::Object()});
  };
  EXPECT_EQ(loader_state(state({}, {})).epoch, 1);
  EXPECT_THROW(loader_state(state(int64_t(7), {})), ValueError);
  EXPECT_THROW(loader_state(state({}, io::Object::container(io::Object::Dict, {"weights", int64_t(1)}))), ValueError);
  EXPECT_THROW(loader_state(io::Object::container(io::Object::Dict)), ValueError);
}

TEST_F(TrainerTest, ARunThatBreaksOffGoesOnBitForBit) {
  Training whole;
  whole.options.run.output_dir = path("whole");
  FitResult result = whole.trainer().fit();
  EXPECT_EQ(result.step, 12);
  EXPECT_EQ(result.epoch, 4);
  EXPECT_EQ(result.checkpoint, path("whole/checkpoint-12"));
  for (int64_t end : {1, 6, 11}) {
    std::string folder = path("broken" + std::to_string(end));
    {
      Training first;
      first.options.run.output_dir = folder;
      first.options.resume = "latest";
      first.options.on_step_end = [&](Trainer& t) {
        if (t.step() == end) throw Killed();
      };
      EXPECT_THROW(first.trainer().fit(), Killed);
    }
    Training second;
    second.options.run.output_dir = folder;
    second.options.resume = "latest";
    Trainer trainer = second.trainer();
    EXPECT_EQ(trainer.step(), (end - 1) / 4 * 4);  // the callback comes before the step's checkpoint
    trainer.fit();
    EXPECT_EQ(losses(folder), losses(path("whole")));
    for (auto& file : std::filesystem::directory_iterator(path("whole/checkpoint-12"))) {
      std::string name = file.path().filename().string();
      if (name == "trainer_state.json" || name == "manifest.json") continue;  // they know their folder
      EXPECT_EQ(bytes_of(folder + "/checkpoint-12/" + name), bytes_of(file.path().string()))
          << name << " after " << end;
    }
  }
}

TEST_F(TrainerTest, AFinishedRunGoesOnWithMoreEpochs) {
  auto train = [&](int64_t epochs) {
    Training t;
    t.options.run.output_dir = path("run");
    t.options.run.max_steps = {};
    t.options.run.max_epochs = epochs;
    t.options.resume = "latest";
    return t.trainer().fit();
  };
  FitResult first = train(2), second = train(4), third = train(4);
  EXPECT_EQ(first.step, 5);
  EXPECT_EQ(first.epoch, 2);
  EXPECT_EQ(second.step, 10);
  EXPECT_EQ(second.epoch, 4);
  EXPECT_EQ(third.step, 10);
}

TEST_F(TrainerTest, AnInterruptSavesAndStops) {
  std::signal(SIGINT, SIG_DFL);  // a shell's background job ignores it
  Training run;
  run.options.run.output_dir = path("run");
  run.options.on_step_end = [](Trainer& t) {
    if (t.step() == 3) std::raise(SIGINT);
  };
  Trainer trainer = run.trainer();
  FitResult result = trainer.fit();
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.checkpoint, path("run/checkpoint-3"));
  result = trainer.fit();
  EXPECT_FALSE(result.stopped);
  EXPECT_EQ(result.step, 12);
  EXPECT_EQ(std::signal(SIGINT, SIG_DFL), SIG_DFL);
}

TEST_F(TrainerTest, WhatIsNotFiniteStopsBeforeTheWeights) {
  Training run;
  Tensor before;
  bool spoiled = false;
  run.options.on_step_end = [&](Trainer& t) {
    if (t.step() != 2) return;
    spoiled = true;
    before = run.net.last.weight.detach().clone();
  };
  Trainer trainer(
      run.net, run.optimizer, run.loader,
      [&](data::Batch& b) { return mse_loss(run.net(b.image), b.target) * (spoiled ? double(NAN) : 1.0); },
      run.options);
  SF_EXPECT_ERROR(RuntimeError, "the loss is nan at step 3; every parameter is finite", trainer.fit());
  EXPECT_EQ(before.to_vector(), run.net.last.weight.to_vector());

  Training other;
  Trainer named(
      other.net, other.optimizer, other.loader,
      [&](data::Batch& b) {
        return mse_loss(other.net(b.image), b.target) + sum(sqrt(other.net.norm.weight * 0.0) * 0.0);
      },
      other.options);
  SF_EXPECT_ERROR(RuntimeError, "the gradient of 'norm.weight' is nan at step 1", named.fit());
}

TEST_F(TrainerTest, EvaluatesTheAveragesInEvalMode) {
  Training run;
  run.options.run.eval_steps = 6;
  int calls = 0;
  run.options.evaluate = [&] {
    ++calls;
    EXPECT_FALSE(run.net.drop.training);
    EXPECT_FALSE(autograd::grad_enabled());
    EXPECT_EQ(run.net.last.bias.to_vector(), run.ema.shadow_params().back().to_vector());
    return std::map<std::string, double>{{"error", 3.0 - calls}};
  };
  Trainer trainer = run.trainer();
  trainer.fit();
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(run.net.drop.training);
  EXPECT_EQ(trainer.state().best.at("error").lowest, 1);
}

TEST_F(TrainerTest, ShowsProgressWhereItIsTold) {
  Training run;
  std::ostringstream shown;
  run.options.progress = &shown;
  run.options.quiet = false;
  run.trainer().fit();
  EXPECT_EQ(shown.str().substr(0, 9), "step 1/12");
  EXPECT_NE(shown.str().find("step 12/12 (100 %)"), std::string::npos);
}

TEST_F(TrainerTest, ACheckpointWithoutAPartChangesNothing) {
  Training first, second;
  first.options.run.output_dir = second.options.run.output_dir = path("run");
  first.options.ema = nullptr;
  first.trainer().fit();
  second.options.resume = "latest";
  std::vector<double> before = second.net.last.weight.to_vector();
  SF_EXPECT_ERROR(ValueError, "ema.safetensors is missing: the checkpoint is of a run with other parts",
                  second.trainer());
  EXPECT_EQ(second.net.last.weight.to_vector(), before);
  second.options.ema = nullptr;
  Trainer whole = second.trainer();
  EXPECT_TRUE(std::isnan(whole.fit().loss));  // it had ended: there was no step
  EXPECT_NE(second.net.last.weight.to_vector(), before);
}

TEST_F(TrainerTest, RefusesImpossibleArguments) {
  Training run, other;
  auto refused = [&](const char* text, auto change) {
    TrainerOptions before = run.options;
    change(run.options);
    SF_EXPECT_ERROR(ValueError, text, run.trainer());
    run.options = before;
  };
  refused("gradient_accumulation_steps must be a positive number, got 0",
          [](auto& o) { o.run.gradient_accumulation_steps = 0; });
  refused("mixed_precision must be", [](auto& o) { o.run.mixed_precision = "fp8"; });
  refused("the scheduler must be one of this optimizer", [&](auto& o) { o.scheduler = &other.schedule; });
  refused("evaluate and eval_steps", [](auto& o) { o.run.eval_steps = 3; });
  refused("resume needs an output_dir", [](auto& o) { o.resume = "latest"; });
  nn::Linear small(1, 1);
  SF_EXPECT_ERROR(
      ValueError, "that the model does not have",
      Trainer(small, run.optimizer, run.loader, [](data::Batch&) { return Tensor(); }, {.run = {.max_steps = 1}}));
}

TEST_F(TrainerTest, TrainsInSixteenBits) {
  for (const char* precision : {"bf16", "fp16"}) {
    Training run;
    run.options.run.mixed_precision = precision;
    run.options.run.output_dir = path(precision);
    EXPECT_EQ(run.trainer().fit().step, 12) << precision;
    EXPECT_EQ(std::filesystem::exists(path(std::string(precision) + "/checkpoint-12/scaler.pt")),
              precision == std::string("fp16"));
  }
}

}  // namespace

}  // namespace sf::train
