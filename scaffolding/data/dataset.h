// Dataset: numbered samples. Batch: samples side by side.
// A Dataset is shared by the loader's workers: get() runs in several threads at once.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "scaffolding/core/tensor.h"
#include "scaffolding/data/sample_random.h"

namespace sf::data {

// A sample that cannot be read: its file is damaged or gone. A loader skips it and says so; every other error stops it.
struct BrokenSample : ValueError {
  using ValueError::ValueError;
};

struct Sample {
  Tensor image;
  Tensor target;  // a label or anything else that stacks; may be undefined
  std::string caption;
  std::string name;  // what errors call it
  int64_t index = 0;
};

struct Skipped {
  int64_t index;
  std::string name, reason;
};

struct Batch {
  Tensor image;   // [N, ...]; N is smaller than batch_size where samples were skipped
  Tensor target;  // [N, ...], undefined where the samples have none
  std::vector<std::string> caption, name;
  std::vector<int64_t> index;
  std::vector<Skipped> skipped;
  std::vector<Sample> samples;  // instead of the tensors, when the loader was asked not to collate
  int64_t size() const { return int64_t(index.size()); }
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  // 0 <= index < size(). `random` is the sample's own stream for augmentation.
  virtual Sample get(int64_t index, SampleRandom& random) const = 0;
  virtual std::string sample_name(int64_t index) const { return "sample " + std::to_string(index); }
};

// Rows of tensors with equal size(0): image[i] and target[i] (which may be undefined).
class TensorDataset final : public Dataset {
 public:
  explicit TensorDataset(Tensor image, Tensor target = {});
  int64_t size() const override { return image_.size(0); }
  Sample get(int64_t index, SampleRandom&) const override;

 private:
  Tensor image_, target_;
};

// Stacks the samples into one batch. Their images (and their targets) must agree in shape and dtype: ValueError naming
// two that do not.
Batch collate(std::vector<Sample> samples);

}  // namespace sf::data
