// Where the one thing that moves in a clip is, by fixed formulas: no network, so that it tracks what every model makes
// alike. What is behind it is a colour that may change evenly over the frame, as clips of data::MovingIcons have it.
// Functions only; any thread.
#pragma once
#include <vector>

#include "scaffolding/core/tensor.h"

namespace sf::train {

struct TrackedFrame {
  bool found = false;   // false: nothing stands out, and the place is the frame's middle
  double x = 0, y = 0;  // the centre in pixels: the mean of the thing's pixels by how much they stand out
  // a square around the thing, in pixels, whole or beyond the frame
  int64_t left = 0, top = 0, side = 0;
};

// What of each pixel is not background, and where that is.
struct TrackedClip {
  std::vector<TrackedFrame> frames;
  Tensor opacity;  // float32 [F, H, W], 0 to 1
};

// clip: uint8 [3, F, H, W]. For each channel a plane is put through the outer two pixels of all frames, without those
// that stand out of it; what is more than 1/16 of the range away from it in a channel begins to stand out, and does so
// wholly from 3/16 on. Of that, only what is near its own middle counts (mean shift, with a window of 3/10 of the
// frame's smaller side around it).
TrackedClip track(const Tensor& clip);

// The thing alone, on white: uint8 [3, side, side], the square of this frame.
Tensor cut_out(const Tensor& clip, const TrackedClip& tracked, int64_t frame);

// A window uint8 [3, side, side] around the thing's centre in this frame, rounded to pixels, on white.
Tensor window(const Tensor& clip, const TrackedClip& tracked, int64_t frame, int64_t side);

}  // namespace sf::train
