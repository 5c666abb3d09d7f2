// Library: one of CUDA's own libraries (cuBLASLt, NVRTC, ...), opened at run time and never closed,
// so that nothing here is linked to it.
// Looked for in the folders of SF_CUDA_LIBRARY_PATH, beside the one that asks, where the loader looks, in pip's nvidia
// packages beside that one, in the toolkit. Thread-safe.
#pragma once
#include <string>

namespace sf::cuda {

class Library {
 public:
  // file: "libcublasLt.so.13". neighbour: an address in the library beside which it is looked for. package: pip's, for
  // the advice. RuntimeError saying where it was looked for.
  Library(const char* file, const void* neighbour, const char* package = "nvidia-cublas");
  // RuntimeError naming the library when it lacks the function: it is then of another version.
  template <class F> void find(F*& function, const char* name) const { function = reinterpret_cast<F*>(symbol(name)); }

 private:
  void* symbol(const char* name) const;
  void* handle_ = nullptr;
  std::string path_, package_;
};

}  // namespace sf::cuda
