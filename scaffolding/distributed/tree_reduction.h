// Reductions over an engine's sends: each process adds up one part of the numbers, in the order of reduction.h, and
// passes the sums on. That moves as many bytes as a ring does, and the sums are the same bits for any engine. Used by
// process_group.cpp.
#pragma once
#include <memory>
#include <span>

#include "scaffolding/distributed/engine.h"
#include "scaffolding/distributed/reduction.h"

namespace sf::distributed {

// Memory for what comes of others, two segments of each, kept from call to call: pages of new memory cost more than
// adding into them.
class ReductionMemory {
 public:
  char* get(size_t bytes) {
    if (bytes > bytes_) memory_ = std::make_unique_for_overwrite<char[]>(bytes_ = bytes);
    return memory_.get();
  }

 private:
  std::unique_ptr<char[]> memory_;
  size_t bytes_ = 0;
};

struct TreeCall {
  Engine& engine;
  ReductionMemory& memory;
  int rank, size;
  DType dtype;
  ReduceOp op;
  uint32_t tag;  // and tag + 1
  Deadline deadline;
};

// Numbers that lie in one piece of memory.
struct Piece {
  char* data;
  size_t count;
};

// In place, in every process; pieces are of the same sizes in all, and taken one after the other.
void tree_all_reduce(const TreeCall& call, std::span<const Piece> pieces);
// Into the root's data; that of the others stays.
void tree_reduce(const TreeCall& call, void* data, size_t count, int root);
// in: size * count numbers; out: of part `rank` of them.
void tree_reduce_scatter(const TreeCall& call, const void* in, void* out, size_t count);

}  // namespace sf::distributed
