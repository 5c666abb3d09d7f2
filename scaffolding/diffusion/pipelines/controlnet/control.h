// What pipelines share whose UNet has ControlNets beside it: the networks, the options of a call, and what a run tells
// them.
#pragma once
#include "scaffolding/diffusion/pipelines/controlnet/controlled_denoiser.h"
#include "scaffolding/diffusion/pipelines/pipeline.h"

namespace sf::diffusion {

struct ControlOptions {
  Tensors control_image;  // for each network [n, C, height, width] in [0, 1]
  // One for all networks, or one for each.
  std::vector<double> controlnet_conditioning_scale{1}, control_guidance_start{0}, control_guidance_end{1};
  bool guess_mode = false;
  // image: what the pictures are called where there are no others
  OptionFields control_fields(const char* image);
};

// The ControlNets of a pipeline: "controlnet", and where there are several "controlnet_1" and so on.
struct ControlNets {
  std::vector<Ref<Denoiser>> networks{nullptr};
  // With the UNet of the last call, for the next one; copies have the same, so that their runs share calls.
  Ref<Ref<ControlledDenoiser>> beside = std::make_shared<Ref<ControlledDenoiser>>();

  ComponentSlots with_slots(ComponentSlots others);  // behind "unet"
  bool add_slot(const std::string& name);
  Ref<Denoiser> with(const Ref<Denoiser>& unet) const;
  // ValueError for networks and a UNet that do not go together, and for options that contradict each other.
  void check(const DiffusionPipeline& pipeline, const ControlOptions& options) const;
};

// A family's base with ControlNets.
template <class Base> class ControlledBase : public Base {
 public:
  ControlNets controlnets;
  ComponentSlots components() override { return controlnets.with_slots(Base::components()); }
  bool add_slot(const std::string& name) override { return controlnets.add_slot(name); }
};

// Of a run: what its networks see, and how much they say in each step.
struct Control {
  // Of the run's samples, once what it tells its denoiser stands. Pictures of height x width pixels, `copies` of each
  // prompt. name: of the picture, for callbacks.
  void begin(Run& run, const DiffusionPipeline& pipeline, const ControlNets& networks, const ControlOptions& options,
             int64_t height, int64_t width, int64_t copies, const char* name);
  void before_step(Run& run) const;
  void keep(const Run& run, const Tensor& places);  // samples of the batch

 private:
  struct Network {
    Tensor image;  // [B, C, height, width], under guidance [2 B, ..]
    double scale = 1, start = 0, end = 1;
  };
  std::vector<Network> networks_;
  bool guess_ = false;
};

// R: Run, or what a family's runs have besides.
template <class R> struct ControlledRun : R {
  Control control;

 protected:
  void prepare_step() override {
    R::prepare_step();
    control.before_step(*this);
  }
  void keep_more(const Tensor& places) override {
    R::keep_more(places);
    control.keep(*this, places);
  }
};

}  // namespace sf::diffusion
