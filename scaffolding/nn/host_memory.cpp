#include "scaffolding/nn/host_memory.h"

#include <cstdlib>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cpu/packed_weights.h"
#include "scaffolding/core/scratch.h"

namespace sf::nn {

void release_host_memory(Module& m) {
  for (auto& p : named_parameters(m))
    if (p.tensor.device().is_cpu() && p.tensor.storage())
      cpu::forget_packed(p.tensor.storage()->data, p.tensor.storage()->bytes);
  trim_scratch();
  cpu::empty_cache();
  if (Accelerator* gpu = loaded_accelerator()) gpu->empty_pinned_cache();
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace sf::nn
