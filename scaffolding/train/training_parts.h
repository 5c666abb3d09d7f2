// The parts of a run as TrainingLoop drives them. Trainer implements them over C++'s objects (native_parts.h), Python's
// Trainer over Python's (python/bindings/train/bind_trainer.cpp), where subclasses, hooks and whatever has the right
// methods are reached. One thread at a time.
#pragma once
#include <memory>

#include "scaffolding/core/value.h"
#include "scaffolding/nn/module.h"
#include "scaffolding/train/run_log.h"

namespace sf::train {

// What a checkpoint holds in a file of its own.
class Part {
 public:
  virtual ~Part() = default;
  virtual void save(const std::string& path) const = 0;  // a new file, which CheckpointFolders::commit syncs
  virtual void load(const std::string& path, const RunState& state) = 0;
};

class ModelPart : public Part {  // weights
 public:
  virtual nn::Module& module() const = 0;
};

// Batches and their losses, in one: what a batch is, only they know. Its file says where in the data the run stands.
class DataPart : public Part {
 public:
  virtual std::optional<int64_t> size() const = 0;  // batches of an epoch, where that is known
  virtual int64_t epoch() const = 0;                // finished ones
  virtual bool next() = 0;  // takes the next batch of the epoch under way, begun where there is none; false at its end
  virtual int64_t samples() const = 0;  // of the batch that was taken
  virtual Tensor loss() = 0;            // of the batch that was taken: one element, on the tape
  virtual void pause() {}               // the run ends here and may go on; nothing works ahead

  // For captured steps: the batch that was taken as tensors on the model's device.
  // `form` numbers the ways in which tensors make a batch.
  struct Inputs {
    Tensors tensors;
    int64_t form = 0;
  };
  virtual Inputs inputs() = 0;
  virtual Tensor loss(const Inputs& inputs) = 0;
};

class OptimizerPart : public Part {
 public:
  virtual Tensors params() const = 0;  // of all groups
  virtual void zero_grad() = 0;
  virtual void step() = 0;
  virtual Value lr() const = 0;  // of the first group: a double, or where captured steps read it a tensor

  virtual void make_capturable() = 0;  // ValueError where its steps are computed on the host
  // changes nothing where found_inf, float32 [] on the device, is not 0
  virtual void step_unless(const Tensor& found_inf) = 0;
};

class SchedulePart : public Part {
 public:
  virtual void step() = 0;
};

class ScalerPart : public Part {  // of the loss, for the run's optimizer: see optim::GradScaler
 public:
  virtual Tensor scale(const Tensor& loss) = 0;
  virtual void unscale_() = 0;
  virtual void also_skip(const Tensor& flag) = 0;
  virtual void step() = 0;
  virtual void update() = 0;
  virtual double get_scale() const = 0;
};

class AveragesPart : public Part {  // of the model's parameters: see optim::EMAModel
 public:
  virtual size_t size() const = 0;
  virtual int64_t optimization_step() const = 0;
  virtual void step() = 0;
  virtual void store() = 0;
  virtual void copy_to() = 0;
  virtual void restore() = 0;
};

class RandomPart : public Part {  // every generator that a step may draw from; load() only keeps
 public:
  virtual bool restore() = 0;  // sets what load() kept, once; false where there is nothing
};

// The other processes of a run, which train the same model together. Every process makes the same calls.
class PeersPart {
 public:
  virtual ~PeersPart() = default;
  virtual bool leads() const = 0;  // of all processes it alone logs and removes old checkpoints
  virtual void begin() = 0;        // a fit(): the generators are as load() found them, once
  // Around the batches of a step: before(i) comes before each of `count`, after() when all had their backward, or with
  // whole = false where the data ended before.
  virtual void before(int64_t i, int64_t count) = 0;
  virtual void after(bool whole) = 0;
  virtual bool means_gradients() const = 0;  // of the step's batches too: their losses are not divided by their number
  // The mean loss of all processes, and whether one of them stops.
  virtual std::pair<double, bool> agree(double loss, bool stop) = 0;

  // All states of the run and a text of its own into a folder, whole or not at all.
  virtual void save(const std::string& folder, const std::string& text) = 0;
  struct Found {
    std::string path, text;            // path is empty: there is none
    std::vector<std::string> damaged;  // what is wrong with newer ones
  };
  // Loads the checkpoint that `resume` says (CheckpointFolders::find), of the steps' folders in output_dir.
  virtual Found load(const std::string& output_dir, const std::vector<int64_t>& steps, const std::string& resume) = 0;
};

// What is around a run.
class Host {
 public:
  virtual ~Host() = default;
  virtual Progress progress() const = 0;
  virtual void show(const std::string& text) = 0;
  virtual void warn(const std::string& text) = 0;
  virtual bool interrupted() = 0;  // asked after each step
  // Around work that takes long, or waits, and calls no part: Python's lets go of its lock.
  virtual void* leave() { return nullptr; }
  virtual void come_back(void* /*left*/) {}
};

class Aside {
 public:
  explicit Aside(Host& host) : host_(host), left_(host.leave()) {}
  ~Aside() { host_.come_back(left_); }
  Aside(const Aside&) = delete;

 private:
  Host& host_;
  void* left_;
};

struct Parts {
  std::unique_ptr<ModelPart> model;
  std::unique_ptr<DataPart> data;
  std::unique_ptr<OptimizerPart> optimizer;
  std::unique_ptr<SchedulePart> scheduler;  // may be null, as the next two
  std::unique_ptr<ScalerPart> scaler;
  std::unique_ptr<AveragesPart> ema;
  std::vector<std::pair<std::string, std::unique_ptr<Part>>> stateful;  // more files by name, without ".pt"
  std::unique_ptr<RandomPart> random;
  std::unique_ptr<Host> host;
  std::unique_ptr<PeersPart> peers;  // null: this process trains alone
};

}  // namespace sf::train
