// Recurrent layers: the contract with backends. One layer in one direction, all time steps (recurrent.h). Where no
// provider supports a call, the steps run as ops.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

enum class RecurrentCell : uint8_t { Lstm, Gru, Tanh, Relu };

// Step t has the rows starts[t] .. starts[t + 1] of what is [N, ...] below; none has more rows than the one before.
struct RecurrentSteps {
  RecurrentCell cell;
  const int64_t* starts;  // [count + 1]
  int64_t count;          // at least 1
  bool reverse;
};

// All tensors are dense and of one floating dtype, none is empty. G is 4 for Lstm (i f g o), 3 for Gru (r z n), else 1.
struct RecurrentForward {
  RecurrentSteps steps;
  TensorView input;   // [N, G H]
  TensorView weight;  // [G H, H]
  TensorView bias;    // [3 H] of Gru's hidden part; undefined: none
  TensorView h0, c0;  // [B, H]; c0 of Lstm
  TensorView output;  // [N, H]
  TensorView cells;   // [N, H] Lstm: c; Gru: what r multiplies
  TensorView gates;   // [N, G H] of Lstm and Gru, after their activations; undefined: no gradient will be asked for
  TensorView h_n, c_n;
  uint64_t weight_version;  // of weight's bytes; 0: a packed copy is not worth keeping
};
extern KernelTable<RecurrentForward> recurrent_forward;

struct RecurrentBackward {
  RecurrentSteps steps;
  TensorView weight, h0, c0, output, cells, gates;  // as above
  TensorView doutput, dh_n, dc_n;                   // undefined: zero
  TensorView dinput;                                // [N, G H]
  TensorView dhidden;                               // [N, 3 H] of Gru: the gradient of h weight^T + bias
  TensorView before;                                // [N, H] gets h before each step: dweight = dhidden^T before
  TensorView dh0, dc0;
};
extern KernelTable<RecurrentBackward> recurrent_backward;

}  // namespace sf
