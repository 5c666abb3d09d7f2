// EventFile: what TensorBoard reads: records of tensorflow's TFRecord format (length, masked CRC-32C, data, masked
// CRC-32C), each a tensorflow.Event message (tensorboard/compat/proto/event.proto, summary.proto),
// encoded here by hand.
// One thread at a time. What was added survives the end of the process. RuntimeError where the file cannot be written.
#pragma once
#include <cstdint>
#include <map>

#include "scaffolding/core/tensor.h"
#include "scaffolding/train/appending_file.h"

namespace sf::train {

class EventFile {
 public:
  // A new file events.out.tfevents.<time>.<host>.<process>.<number> in `folder`, which is made. A run that goes on
  // after a step says so: TensorBoard then forgets what earlier files of the folder hold of later steps.
  explicit EventFile(const std::string& folder, int64_t after_step = 0);

  void add_scalar(const std::string& tag, double value, int64_t step);
  void add_scalars(const std::map<std::string, double>& values, int64_t step);  // stored as float32
  // image: [C, H, W] or [H, W] with 1 to 4 channels, uint8, or floating in [0, 1]. Stored as PNG.
  void add_image(const std::string& tag, const Tensor& image, int64_t step);
  void sync() { file_.sync(); }
  const std::string& path() const { return file_.path(); }

 private:
  void add_event(int64_t step, const std::string& fields);
  AppendingFile file_;
};

uint32_t crc32c(std::string_view bytes);         // Castagnoli's polynomial, as in iSCSI (RFC 3720)
uint32_t masked_crc32c(std::string_view bytes);  // rotated and offset: a CRC of data that holds CRCs is a poor one

}  // namespace sf::train
