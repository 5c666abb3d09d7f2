// Recurrent layers on the CPU, float32, by multiply-adds.
#include "scaffolding/ops/recurrent/recurrent_steps.h"

namespace sf {
namespace SF_ISA {

static void forward(const RecurrentForward& a) { forward_by<MulF32, LyingStep>(a); }
static void backward(const RecurrentBackward& a) { backward_by<MulF32, LyingStep>(a); }

static bool forward_supports(const RecurrentForward& a) { return a.input.dtype == kFloat32; }
static bool backward_supports(const RecurrentBackward& a) { return a.dinput.dtype == kFloat32; }

SF_KERNEL(recurrent_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, forward, forward_supports)
SF_KERNEL(recurrent_backward, DeviceType::CPU, "native", SF_ISA_PRIORITY, backward, backward_supports)

}  // namespace SF_ISA
}  // namespace sf
