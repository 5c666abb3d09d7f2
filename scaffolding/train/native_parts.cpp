#include "scaffolding/train/native_parts.h"

#include <unistd.h>

#include <iostream>

#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/formats/torch_file.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/copy/pinned.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/train/training_files.h"

namespace sf::train {

Tensors uploaded(const Tensors& tensors, Device device) {
  Tensors out;
  for (const Tensor& t : tensors) {
    check_defined("Trainer", "what prepare made of a batch", t);
    bool uploads = device.is_cuda() && t.device().is_cpu();
    // a copy from pinned memory waits for nothing
    out.push_back(uploads ? to_device(pin_memory(t), device, true) : to_device(t, device));
  }
  return out;
}

Tensors load_named(const std::string& path, const std::vector<std::string>& names, const Tensors& like) {
  io::SafetensorsFile file(path);
  for (auto& name : names) SF_CHECK(file.contains(name), "Trainer: ", path, " has no '", name, "'");
  Tensors out;
  for (size_t i = 0; i < names.size(); ++i) out.push_back(to_device(file.get(names[i]), like.at(i).device()));
  return out;
}

std::vector<std::string> parameter_names(nn::Module& model) {
  std::vector<std::string> out;
  for (auto& p : nn::named_parameters(model)) out.push_back(p.name);
  return out;
}

namespace {

Device device_of(nn::Module& model) {
  Tensors parameters = nn::parameters(model);
  return parameters.empty() ? Device() : parameters[0].device();
}

class NativeModel final : public ModelPart {
 public:
  explicit NativeModel(nn::Module& model) : model_(model) {}
  nn::Module& module() const override { return model_; }
  void save(const std::string& path) const override {
    std::map<std::string, Tensor> weights;
    for (auto& [name, t] : nn::state_dict(model_)) weights[name] = t;
    write_safetensors(weights, path);
  }
  void load(const std::string& path, const RunState&) override {
    nn::load_state_dict(model_, io::load_safetensors(path));
  }

 private:
  nn::Module& model_;
};

class NativeData final : public DataPart {
 public:
  NativeData(data::DataLoader& loader, Trainer::Step step) : loader_(loader), step_(std::move(step)) {
    SF_CHECK(step_, "Trainer: needs a step function that gives the loss of a batch");
  }
  NativeData(data::DataLoader& loader, Trainer::Prepare prepare, Trainer::PreparedStep step, Device device)
      : loader_(loader), prepare_(std::move(prepare)), prepared_(std::move(step)), device_(device) {
    SF_CHECK(prepare_ && prepared_,
             "Trainer: needs a function that prepares a batch and one that gives the loss of what was prepared");
  }
  std::optional<int64_t> size() const override { return loader_.size(); }
  int64_t epoch() const override { return loader_.epoch(); }
  bool next() override { return bool(batch_ = loader_.next()); }
  int64_t samples() const override { return batch_->size(); }
  Tensor loss() override { return prepared_ ? prepared_(uploaded(prepare_(*batch_), device_)) : step_(*batch_); }
  Inputs inputs() override {
    SF_CHECK(prepared_,
             "Trainer: cuda_graph needs a step in two parts, of which `prepare` is what the host does; give both to "
             "the constructor");
    Inputs out{uploaded(prepare_(*batch_), device_)};
    SF_CHECK(!out.tensors.empty() && out.tensors.size() == count_.value_or(out.tensors.size()),
             "Trainer: prepare must give as many tensors for each batch, got ", out.tensors.size());
    count_ = out.tensors.size();
    return out;
  }
  Tensor loss(const Inputs& inputs) override { return prepared_(inputs.tensors); }
  void save(const std::string& path) const override { write_torch(to_object(loader_.state()), path); }
  void load(const std::string& path, const RunState&) override {
    loader_.load_state(loader_state(io::load_torch(path)));
  }

 private:
  data::DataLoader& loader_;
  Trainer::Step step_;
  Trainer::Prepare prepare_;
  Trainer::PreparedStep prepared_;
  Device device_;
  std::optional<data::Batch> batch_;
  std::optional<size_t> count_;  // of tensors
};

class NativeOptimizer final : public OptimizerPart {
 public:
  explicit NativeOptimizer(optim::Optimizer& optimizer) : optimizer_(optimizer) {}
  Tensors params() const override {
    Tensors out;
    for (size_t g = 0; g < optimizer_.num_groups(); ++g)
      out.insert(out.end(), optimizer_.params(g).begin(), optimizer_.params(g).end());
    return out;
  }
  void zero_grad() override { optimizer_.zero_grad(); }
  void step() override { optimizer_.step(); }
  Value lr() const override { return optimizer_.lr(); }
  void make_capturable() override {
    for (size_t g = 0; g < optimizer_.num_groups(); ++g) {
      try {
        optimizer_.set_option(g, "capturable", true);
      } catch (const ValueError& e) {
        fail(
            std::string("Trainer: cuda_graph needs an optimizer that can be captured (Adam, AdamW, AdamW8bit, SGD): ") +
            e.what());
      }
    }
  }
  void step_unless(const Tensor& found_inf) override { optimizer_.step_unless(found_inf); }
  void save(const std::string& path) const override { write_torch(to_object(optimizer_.state_dict()), path); }
  void load(const std::string& path, const RunState&) override {
    optimizer_.load_state_dict(optimizer_state(io::load_torch(path)));
  }

