#include "scaffolding/backend/cuda/driver.h"

#include <dlfcn.h>

#include "scaffolding/core/error.h"

namespace sf::cuda {

void require_driver() {
  // Asked of the loader: the runtime reports a missing driver as a driver that is too old.
  if (dlopen("libcuda.so.1", RTLD_LAZY)) return;
  const char* why = dlerror();
  fail<RuntimeError>("the NVIDIA driver is missing: ", why ? why : "libcuda.so.1 cannot be opened");
}

}  // namespace sf::cuda
