#include "scaffolding/diffusion/pipelines/controlnet/controlled_denoiser.h"

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

constexpr std::string_view kPrefix = "controlnet.";

// The networks as one model, for what looks at the weights of a denoiser.
struct ControlledModel final : models::Model {
  std::shared_ptr<nn::Module> unet;
  nn::ModuleList<nn::Module> controlnets;
  SF_MODULE(ControlledModel, unet, controlnets)
  io::Fields fields() override { return {}; }
};

// The model of a component, which lives as long as that.
std::shared_ptr<nn::Module> module_of(const Ref<Denoiser>& network) { return {network, network->model()}; }

// The place and the rest of "controlnet.1.controlnet_cond".
std::optional<std::pair<size_t, std::string>> control_name(const std::string& name) {
  if (!name.starts_with(kPrefix)) return {};
  const size_t dot = name.find('.', kPrefix.size());
  return std::pair(size_t(std::stoul(name.substr(kPrefix.size()))), name.substr(dot + 1));
}

bool is_for_all(const DenoiserArgument& a) {
  return a.name.empty() || a.name == "encoder_hidden_states" || a.name.starts_with("added_cond_kwargs.");
}

}  // namespace

std::string control_argument(size_t place, const char* name) {
  return std::string(kPrefix) + std::to_string(place) + "." + name;
}

ControlledDenoiser::ControlledDenoiser(Ref<Denoiser> unet, std::vector<Ref<Denoiser>> controlnets)
    : unet_(std::move(unet)), controlnets_(std::move(controlnets)) {
  auto together = std::make_shared<ControlledModel>();
  bool all = unet_->model() != nullptr;
  together->unet = module_of(unet_);
  for (auto& net : controlnets_) {
    all = all && net->model();
    together->controlnets.push_back(module_of(net));
  }
  together->eval();
  if (all) together_ = std::move(together);
}

Tensor ControlledDenoiser::predict(const DenoiserCall& call) {
  DenoiserCall told;
  std::vector<DenoiserCall> own(controlnets_.size());
  for (auto& a : call) {
    const auto control = control_name(a.name);
    if (!control) told.push_back(a);
    else own.at(control->first).push_back({control->second, a.tensor, a.role});
  }
  Tensors sum;
  for (size_t i = 0; i < controlnets_.size(); ++i) {
    if (own[i].size() == 0 || !own[i].at("controlnet_cond")) continue;
    DenoiserCall asked;
    for (auto& a : told) {
      if (!is_for_all(a)) continue;
      asked.push_back(a);
      // what an inpainting UNet sees behind the latents is not for them
      const int64_t channels = controlnets_[i]->config_int("in_channels", 4);
      if (a.role == ArgumentRole::Sample && a.tensor.size(1) > channels)
        asked[asked.size() - 1].tensor = a.tensor.narrow(1, 0, channels);
    }
    for (auto& a : own[i]) asked.push_back(a);
    Tensors out = controlnets_[i]->outputs(asked);
    SF_CHECK_AS(RuntimeError, out.size() > 1 && (sum.empty() || sum.size() == out.size()),
                "controlnet: the networks must all give as many tensors, got ", sum.size(), " and ", out.size());
    for (size_t j = 0; j < sum.size(); ++j) out[j] = sum[j] + out[j];
    sum = std::move(out);
  }
  for (size_t j = 0; j + 1 < sum.size(); ++j)
    told.push_back({"down_block_additional_residuals[" + std::to_string(j) + "]", sum[j], ArgumentRole::PerSample});
  if (!sum.empty()) told.push_back({"mid_block_additional_residual", sum.back(), ArgumentRole::PerSample});
  return unet_->predict(told);
}

}  // namespace sf::diffusion
