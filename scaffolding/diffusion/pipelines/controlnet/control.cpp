#include "scaffolding/diffusion/pipelines/controlnet/control.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/prompt_embedding.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

OptionFields ControlOptions::control_fields(const char* image) {
  return {{image, &control_image, "what the ControlNet sees; of several ControlNets a list", OptionRole::Control},
          {"controlnet_conditioning_scale", &controlnet_conditioning_scale,
           "how much the ControlNet says; one number, or one for each"},
          {"guess_mode", &guess_mode,
           "the picture alone says what is to be seen: the ControlNet is asked beside the prompt and not beside the "
           "negative one"},
          {"control_guidance_start", &control_guidance_start, "the share of the steps before the ControlNet is asked"},
          {"control_guidance_end", &control_guidance_end, "the share of the steps after which it is not"}};
}

ComponentSlots ControlNets::with_slots(ComponentSlots others) {
  ComponentSlots out;
  for (auto& slot : others) {
    out.push_back(slot);
    if (slot.name != "unet") continue;
    for (size_t i = 0; i < networks.size(); ++i)
      out.push_back({i == 0 ? "controlnet" : "controlnet_" + std::to_string(i), &networks[i]});
  }
  return out;
}

bool ControlNets::add_slot(const std::string& name) {
  if (name != "controlnet_" + std::to_string(networks.size())) return false;
  networks.emplace_back();
  return true;
}

Ref<Denoiser> ControlNets::with(const Ref<Denoiser>& unet) const {
  if (!*beside || !(*beside)->is_of(unet, networks)) *beside = std::make_shared<ControlledDenoiser>(unet, networks);
  return *beside;
}

namespace {

// "320, 640, 1280"
std::string listed(const std::vector<double>& numbers) {
  std::string out;
  for (double n : numbers) out += (out.empty() ? "" : ", ") + std::to_string(int64_t(n));
  return out;
}

void check_beside(const char* who, const std::string& name, Denoiser& net, Denoiser& unet) {
  const auto own = net.config_list("block_out_channels"), theirs = unet.config_list("block_out_channels");
  SF_CHECK(!own || !theirs || *own == *theirs, who, ": its ", name,
           " is of another family than the unet: its levels have ", listed(*own), " channels, the unet's ",
           listed(*theirs));
  const io::Object config = unet.config();
  if (auto* text = config.find("cross_attention_dim"); text && text->is(io::Object::Int)) {
    const int64_t wanted = text->as_int(), has = net.config_int("cross_attention_dim", wanted);
    SF_CHECK(has == wanted, who, ": its ", name, " is of another family than the unet: it reads text of ", has,
             " features, the unet of ", wanted);
  }
  SF_CHECK(net.dtype() == unet.dtype(), who, ": its ", name, " computes in ", sf::name(net.dtype()), ", the unet in ",
           sf::name(unet.dtype()), "; load both in one dtype");
  SF_CHECK(net.device() == unet.device(), who, ": its ", name, " is on ", net.device().str(), ", the unet on ",
           unet.device().str());
}

double one_of(const std::vector<double>& numbers, size_t i) { return numbers.size() == 1 ? numbers[0] : numbers.at(i); }

}  // namespace

void ControlNets::check(const DiffusionPipeline& pipeline, const ControlOptions& o) const {
  const char* who = pipeline.name();
  const size_t n = networks.size();
  for (size_t i = 0; i < n; ++i)
    check_beside(who, i == 0 ? "controlnet" : "controlnet_" + std::to_string(i), *networks[i],
                 *pipeline.the_denoiser());
  SF_CHECK(!o.control_image.empty(), who, ": needs a picture for its ControlNet");
  SF_CHECK(o.control_image.size() == n, who, ": needs a picture for each of its ", n, " ControlNets, got ",
           o.control_image.size());
  for (auto& image : o.control_image) {
    check_defined(who, "the ControlNet's picture", image);
    SF_CHECK(image.ndim() == 4 && image.numel() > 0 && is_floating(image.dtype()), who,
             ": the ControlNet's picture must be [n, channels, height, width], got ", image.shape());
  }
  for (auto [name, numbers] : {std::pair("controlnet_conditioning_scale", &o.controlnet_conditioning_scale),
                               {"control_guidance_start", &o.control_guidance_start},
                               {"control_guidance_end", &o.control_guidance_end}}) {
    SF_CHECK(numbers->size() == 1 || numbers->size() == n, who, ": ", name, " must be one number, or one for each of ",
             n, " ControlNets, got ", numbers->size());
    for (double v : *numbers) SF_CHECK(std::isfinite(v), who, ": ", name, " must be finite, got ", v);
  }
  for (size_t i = 0; i < n; ++i) {
    const double start = one_of(o.control_guidance_start, i), end = one_of(o.control_guidance_end, i);
    SF_CHECK(start >= 0 && end <= 1 && start < end, who,
             ": control_guidance_start must be below control_guidance_end, both in [0, 1], got ", start, " and ", end);
  }
}

