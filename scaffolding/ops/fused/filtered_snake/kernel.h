// The contract of filtered_snake with the backends. Plain data; kernels never see the tape and never check.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// u[t] = 2 sum over s of x[s] up[t + (K - 2) / 2 - 2 s],  v = u + amplitude * sin(frequency * u)^2,
// y[t] = sum over k of v[2 t + k - (K / 2 - 1)] down[k]
//
// of each channel; places before the first and behind the last of x and of v are these. x and y [N, C, L] are
// channels-last and share one floating dtype; frequency and amplitude [C], up and down [K] are contiguous float32; K is
// even.
struct FilteredSnake {
  TensorView x, frequency, amplitude, up, down, y;
};
extern KernelTable<FilteredSnake> filtered_snake_forward;

}  // namespace sf
