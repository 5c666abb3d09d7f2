"""multi_head_attention_forward: nn.MultiheadAttention's arithmetic (scaffolding/nn/attention.cpp)
on weights that the caller has.
"""

import math

from .. import _core

linear, cat, softmax = _core.linear, _core.cat, _core.softmax


def _additive(name, mask, dtype):
    if mask is None or mask.is_floating_point():
        return mask
    if mask.dtype is not _core.bool:
        raise TypeError(
            f"multi_head_attention_forward: only bool and floating types of {name} are supported, got {mask.dtype}"
        )
    return _core.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -math.inf)


def multi_head_attention_forward(
    query,
    key,
    value,
    embed_dim_to_check,
    num_heads,
    in_proj_weight,
    in_proj_bias,
    bias_k,
    bias_v,
    add_zero_attn,
    dropout_p,
    out_proj_weight,
    out_proj_bias,
    training=True,
    key_padding_mask=None,
    need_weights=True,
    attn_mask=None,
    use_separate_proj_weight=False,
    q_proj_weight=None,
    k_proj_weight=None,
    v_proj_weight=None,
    static_k=None,
    static_v=None,
    average_attn_weights=True,
    is_causal=False,
):
    """Attention with num_heads heads: query[L, N, E], key[S, N, kdim], value[S, N, vdim], or without N -> (output[L, N,
    E], weights[N, L, S] or None).

    in_proj_weight[3 E, E], or with use_separate_proj_weight the three of their own. static_k, static_v [N * num_heads,
    S, E / num_heads] stand for the projected keys and values."""
    who, batched = "multi_head_attention_forward", query.dim() == 3
    if not batched and query.dim() != 2:
        raise ValueError(
            f"{who}: query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D query tensor"
        )
    if query.shape[-1] != embed_dim_to_check or embed_dim_to_check % num_heads:
        raise ValueError(
            f"{who}: was expecting embedding dimension of {embed_dim_to_check}, divisible by {num_heads} heads, but "
            f"got {query.shape[-1]}"
        )
    if is_causal and attn_mask is None:
        raise ValueError(f"{who}: need attn_mask if specifying the is_causal hint")
    if not batched:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, n, e = query.shape
    d = e // num_heads
    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight.chunk(3)
    biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
    q, k, v = (linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases))

    mask = _additive("attn_mask", attn_mask, q.dtype)
    if mask is not None:
        mask = mask.reshape(1, 1, *mask.shape) if mask.dim() == 2 else mask.reshape(n, num_heads, *mask.shape[1:])
    padding = _additive("key_padding_mask", key_padding_mask, q.dtype)
    if padding is not None:
        padding = padding.reshape(n, 1, 1, -1)
        mask = padding if mask is None else mask + padding

    def longer():
        return None if mask is None else _core.pad(mask, (0, 1))

    if bias_k is not None:
        k, v, mask = cat([k, bias_k.expand(1, n, e)]), cat([v, bias_v.expand(1, n, e)]), longer()

    def heads(x):
        return x.reshape(x.shape[0], n, num_heads, d).permute(1, 2, 0, 3)

    q = heads(q)
    k = heads(k) if static_k is None else static_k.reshape(n, num_heads, -1, d)
    v = heads(v) if static_v is None else static_v.reshape(n, num_heads, -1, d)
    if add_zero_attn:
        zero = _core.zeros((n, num_heads, 1, d), dtype=k.dtype, device=k.device)
        k, v, mask = cat([k, zero], 2), cat([v, zero], 2), longer()
    dropout_p = dropout_p if training else 0.0
    scores = None
    if need_weights:
        scores = (q * math.sqrt(1 / d)) @ k.transpose(-2, -1)
        scores = softmax(scores if mask is None else scores + mask, -1)
        if dropout_p > 0:
            scores = _core.dropout(scores, dropout_p)
        y = scores @ v
        scores = scores.mean(dim=1) if average_attn_weights else scores
    else:
        y = _core.scaled_dot_product_attention(q, k, v, mask, dropout_p)
    y = linear(y.permute(2, 0, 1, 3).reshape(length, n, e), out_proj_weight, out_proj_bias)
    if not batched:
        return y.squeeze(1), None if scores is None else scores.squeeze(0)
    return y, scores
