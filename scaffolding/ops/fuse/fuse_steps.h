// The steps that a chain of float ops is run in. A step has eight vectors of elements in registers, does one thing to
// them and calls the next: an op's value is never written to memory unless something later asks for it. Values are
// float32: those of 16 bits are rounded to them step by step, bools are 0 and 1.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

struct FusedStep {
  void (*run)() = nullptr;     // of a type that only the instruction set's file knows
  const void* data[2] = {};    // what is read, or written: element i of the piece at i & mask
  int64_t mask[2] = {-1, -1};  // 0: the elements of one tile, again and again
  float p0 = 0, p1 = 0;
};

struct FusedStepKind {
  // Keep: store and go on; Swapped: what is read comes first
  enum Kind { Load, Keep, Store, Stream, Round, Unary, Binary, Swapped, Lerp, Where } kind;
  DType dtype = kFloat32;               // Load, Store: of the memory; Round: to what; Unary: of the op
  const KernelTableBase* op = nullptr;  // of Unary, Binary and Swapped
};

// What an instruction set offers.
struct FusedSteps {
  int tile = 0;                                       // elements in the eight vectors
  void (*(*find)(const FusedStepKind&))() = nullptr;  // null: there is no such step
  // a chain, which ends with a Store, on n elements: a multiple of tile
  void (*run)(const FusedStep*, int64_t n) = nullptr;
  void (*finish)() = nullptr;  // after the last chain with a Stream, before other threads read
};
struct FusedStepsQuery {
  FusedSteps* steps;
};
extern KernelTable<FusedStepsQuery> fused_steps;

}  // namespace sf
