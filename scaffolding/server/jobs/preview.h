// What a picture looks like before it is decoded: a linear map from latents to colours, fitted by least squares to what
// this autoencoder made of latents.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "scaffolding/core/tensor.h"

namespace sf::server {

// One autoencoder's, for latents of so many channels.
struct LatentMap {
  int64_t channels = 0;
  std::vector<double> values;  // [C + 1, 3]; the last row is added
  // Of latents [1, C, h, w] on the CPU: uint8 [3, h, w], strided as pixels lie.
  Tensor picture(const Tensor& latents) const;
};

// It is made where somebody asks for it: most never are, and between two steps the processor's threads wait for it. Any
// thread.
class Preview {
 public:
  // The latents, on the CPU, are not written any more.
  Preview(std::shared_ptr<const LatentMap> map, Tensor latents) : map_(std::move(map)), latents_(std::move(latents)) {}
  explicit Preview(std::string png) : png_(std::move(png)) {}
  const std::string& png() const;

 private:
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const LatentMap> map_;  // and latents: until it is made
  mutable Tensor latents_;
  mutable std::string png_;
};
using PreviewPointer = std::shared_ptr<const Preview>;  // null: none

// One thread at a time.
class LatentColours {
 public:
  // Learns from latents [1, C, h, w] and what they were decoded to, uint8 [H, W, 3]. Others are passed over.
  void learn(const Tensor& latents, const Tensor& frame);
  // Null where nothing was learnt, or of another number of channels. Learning more makes another one.
  std::shared_ptr<const LatentMap> map(int64_t channels) const;

 private:
  int64_t channels_ = 0;
  std::vector<double> squares_, products_;  // of latents with themselves and with colours, over all that was learnt
  std::shared_ptr<const LatentMap> map_;
};

}  // namespace sf::server
