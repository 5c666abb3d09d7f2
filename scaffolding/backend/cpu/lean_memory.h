// Host memory where sizes change from call to call, as between the levels of a decoder:
// blocks freed at one size are of no use at the next.
#pragma once
#include <cstddef>

namespace sf::cpu {

// While one is alive, memory is not asked of the system as long as freed blocks could be given back for it: what is in
// use and what is kept for reuse together stay within 32 MB of the most that was in use, or within 384 MB, which a
// small model's decoder fills again and again. Blocks whose size was not asked for the longest go first. No more than
// 24 MB of weights are kept in the layout of kernels (packed_weights.h), and none that could take a gradient, unless a
// model is small enough to be kept whole (KeptWhole). Scopes nest; any thread may have one.
class LeanMemory {
 public:
  LeanMemory();
  ~LeanMemory();
  LeanMemory(const LeanMemory&) = delete;
  static bool active();
  // What is kept for the next call of the model that ran, before another one runs: all packed weights, the calling
  // thread's scratch memory, freed blocks, and what malloc keeps.
  static void give_back();
  // The same, but where at most 192 MB are kept: without it a small model's next call would pack its weights and fault
  // its pages in anew, for the sake of so little.
  static void give_back_much();
  // Whether weights that could take a gradient are packed anew at each call.
  static bool keeps_few();
  // Bytes of weights in the layout of kernels that may be kept; SIZE_MAX outside of all scopes.
  static size_t most_packed();
};

// While one is alive, LeanMemory lets all weights of a model be kept in the layout of kernels: of one whose weights
// take `bytes`, if that is at most 64 MB. Of a larger model a part would cost as much and gain little.
class KeptWhole {
 public:
  explicit KeptWhole(size_t bytes);
  static bool takes(size_t bytes);
  ~KeptWhole();
  KeptWhole(const KeptWhole&) = delete;

 private:
  bool small_;
};

}  // namespace sf::cpu