void Control::begin(Run& run, const DiffusionPipeline& pipeline, const ControlNets& nets, const ControlOptions& o,
                    int64_t height, int64_t width, int64_t copies, const char* name) {
  const char* who = pipeline.name();
  const int64_t batch = run.latents.size(0);
  run.denoiser = nets.with(pipeline.the_denoiser());
  guess_ = o.guess_mode || nets.networks[0]->config_bool("global_pool_conditions", false);
  networks_.clear();
  for (size_t i = 0; i < nets.networks.size(); ++i) {
    const Tensor& given = o.control_image[i];
    SF_CHECK(given.size(2) == height && given.size(3) == width, who, ": the ControlNet's picture must be of ", height,
             " x ", width, ", got ", given.shape());
    const int64_t n = given.size(0), times = n == 1 ? batch : copies;
    SF_CHECK(n * times == batch, who, ": needs one picture for the ControlNet, or one for each of ", batch / copies,
             " prompts, got ", n);
    Tensor image = repeated_samples(given.to(run.latents.device()).to(nets.networks[i]->dtype()), times);
    if (run.guidance.on()) image = cat({image, image}, 0);
    networks_.push_back({image, one_of(o.controlnet_conditioning_scale, i), one_of(o.control_guidance_start, i),
                         one_of(o.control_guidance_end, i)});
  }
  for (size_t i = 0; i < networks_.size(); ++i) {
    run.told.push_back({control_argument(i, "controlnet_cond"), {}, ArgumentRole::PerSample});
    run.told.push_back({control_argument(i, "conditioning_scale"), {}, ArgumentRole::PerSample});
    if (guess_) run.told.push_back({control_argument(i, "guess_mode"), ones({}, kFloat32), ArgumentRole::Setting});
  }
  if (networks_.size() == 1) run.tensors.insert({name, &networks_[0].image});
  for (auto& net : networks_) run.shares_calls = run.shares_calls && net.start <= 0 && net.end >= 1;
  before_step(run);
}

void Control::before_step(Run& run) const {
  const auto at = double(run.at()), all = double(run.schedule.size());
  const int64_t batch = run.latents.size(0), rows = run.guidance.on() ? 2 * batch : batch;
  for (size_t i = 0; i < networks_.size(); ++i) {
    const Network& net = networks_[i];
    const bool asked = at / all >= net.start && (at + 1) / all <= net.end && net.scale != 0;
    Tensor image, scale;
    if (asked) {
      // a callback may have taken guidance off, and with it the negative half
      const int64_t have = net.image.size(0);
      image = have > rows ? net.image.narrow(0, have - rows, rows) : net.image;
      const Device device = run.latents.device();
      if (guess_ && rows > batch)
        scale =
            cat({zeros({batch, 1, 1, 1}, kFloat32, device), full({batch, 1, 1, 1}, net.scale, kFloat32, device)}, 0);
      else if (net.scale != 1) scale = full({rows, 1, 1, 1}, net.scale, kFloat32, device);
    }
    run.told.at(control_argument(i, "controlnet_cond")) = image;
    run.told.at(control_argument(i, "conditioning_scale")) = scale;
  }
}

void Control::keep(const Run& run, const Tensor& places) {
  for (auto& net : networks_) {
    const Tensor both = run.guidance.on() ? cat({places, places + net.image.size(0) / 2}, 0) : places;
    net.image = index_select(net.image, 0, both.to(net.image.device()));
  }
}

}  // namespace sf::diffusion
