// Videos and sound: _core._data.VideoReader, VideoWriter, save_wav and load_audio.
#pragma once
#include "python/bindings/core/bind_tensor.h"

namespace sf::py {

void bind_video(nb::module_& d);

}  // namespace sf::py
