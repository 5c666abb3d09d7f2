#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/models/adapters/lora_file.h"

namespace {

using namespace sf::models;

// Layers of both shapes and a joined one, with few names: "unet.conv", "lora_unet_attn_to_q", "diffusion_model.qkv".
const AdapterStems& stems() {
  static const AdapterStems small = [] {
    const TensorList model({{"conv.weight", {4, 3, 3, 3}},
                            {"attn.to_q.weight", {4, 4}},
                            {"attn.to_k.weight", {4, 4}},
                            {"proj_in.weight", {4, 4}}});
    AdapterStems out("unet", "UNet2DConditionModel");
    out.add(NameTable(model, NameRules().rename("", ""), "own"));
    out.add(NameTable(model,
                      NameRules()
                          .join({"attn.to_q", "attn.to_k"}, "qk")
                          .rename("proj_in", "in", NameChange::Pointwise)
                          .rename("conv", "c"),
                      "joined"));
    return out;
  }();
  return small;
}

}  // namespace

SF_FUZZ_TARGET(lora) {
  const auto checkpoint = sf::io::open_checkpoint(sf::io::Bytes::borrow(data, size, "fuzz"));
  LoraFile::recognises(*checkpoint);
  const LoraFile file(checkpoint, "fuzz");
  for (bool strict : {false, true}) {
    const LoraMatch lora = file.match({&stems()}, strict);
    for (auto& [component, layers] : lora.layers)
      for (auto& layer : layers) check_lora_values(layer, "fuzz");
  }
}
