#include "scaffolding/core/env.h"

#include <cstdlib>

#include "scaffolding/core/error.h"

namespace sf::env {

const std::vector<Variable>& all() {
  static const std::vector<Variable> v = {
      {"SF_TRACE", "0", "1 prints op, shapes, provider, microseconds and bytes of every kernel call to standard error"},
      {"SF_PROVIDER", "",
       "pins providers: conv2d:native,matmul:onednn (kernel table name or its prefix, then provider)"},
      {"SF_ISA", "",
       "highest instruction set our own kernels may use: base, avx2, avx512, avx512bf16 or avx512amx; "
       "amx_emulated: those for tiles in plain C++, for tests"},
      {"SF_BF16_DOT", "",
       "1 multiplies bfloat16 by vdpbf16ps, 0 widens it to float32; unset does what is faster on this processor"},
      {"SF_INT8_DOT", "1", "0 multiplies int8 without vpdpbusd, as on a processor that lacks it"},
      {"SF_NUM_THREADS", "0",
       "threads for CPU kernels; 0 means one per core that affinity and cgroups leave (OMP_NUM_THREADS is honoured "
       "too)"},
      {"SF_CPU_CACHE_MB", "",
       "megabytes of freed host memory kept for reuse, 0 returns every block at once; unset: 1024, and what tensors "
       "took at their most, up to an eighth of the free memory"},
      {"SF_CPU_MEMORY_LIMIT_MB", "0",
       "megabytes of host memory that tensors may use before an allocation is refused; 0 means no limit"},
      {"SF_PACKED_WEIGHTS_MB", "2048",
       "megabytes of weights kept in the layout of the matrix and convolution kernels; 0 packs them anew at every "
       "call"},
      {"SF_CUDA_LIBRARY", "", "path of libscaffolding_cuda.so, when it does not lie beside the core library"},
      {"SF_CUDA_LIBRARY_PATH", "",
       "folders, with : between, in which CUDA's own libraries such as cuBLASLt are looked for first"},
      {"SF_CUDA_INCLUDE_PATH", "",
       "folders, with : between, in which NVRTC looks for headers first when it compiles a kernel of sf.cuda.Kernel"},
      {"SF_KERNEL_CACHE", "",
       "folder of kernels that were compiled at run time, and of cuDNN's engines by shape; empty: scaffolding/kernels "
       "in the user's cache; off: none is kept"},
      {"SF_KERNEL_CACHE_MB", "1024",
       "megabytes of them that are kept: beyond, those go that were read longest ago; 0: no limit"},
      {"SF_CUDA_CHECK_INDICES", "0",
       "1 lets each check of an index on a GPU wait for it, so that an index out of range is an error of the call "
       "itself "
       "and not of the next one that waits"},
      {"SF_CUDA_CACHE", "1",
       "0 gives each freed block of GPU memory back at once and asks for exact sizes, for checkers of memory; slow"},
      {"SF_CUDA_CONV_MB", "256",
       "megabytes of GPU memory for the rows that a convolution multiplies at a time, where no library does it whole"},
      {"SF_CUDA_WGMMA", "off",
       "whether linear layers and attention of 16 bits on Hopper GPUs run by kernels of our own, residual and gate "
       "included: off, timed (where backends.cuda.matmul.benchmark finds them faster than the libraries), on; not yet "
       "tried on a GPU"},
      {"SF_CUDA_PDL", "off",
       "on lets our own kernels on GPUs of compute capability 9.0 and later start before the kernel in front of them "
       "has ended, and wait for it themselves; not yet tried on a GPU"},
      {"SF_UPLOAD_BUFFER_MB", "64", "megabytes of each pinned buffer through which checkpoints are loaded to a GPU"},
      {"SF_UPLOAD_BUFFERS", "2",
       "how many of these buffers there are, at least 2: one is filled while another is copied"},
      {"SF_IMAGE_MAX_PIXELS", "178956970",
       "pixels of the largest picture that is decoded; a larger one is refused before memory is taken"},
      {"SF_VIDEO_LIBRARY", "", "path of libscaffolding_video.so, when it does not lie beside the core library"},
      {"SF_NCCL_LIBRARY", "", "path of libscaffolding_nccl.so, when it does not lie beside the core library"},
      {"SF_GLOO_LIBRARY", "", "path of libscaffolding_gloo.so, when it does not lie beside the core library"},
      {"SF_MPI_LIBRARY", "", "path of libscaffolding_mpi.so, when it does not lie beside the core library"},
      {"SF_POSTGRES_LIBRARY", "", "path of libscaffolding_postgres.so, when it does not lie beside the core library"},
      {"SF_VIDEO_MAX_PIXELS", "35389440",
       "pixels of the largest frame of a video that is decoded; a larger one is refused before memory is taken"},
      {"SF_PREFETCH_MB", "1024",
       "megabytes of decoded samples that a DataLoader keeps ready ahead of the batch that is wanted next"},
      {"SF_TEST_DEVICE", "", "device, such as cuda, on which the op tests repeat the samples of every op"},
      {"SF_MODEL", "",
       "folder of the model that the program takes where none is named; empty: the one that comes with it"},
      {"SF_VIDEO_MODEL", "", "the same of its commands that make clips"},
      {"SF_MODELS", "",
       "folders, with : between, below which the program looks for models by name before those of other programs"},
      {"SF_LORA_DIR", "",
       "folders, with : between, below which the program looks for LoRAs by name where --lora-dir names none"},
      {"SF_FUZZ_CASES", "0",
       "random calls that the fuzz test of the ops makes; 0 means as many as a test run has time for"},
      {"SF_FUZZ_SECONDS", "0.5", "how long the fuzz test of each file format runs"},
      {"SF_FUZZ_SEED", "1", "seed of the fuzz tests"},
  };
  return v;
}

std::string text(const char* name) {
  for (auto& v : all())
    if (std::string_view(v.name) == name) {
      const char* set = std::getenv(name);
      return set && *set ? set : v.fallback;
    }
  fail<RuntimeError>("env: ", name, " is not declared in core/env.cpp");
}

int64_t integer(const char* name) {
  std::string s = text(name);
  char* end = nullptr;
  long long v = std::strtoll(s.c_str(), &end, 10);
  SF_CHECK(end && *end == 0 && end != s.c_str(), name, ": must be an integer, got '", s, "'");
  return v;
}

bool flag(const char* name) {
  std::string s = text(name);
  return s == "1" || s == "true" || s == "on" || s == "yes";
}

}  // namespace sf::env
