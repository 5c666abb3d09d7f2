// ControlledDenoiser: a UNet and the ControlNets that look at pictures beside it, as one denoiser of a run. Each call
// asks the networks first and tells the UNet what they add up to. Guidance, CUDA graphs, the cache of the text and
// shared steps see one denoiser.
#pragma once
#include "scaffolding/diffusion/pipelines/components.h"

namespace sf::diffusion {

class ControlledDenoiser final : public Denoiser {
 public:
  ControlledDenoiser(Ref<Denoiser> unet, std::vector<Ref<Denoiser>> controlnets);

  // Of the call's arguments those named "controlnet.0.controlnet_cond" go to the first of the networks, under the name
  // behind its number. A network without a controlnet_cond is left out. Sample (without further channels), timestep,
  // text and added_cond_kwargs go to all of them.
  Tensor predict(const DenoiserCall& call) override;
  io::Object config() override { return unet_->config(); }
  DType dtype() override { return unet_->dtype(); }
  Device device() override { return unet_->device(); }
  // All of the networks; null where one is no C++ model.
  models::Model* model() override { return together_.get(); }

  bool is_of(const Ref<Denoiser>& unet, const std::vector<Ref<Denoiser>>& controlnets) const {
    return unet == unet_ && controlnets == controlnets_;
  }

 private:
  Ref<Denoiser> unet_;
  std::vector<Ref<Denoiser>> controlnets_;
  std::shared_ptr<models::Model> together_;
};

// The name of an argument of the network at this place.
std::string control_argument(size_t place, const char* name);

}  // namespace sf::diffusion
