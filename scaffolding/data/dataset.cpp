#include "scaffolding/data/dataset.h"

#include <cstring>

#include "scaffolding/io/pictures/image.h"
#include "scaffolding/ops/view/view.h"

namespace sf::data {

TensorDataset::TensorDataset(Tensor image, Tensor target) : image_(std::move(image)), target_(std::move(target)) {
  check_defined("TensorDataset", "image", image_);
  SF_CHECK(image_.ndim() >= 1 && image_.size(0) > 0, "TensorDataset: image must have at least one row, got ",
           image_.shape());
  SF_CHECK(!target_ || (target_.ndim() >= 1 && target_.size(0) == image_.size(0)),
           "TensorDataset: target must have as many rows as image, got ", target_ ? target_.shape() : Shape{}, " for ",
           image_.shape());
}

Sample TensorDataset::get(int64_t index, SampleRandom&) const {
  SF_CHECK_AS(IndexError, index >= 0 && index < size(), "TensorDataset: index must be 0 to ", size() - 1, ", got ",
              index);
  Sample s;
  s.image = image_[index];
  if (target_) s.target = target_[index];
  s.name = sample_name(index);
  s.index = index;
  return s;
}

namespace {

Tensor stacked(const std::vector<Sample>& samples, Tensor Sample::*field, const char* what) {
  const Tensor& first = samples[0].*field;
  if (!first) {
    for (auto& s : samples)
      SF_CHECK(!(s.*field), "DataLoader: '", s.name, "' has a ", what, ", '", samples[0].name, "' has none");
    return {};
  }
  for (auto& s : samples) {
    const Tensor& t = s.*field;
    SF_CHECK(t && t.shape() == first.shape() && t.dtype() == first.dtype(), "DataLoader: every ", what,
             " of a batch must have one shape and dtype, but '", samples[0].name, "' is ", first.shape(), " ",
             first.dtype(), " and '", s.name, "' ", t ? t.shape() : Shape{}, " ", t ? t.dtype() : first.dtype(),
             "; resize and crop them to one size, or batch them by AspectBuckets");
  }
  Shape shape{int64_t(samples.size())};
  for (int64_t n : first.shape()) shape.push_back(n);
  Tensor out = empty(shape, first.dtype(), first.device());
  for (size_t i = 0; i < samples.size(); ++i) {
    const Tensor& t = samples[i].*field;
    auto* to = static_cast<char*>(out.data_ptr()) + i * first.nbytes();
    bool pixels = t.dtype() == kUInt8 && t.ndim() == 3 && t.device().is_cpu() && t.permute({1, 2, 0}).is_contiguous();
    if (t.device().is_cpu() && t.is_contiguous()) std::memcpy(to, t.data_ptr(), t.nbytes());
    else if (pixels) io::copy_planes(t, reinterpret_cast<uint8_t*>(to));
    else out.select(0, int64_t(i)).copy_(t.detach());
  }
  return out;
}

}  // namespace

Batch collate(std::vector<Sample> samples) {
  Batch b;
  if (samples.empty()) return b;
  b.image = stacked(samples, &Sample::image, "image");
  b.target = stacked(samples, &Sample::target, "target");
  for (auto& s : samples) {
    b.caption.push_back(std::move(s.caption));
    b.name.push_back(std::move(s.name));
    b.index.push_back(s.index);
  }
  return b;
}

}  // namespace sf::data
