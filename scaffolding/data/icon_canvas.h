// IconCanvas: a picture on which drawings with transparency are put in any size, place and turn. A value.
#pragma once
#include "scaffolding/data/icon_dataset.h"

namespace sf::data {

// A drawing's pixels, weighted by their opacity, cut to those that can be seen.
struct CutIcon {
  int64_t width = 0, height = 0, left = 0, top = 0;  // of what is left, and where in the drawing it was
  std::vector<float> rgba;                           // [height, width, 4], colours times opacity, 0 to 255
};
// whole: nothing is cut off. Of a drawing uint8 [4, H, W]; one that nothing can be seen of has width 0.
CutIcon cut_icon(const Tensor& drawing, bool whole);

struct IconPose {
  double x, y;       // of the middle, in pixels from the upper left corner
  double scale = 1;  // pixels for each of the drawing's
  double angle = 0;  // radians, clockwise
  bool mirrored = false;
};

class IconCanvas {
 public:
  IconCanvas(int64_t size, const IconGround& ground);
  void put(const CutIcon& icon, const IconPose& pose);
  Tensor picture() const;  // uint8 [3, size, size], the pixels' channels side by side

 private:
  int64_t size_;
  std::vector<float> rgb_;  // [size, size, 4], the last channel unused
};

}  // namespace sf::data
