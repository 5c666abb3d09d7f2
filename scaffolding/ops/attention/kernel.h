// Scaled dot-product attention: the contract between the op and its backends. Plain data; kernels never see the tape.
//
//   score[b, h, i, j] = scale * sum_d q[b, h, i, d] k[b, h / G, j, d] + mask[b, h, i, j],   G = Hq / Hkv
//   p = softmax of score over j;   y[b, h, i, :] = sum_j p[b, h, i, j] v[b, h / G, j, :]
//
// Shapes: q[B, Hq, Lq, D] k[B, Hkv, Lk, D] v[B, Hkv, Lk, Dv] y[B, Hq, Lq, Dv] lse[B, Hq, Lq]; Hq is a multiple of Hkv;
// any length may be 0 or 1, D and Dv are free. The last dimension of q, k, v, y, dy, dq, dk, dv has stride 1, the
// other three any stride, so [B, L, H, D] memory seen through a transpose needs no copy.
// q, k, v, y, dy, dq, dk, dv share one dtype; lse and dmask are float32 and contiguous.
//
// A row that may attend to nothing (every key masked, or Lk = 0) gives y = 0, lse = 0 and zero gradients,
// as torch does.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

struct AttentionForward {
  TensorView q, k, v;
  // Undefined, or at most four dimensions that broadcast to [B, Hq, Lq, Lk] (size 1 or stride 0). Bool: true attends.
  // float32, float16 or bfloat16: added to the scaled score. Any strides; a last stride of 0 or 1 is fast.
  TensorView mask;
  bool is_causal = false;  // query i sees keys j <= i, aligned at the top left when Lq != Lk; combines with mask
  double scale = 1;
  TensorView y;
  TensorView lse;  // log(sum_j exp(score[.., j])), which the backward pass reads; may be undefined
};
extern KernelTable<AttentionForward> attention_forward;

struct AttentionBackward {
  TensorView q, k, v, mask;  // as in the forward call
  bool is_causal = false;
  double scale = 1;
  TensorView y, lse, dy;  // what the forward call wrote, and the gradient of y
  // Written, not added to. Each may be undefined when nobody asked. dk and dv are sums over the G query heads.
  TensorView dq, dk, dv;
  TensorView dmask;  // float32 [B, Hq, Lq, Lk] contiguous, the gradient of the score; reduce it to the mask's shape
};
extern KernelTable<AttentionBackward> attention_backward;

}  // namespace sf
