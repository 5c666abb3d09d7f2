// What a picture looks like before it is decoded: a linear map from latents to colours, fitted by least squares to what
// this autoencoder made of latents.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "scaffolding/core/tensor.h"

namespace sf::server {

// It is encoded where somebody asks for it: most never are. Any thread.
class Preview {
 public:
  explicit Preview(Tensor pixels) : pixels_(std::move(pixels)) {}     // uint8 [3, h, w]
  explicit Preview(std::string png) : made_(true), png_(std::move(png)) {}
  const std::string& png() const;

 private:
  mutable std::mutex mutex_;
  mutable Tensor pixels_;  // until it is made
  mutable bool made_ = false;
  mutable std::string png_;
};
using PreviewPointer = std::shared_ptr<const Preview>;  // null: none

// One thread at a time.
class LatentColours {
 public:
  // Learns from latents [1, C, h, w] and what they were decoded to, uint8 [H, W, 3]. Others are passed over.
  void learn(const Tensor& latents, const Tensor& frame);
  bool knows() const { return !map_.empty(); }
  // uint8 [3, h, w], strided as pixels lie; absent where nothing was learnt, or of another number of channels.
  std::optional<Tensor> picture(const Tensor& latents) const;

 private:
  int64_t channels_ = 0;
  std::vector<double> squares_, products_;  // of latents with themselves and with colours, over all that was learnt
  std::vector<double> map_;                 // [C + 1, 3]
};

}  // namespace sf::server
