#include "scaffolding/ops/layer_norm/row_norm.cuh"
#include "scaffolding/ops/rms_norm/kernel.h"

namespace sf::cuda {
namespace {

void forward(const RmsNormForward& f) { row_norm_forward("rms_norm", f); }
void backward(const RmsNormBackward& b) { row_norm_backward("rms_norm_backward", b); }

SF_KERNEL(rms_norm_forward, DeviceType::CUDA, "native", 0, forward, nullptr)
SF_KERNEL(rms_norm_backward, DeviceType::CUDA, "native", 0, backward, nullptr)

}  // namespace
}  // namespace sf::cuda
