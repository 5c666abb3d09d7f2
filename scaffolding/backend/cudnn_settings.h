// What cuDNN may do, as torch.backends.cudnn says it. Process-wide; any thread may ask and set.
// A change holds from the next call on.
#pragma once

namespace sf {

struct CudnnSettings {
  bool enabled = true;  // false: its kernels support no call, and the next provider takes it
  bool benchmark =
      // the fastest of the plans that its heuristics name, timed on the first call of a shape;
      // else the first that works
      false;
  bool deterministic = false;  // no plan whose sums depend on the order in which threads come
  bool allow_tf32 =
      // float32 convolutions may round their operands to TF32 (10 bits of mantissa) for the tensor cores, as in torch
      true;
};

CudnnSettings cudnn_settings();
void set_cudnn_settings(CudnnSettings s);

}  // namespace sf
