// AdamW with moments in eight bits on CUDA: a block of threads per block of 256 values, a thread per value,
// dozens of tensors a launch.
// A moment is read, updated and written as the nearest level of its map once the block's new scale is known; nothing
// but the values themselves goes to memory.
#include <cstring>

#include "scaffolding/backend/cuda/capture.h"
#include "scaffolding/backend/cuda/multi_tensor.cuh"
#include "scaffolding/backend/cuda/rows.cuh"
#include "scaffolding/optim/kernel.h"

namespace sf::cuda {
namespace {

using optim::DynamicMap;
using optim::QuantizedAdamStep;
using optim::QuantizedTensor;
static_assert(kThreads == optim::kBlock);

struct Rates {
  float sign, decay, lerp, beta2, fresh, eps, size;
  const double* numbers;
  explicit Rates(const QuantizedAdamStep& s)
      : sign(s.maximize ? -1.0f : 1.0f),
        decay(float(1 - s.lr * s.weight_decay)),
        lerp(float(1 - s.beta1)),
        beta2(float(s.beta2)),
        fresh(float(1 - s.beta2)),
        eps(float(s.eps * ::sqrt(s.bias_correction2))),
        size(float(s.lr / s.bias_correction1 * ::sqrt(s.bias_correction2))),
        numbers(s.numbers) {}
  __device__ bool skip() const { return numbers && numbers[kStepSkip] != 0; }
  __device__ Rates of_now() const {
    Rates r = *this;
    if (!numbers) return r;
    r.decay = float(1 - numbers[kStepLr] * numbers[kStepWeightDecay]);
    r.lerp = float(1 - numbers[kStepBeta1]), r.beta2 = float(numbers[kStepBeta2]),
    r.fresh = float(1 - numbers[kStepBeta2]);
    r.eps = float(numbers[kStepEps] * numbers[kStepRootCorrection2]),
    r.size = float(numbers[kStepSize] * numbers[kStepRootCorrection2]);
    return r;
  }
};

// The index of the level nearest to x in [0, 1]: that of its cell, or the next one.
__device__ int nearest(const DynamicMap& map, float x) {
  int bits;
  memcpy(&bits, &x, sizeof bits);
  int cell = (bits >> 15) - (DynamicMap::kLowestExponent << 8);
  cell = cell < 0 ? 0 : cell < DynamicMap::kCells ? cell : DynamicMap::kCells - 1;
  int k = map.cells[cell];
  return x > map.midpoints[k] ? k + 1 : k;
}

__global__ void __launch_bounds__(kThreads)
    update_blocks(TensorBatch<QuantizedTensor> batch, Rates rates, const DynamicMap* avg_map,
                  const DynamicMap* square_map, PreviousGrid previous) {
  using G = RowThreads<kThreads>;
  previous.wait();
  if (rates.skip()) return;
  const Rates r = rates.of_now();
  const int which = batch.index();
  const QuantizedTensor& t = batch.tensors[which];
  int64_t block = blockIdx.x - batch.first_block[which], i = block * kThreads + threadIdx.x;
  bool real = i < t.numel;
  float avg = 0, square = 0;
  if (real) {
    Numbers param = numbers_at(t.param, t.param_dtype);
    float g = r.sign * entry<float>(numbers_at(t.grad, t.grad_dtype), i),
          p = t.master ? t.master[i] : entry<float>(param, i);
    int code = t.avg[i];
    avg = (code < 127 ? -avg_map->levels[127 - code] : avg_map->levels[code - 127]) * t.avg_scale[block];
    square = square_map->levels[t.square[i]] * t.square_scale[block];
    avg = ::fmaf(r.lerp, g - avg, avg);
    square = ::fmaf(r.fresh, g * g, square * r.beta2);
    p = p * r.decay - r.size * (avg / (root(square) + r.eps));
    if (t.master) t.master[i] = p;
    param.set(i, p);
  }
  // after every thread has read the old scales
  float magnitude = ::fabsf(avg), avg_scale = G::max(magnitude), square_scale = G::max(square);
  if (threadIdx.x == 0) t.avg_scale[block] = avg_scale, t.square_scale[block] = square_scale;
  if (!real) return;
  magnitude *= avg_scale > 0 ? 1 / avg_scale : 0.0f;
  int k = nearest(*avg_map, magnitude);
  if (k == 0 && magnitude > 0) k = 1;  // the sign of a direction is kept however small it is
  t.avg[i] = uint8_t(avg < 0 ? 127 - (k > 127 ? 127 : k) : 127 + k);
  t.square[i] = uint8_t(nearest(*square_map, square * (square_scale > 0 ? 1 / square_scale : 0.0f)));
}

void quantized_adam(const QuantizedAdamStep& s) {
  if (!s.numbers)
    refuse_while_capturing(
        "adamw8bit", "an optimizer whose step count and learning rate are numbers of the host (capturable=False)");
  Device device = device_of_step("adamw_8bit", s.tensors, s.count, [](const QuantizedTensor& t) { return t.param; });
  DeviceTable avg_map = device_table(device, s.avg_map, 1), square_map = device_table(device, s.square_map, 1);
  auto all = [](const QuantizedTensor&) { return true; };
  for_tensor_batches(s.tensors, s.count, kThreads, all, all,
                     [&](const TensorBatch<QuantizedTensor>& batch, unsigned blocks) {
                       launch("adamw_8bit", device, blocks, update_blocks, batch, Rates(s),
                              avg_map->as<const DynamicMap>(), square_map->as<const DynamicMap>());
                     });
}
bool supports(const QuantizedAdamStep& s) {
  for (int64_t i = 0; i < s.count; ++i)
    if (s.tensors[i].param_dtype == kFloat64 || s.tensors[i].grad_dtype == kFloat64) return false;
  return true;
}
SF_KERNEL(optim::quantized_adam_step, DeviceType::CUDA, "native", 0, quantized_adam, supports)

}  // namespace
}  // namespace sf::cuda
