// Recurrent layers over whole sequences: one layer, in one direction. The product of the inputs with their weights is
// not part of it: it is one product for all time steps, made before.
//
// Rows of `input` are the steps of all sequences: those of step 0, then those of step 1. batch_sizes[T] (int64) says
// how many rows each step has; it never grows, so that row b of a step is of sequence b and sequence 0 is the longest
// (torch's PackedSequence). Absent: every step has as many rows as h0. reverse: from the last step to the first; a
// sequence begins at its own last step.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// input[N, 4 H]: the gates' part of the input, biases included, in the order i, f, g, o. weight_hh[4 H, P], h0[B, P],
// c0[B, H]. With weight_hr[P, H] h is projected to P; else P = H. -> output[N, P], h_n[B, P], c_n[B, H].
std::tuple<Tensor, Tensor, Tensor> lstm_sequence(const Tensor& input, const Tensor& weight_hh, const Tensor& h0,
                                                 const Tensor& c0, const Tensor& weight_hr = {},
                                                 const Tensor& batch_sizes = {}, bool reverse = false);
// input[N, 3 H]: in the order r, z, n, the input's biases included. weight_hh[3 H, H], bias_hh[3 H], h0[B, H].
// -> output[N, H], h_n[B, H].
std::tuple<Tensor, Tensor> gru_sequence(const Tensor& input, const Tensor& weight_hh, const Tensor& bias_hh,
                                        const Tensor& h0, const Tensor& batch_sizes = {}, bool reverse = false);
// h = tanh or relu of input[N, H] + h weight_hh[H, H]^T. h0[B, H]. -> output[N, H], h_n[B, H].
std::tuple<Tensor, Tensor> rnn_sequence(const Tensor& input, const Tensor& weight_hh, const Tensor& h0,
                                        const std::string& nonlinearity = "tanh", const Tensor& batch_sizes = {},
                                        bool reverse = false);

}  // namespace sf
