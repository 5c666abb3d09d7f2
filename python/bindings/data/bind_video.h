// Videos: _core._data.VideoReader, VideoWriter and read_clip.
#pragma once
#include "python/bindings/core/bind_tensor.h"

namespace sf::py {

void bind_video(nb::module_& d);

}  // namespace sf::py