 private:
  optim::Optimizer& optimizer_;
};

class NativeSchedule final : public SchedulePart {
 public:
  explicit NativeSchedule(optim::LRScheduler& scheduler) : scheduler_(scheduler) {}
  void step() override { scheduler_.step(); }
  void save(const std::string& path) const override { write_torch(to_object(scheduler_.state_dict()), path); }
  void load(const std::string& path, const RunState&) override {
    scheduler_.load_state_dict(scheduler_state(io::load_torch(path)));
  }

 private:
  optim::LRScheduler& scheduler_;
};

class NativeScaler final : public ScalerPart {
 public:
  NativeScaler(optim::Optimizer& optimizer, bool capturable)
      : optimizer_(optimizer), scaler_({.capturable = capturable}) {}
  Tensor scale(const Tensor& loss) override { return scaler_.scale(loss); }
  void unscale_() override { scaler_.unscale_(optimizer_); }
  void also_skip(const Tensor& flag) override { scaler_.also_skip(optimizer_, flag); }
  void step() override { scaler_.step(optimizer_); }
  void update() override { scaler_.update(); }
  double get_scale() const override { return scaler_.get_scale(); }
  void save(const std::string& path) const override {
    write_torch(to_object(scaler_.state(), scaler_.options()), path);
  }
  void load(const std::string& path, const RunState&) override {
    scaler_.load_state(scaler_state(io::load_torch(path)));
  }

 private:
  optim::Optimizer& optimizer_;
  optim::GradScaler scaler_;
};

class NativeAverages final : public AveragesPart {
 public:
  NativeAverages(optim::EMAModel& ema, nn::Module& model)
      : ema_(ema), names_(parameter_names(model)), parameters_(nn::parameters(model)) {}
  size_t size() const override { return ema_.shadow_params().size(); }
  int64_t optimization_step() const override { return ema_.optimization_step(); }
  void step() override { ema_.step(parameters_); }
  void store() override { ema_.store(parameters_); }
  void copy_to() override { ema_.copy_to(parameters_); }
  void restore() override { ema_.restore(parameters_); }
  void save(const std::string& path) const override {
    std::map<std::string, Tensor> averages;
    for (size_t i = 0; i < names_.size(); ++i) averages[names_[i]] = ema_.shadow_params()[i];
    write_safetensors(averages, path);
  }
  void load(const std::string& path, const RunState& state) override {
    ema_.load(ema_.options(), state.ema_step, load_named(path, names_, ema_.shadow_params()));
  }

 private:
  optim::EMAModel& ema_;
  std::vector<std::string> names_;
  Tensors parameters_;
};

class NativeRandom final : public RandomPart {
 public:
  explicit NativeRandom(Device device) : device_(device) {}
  bool restore() override {
    if (!kept_) return false;
    set_random_states(*std::exchange(kept_, {}), device_);
    return true;
  }
  void save(const std::string& path) const override { write_torch(random_states(device_), path); }
  void load(const std::string& path, const RunState&) override { kept_ = io::load_torch(path); }

 private:
  Device device_;
  std::optional<io::Object> kept_;
};

class NativeHost final : public Host {
 public:
  NativeHost(const TrainerOptions& options, std::function<bool()> interrupted)
      : quiet_(options.quiet), progress_(options.progress), interrupted_(std::move(interrupted)) {}
  Progress progress() const override {
    if (quiet_) return Progress::Quiet;
    return !progress_ && isatty(STDERR_FILENO) ? Progress::Terminal : Progress::Lines;
  }
  void show(const std::string& text) override {
    if (!text.empty()) (progress_ ? *progress_ : std::cerr) << text << std::flush;
  }
  void warn(const std::string& text) override {
    if (!quiet_) show(text + "\n");
  }
  bool interrupted() override { return interrupted_(); }

 private:
  bool quiet_;
  std::ostream* progress_;
  std::function<bool()> interrupted_;
};

Parts around(std::unique_ptr<DataPart> data, nn::Module& model, optim::Optimizer& optimizer, const TrainerOptions& o,
             std::function<bool()> interrupted) {
  SF_CHECK(!o.scheduler || &o.scheduler->optimizer() == &optimizer,
           "Trainer: the scheduler must be one of this optimizer");
  Parts parts;
  parts.model = std::make_unique<NativeModel>(model);
  parts.data = std::move(data);
  parts.optimizer = std::make_unique<NativeOptimizer>(optimizer);
  if (o.scheduler) parts.scheduler = std::make_unique<NativeSchedule>(*o.scheduler);
  if (o.run.mixed_precision == "fp16") parts.scaler = std::make_unique<NativeScaler>(optimizer, o.cuda_graph);
  if (o.ema) parts.ema = std::make_unique<NativeAverages>(*o.ema, model);
  parts.random = std::make_unique<NativeRandom>(device_of(model));
  parts.host = std::make_unique<NativeHost>(o, std::move(interrupted));
  return parts;
}

}  // namespace

Parts native_parts(nn::Module& model, optim::Optimizer& optimizer, data::DataLoader& loader, Trainer::Step step,
                   const TrainerOptions& options, std::function<bool()> interrupted) {
  return around(std::make_unique<NativeData>(loader, std::move(step)), model, optimizer, options,
                std::move(interrupted));
}

Parts native_parts(nn::Module& model, optim::Optimizer& optimizer, data::DataLoader& loader, Trainer::Prepare prepare,
                   Trainer::PreparedStep step, const TrainerOptions& options, std::function<bool()> interrupted) {
  auto data = std::make_unique<NativeData>(loader, std::move(prepare), std::move(step), device_of(model));
  return around(std::move(data), model, optimizer, options, std::move(interrupted));
}

}  // namespace sf::train
