// Checkpoints whose weights are float8 or int8 with scales beside, as ComfyUI's tools write them: X.weight with
// X.scale_weight or X.weight_scale; what there is to say of a layer as JSON in bytes, X.comfy_quant, or of all in
// the file's metadata, _quantization_metadata.
#pragma once
#include <memory>

#include "scaffolding/io/checkpoint.h"

namespace sf::io {

// The file, or where weights of it are float8 or have scales, a view of it: get() gives the numbers in float32, scales
// are no tensors of it, and blocks() (io/stored_blocks.h) gives weights as they lie. path: for errors. ValueError for
// scales that fit no weight or are no numbers, NotSupported for other ways of quantising, by their names. Weights that
// were rotated (ConvRot) are turned back, so that blocks() has none of them.
std::shared_ptr<const Checkpoint> with_scales(std::shared_ptr<const Checkpoint> file, const std::string& path);
// NotSupported for a file of SVDQuant's, as Nunchaku writes them.
void refuse_svdquant(const Checkpoint& file, const std::string& path);

}  // namespace sf::io
