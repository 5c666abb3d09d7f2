// Host memory where sizes change from call to call, as between the levels of a decoder:
// blocks freed at one size are of no use at the next.
#pragma once

namespace sf::cpu {

// While one is alive, memory is not asked of the system as long as freed blocks could be given back for it: what is in
// use and what is kept for reuse together stay within 32 MB of the most that was in use. Blocks whose size was not
// asked for the longest go first. No more than 24 MB of weights are kept in the layout of kernels (packed_weights.h).
// Scopes nest; any thread may have one.
class LeanMemory {
 public:
  LeanMemory();
  ~LeanMemory();
  LeanMemory(const LeanMemory&) = delete;
  static bool active();
  // What is kept for the next call of the model that ran, before another one runs: all packed weights, the calling
  // thread's scratch memory, freed blocks, and what malloc keeps.
  static void give_back();
};

}  // namespace sf::cpu
