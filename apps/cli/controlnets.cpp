#include "apps/cli/controlnets.h"

#include <algorithm>
#include <filesystem>

#include "apps/cli/files.h"
#include "apps/cli/model_names.h"
#include "apps/cli/suggestions.h"
#include "scaffolding/core/error.h"
#include "scaffolding/io/hub/model_folder.h"

namespace sf::cli {

namespace {

// Of the i-th network: one for all, or one for each.
const std::string& mode_of(const GenerationSettings& s, size_t i) {
  static const std::string none = "none";
  return s.control_modes.empty() ? none : s.control_modes.size() == 1 ? s.control_modes[0] : s.control_modes.at(i);
}

}  // namespace

void add_controlnet_options(CLI::App& c, GenerationSettings& s) {
  constexpr const char* kGroup = "After the edges, depths or pose of a picture (ControlNet)";
  c.add_option("--controlnet", s.controlnets,
               "A ControlNet of the model's family: a folder, a file, organisation/name on the hub, or a name; may be "
               "given again")
      ->allow_extra_args(false)
      ->group(kGroup);
  c.add_option("--control-image", s.control_images,
               "The picture that it sees; of several ControlNets one for each, in their order")
      ->allow_extra_args(false)
      ->group(kGroup);
  c.add_option("--control-mode", s.control_modes,
               "What is made of the picture first: none, or canny, its edges; one for all, or one for each")
      ->allow_extra_args(false)
      ->group(kGroup);
}

void check_controlnets(const GenerationSettings& s) {
  const size_t n = s.controlnets.size();
  if (n == 0) {
    SF_CHECK(s.control_images.empty(), "--control-image: needs --controlnet");
    SF_CHECK(s.control_modes.empty(), "--control-mode: needs --controlnet");
    return;
  }
  SF_CHECK(s.control_images.size() == n, "--control-image: each of the ", n, " --controlnet needs one, got ",
           s.control_images.size());
  SF_CHECK(s.control_modes.size() <= 1 || s.control_modes.size() == n,
           "--control-mode: must be one for all, or one for each of ", n, " --controlnet, got ",
           s.control_modes.size());
  const auto& known = diffusion::control_modes();
  for (auto& mode : s.control_modes)
    if (std::find(known.begin(), known.end(), mode) == known.end()) refuse_choice("--control-mode", mode, known);
  SF_CHECK(!s.hires, "--hires: its second pass has no picture of its size for --controlnet; leave either out");
  for (auto& image : s.control_images) input_picture("--control-image", image, io::ImageMode::RGB);
}

std::vector<std::shared_ptr<models::Model>> load_controlnets(GenerationSettings& s, DType dtype,
                                                             std::optional<int64_t> keep_half_from) {
  std::vector<std::shared_ptr<models::Model>> out;
  std::error_code error;
  for (auto& name : s.controlnets) {
    name = located_model("--controlnet", name, io::ModelUse::Other);
    const bool is_file = std::filesystem::is_regular_file(name, error);
    SF_CHECK(!is_file || !is_picture(name), "--controlnet: '", name, "' is a picture");
    const std::string path = is_file ? name : io::resolve_model_folder(loaded_from(name));
    out.push_back(diffusion::load_controlnet(path, {.dtype = dtype, .keep_half_from = keep_half_from}));
  }
  return out;
}

void set_control_pictures(const diffusion::AnyOptions& call, const GenerationSettings& s,
                          const diffusion::DiffusionPipeline& pipeline, const Tensor& image) {
  if (s.controlnets.empty()) return;
  diffusion::PreprocessOptions size{.height = s.height, .width = s.width};
  if (image) size.height = image.size(2), size.width = image.size(3);
  Tensors seen;
  for (size_t i = 0; i < s.control_images.size(); ++i) {
    const Tensor picture = input_picture("--control-image", s.control_images[i], io::ImageMode::RGB);
    seen.push_back(diffusion::control_picture(pipeline, picture, mode_of(s, i), size));
    if (!image) size.height = seen[0].size(2), size.width = seen[0].size(3);
  }
  for (auto& field : call.fields())
    if (field.role == diffusion::OptionRole::Control) *std::get<Tensors*>(field.place) = seen;
}

}  // namespace sf::cli
