// StreamGroups: which weights of a model come and go together. Found from the tree of modules, of any model.
#pragma once
#include "scaffolding/nn/module.h"

namespace sf::nn {

enum class StreamLevel {
  Block,  // repeated blocks: the innermost numbered children that are more than one layer
  Leaf    // the innermost modules of any name that are more than one layer: attention, feed-forward
};

struct StreamGroup {
  std::string name;             // of the first of its modules
  std::vector<Module*> owners;  // called one after another; within their calls the weights are there
  Tensors tensors;              // parameters and buffers below them
  int64_t bytes = 0;
};

struct StreamGroups {
  std::vector<StreamGroup> groups;  // in the order of the tree
  Tensors kept;                     // all else: of no block, of several, or read past the block's calls (ReadsBelow)
  int64_t group_bytes = 0, largest = 0, kept_bytes = 0;
};

bool is_container(const Module& m);  // of modules, and is never called: C++'s lists, and Python's

// blocks_per_group: so many neighbours of one list become one group (diffusers' num_blocks_per_group).
// only: names of modules below m; groups are found in those alone, each of which is one where it has none inside.
// ValueError for a name that there is not.
StreamGroups stream_groups(Module& m, StreamLevel level, int64_t blocks_per_group = 1,
                           const std::vector<std::string>& only = {});

}  // namespace sf::nn
