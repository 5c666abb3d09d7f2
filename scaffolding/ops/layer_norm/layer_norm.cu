#include "scaffolding/ops/layer_norm/kernel.h"
#include "scaffolding/ops/layer_norm/row_norm.cuh"

namespace sf::cuda {
namespace {

void forward(const LayerNormForward& f) { row_norm_forward("layer_norm", f); }
void backward(const LayerNormBackward& b) { row_norm_backward("layer_norm_backward", b); }

SF_KERNEL(layer_norm_forward, DeviceType::CUDA, "native", 0, forward, nullptr)
SF_KERNEL(layer_norm_backward, DeviceType::CUDA, "native", 0, backward, nullptr)

}  // namespace
}  // namespace sf::cuda
