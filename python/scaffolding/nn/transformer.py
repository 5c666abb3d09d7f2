"""Stacks of transformer layers, the decoder's layer, and encoder and decoder together (Vaswani et al. 2017)."""

import copy
import math

from .. import _core
from .._documents import add_to
from . import init
from .container import ModuleList
from .module import Module


class TransformerEncoder(Module):
    """num_layers copies of encoder_layer one after another, then norm.

    >>> layer = nn.TransformerEncoderLayer(32, 4, dim_feedforward=64, batch_first=True)
    >>> nn.TransformerEncoder(layer, num_layers=2)(sf.randn(2, 10, 32)).shape
    scaffolding.Size([2, 10, 32])
    """

    def __init__(self, encoder_layer, num_layers, norm=None, enable_nested_tensor=True, mask_check=True):
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
        """src[S, N, E] (or N first with batch_first, or without N) through the layers. mask: [S, S], True is left out,
        numbers are added to scores. src_key_padding_mask: [N, S], True where a token is padding. is_causal: a hint that
        mask is the causal one."""
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return src if self.norm is None else self.norm(src)


def _named_activation(activation):
    """Of "relu" and "gelu" and their functions the name; other functions as they are."""
    if isinstance(activation, str):
        if activation not in ("relu", "gelu"):
            raise RuntimeError(f"activation should be relu/gelu, not {activation}")
        return activation
    return next((name for name in ("relu", "gelu") if activation is getattr(_core, name)), activation)


class TransformerDecoderLayer(Module):
    """Self-attention, attention to the encoder's output and two linear layers, each with a residual and a LayerNorm,
    before them with norm_first. activation: "relu", "gelu" or a function.

    >>> layer = nn.TransformerDecoderLayer(32, 4, dim_feedforward=64, batch_first=True)
    >>> layer(sf.randn(2, 7, 32), sf.randn(2, 10, 32)).shape
    scaffolding.Size([2, 7, 32])
    """

    def __init__(
        self,
        d_model,
        nhead,
        dim_feedforward=2048,
        dropout=0.1,
        activation="relu",
        layer_norm_eps=1e-5,
        batch_first=False,
        norm_first=False,
        bias=True,
        device=None,
        dtype=None,
    ):
        super().__init__()
        place = {"device": device, "dtype": dtype}
        attention = {"dropout": dropout, "batch_first": batch_first, "bias": bias, **place}
        self.self_attn = _core._layer_MultiheadAttention(d_model, nhead, **attention)
        self.multihead_attn = _core._layer_MultiheadAttention(d_model, nhead, **attention)
        self.linear1 = _core._layer_Linear(d_model, dim_feedforward, bias=bias, **place)
        self.dropout = _core._layer_Dropout(dropout)
        self.linear2 = _core._layer_Linear(dim_feedforward, d_model, bias=bias, **place)
        self.norm_first = norm_first
        for name in ("norm1", "norm2", "norm3"):
            setattr(self, name, _core._layer_LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **place))
        for name in ("dropout1", "dropout2", "dropout3"):
            setattr(self, name, _core._layer_Dropout(dropout))
        activation = _named_activation(activation)
        self.activation = getattr(_core, activation) if isinstance(activation, str) else activation

    def forward(
        self,
        tgt,
        memory,
        tgt_mask=None,
        memory_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        tgt_is_causal=False,
        memory_is_causal=False,
    ):
        """tgt[T, N, E] and memory[S, N, E] (or N first, or without N) -> the shape of tgt. tgt_mask[T, T],
        memory_mask[T, S]; tgt_key_padding_mask[N, T], memory_key_padding_mask[N, S]. tgt_is_causal, memory_is_causal: a
        hint that the mask is the causal one."""
        x = tgt
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), tgt_mask, tgt_key_padding_mask, tgt_is_causal)
            x = x + self._mha_block(self.norm2(x), memory, memory_mask, memory_key_padding_mask, memory_is_causal)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal))
        x = self.norm2(x + self._mha_block(x, memory, memory_mask, memory_key_padding_mask, memory_is_causal))
        return self.norm3(x + self._ff_block(x))

    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal):
        y, _ = self.self_attn(
            x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, is_causal=is_causal, need_weights=False
        )
        return self.dropout1(y)

    def _mha_block(self, x, memory, attn_mask, key_padding_mask, is_causal):
        y, _ = self.multihead_attn(
            x,
            memory,
            memory,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
            need_weights=False,
        )
        return self.dropout2(y)

    def _ff_block(self, x):
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerDecoder(Module):
    """num_layers copies of decoder_layer one after another, then norm.

    >>> layer = nn.TransformerDecoderLayer(32, 4, dim_feedforward=64, batch_first=True)
    >>> decoder = nn.TransformerDecoder(layer, num_layers=2)
    >>> decoder(sf.randn(2, 7, 32), sf.randn(2, 10, 32)).shape
    scaffolding.Size([2, 7, 32])
    """

    def __init__(self, decoder_layer, num_layers, norm=None):
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt,
        memory,
        tgt_mask=None,
        memory_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        tgt_is_causal=None,
        memory_is_causal=False,
    ):
        """tgt through the layers, with memory: arguments as TransformerDecoderLayer's tgt, memory, tgt_mask,
        memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal and memory_is_causal."""
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=bool(tgt_is_causal),
                memory_is_causal=memory_is_causal,
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder, with a LayerNorm after each; matrices start Xavier-uniform. custom_encoder and
    custom_decoder stand in for them. activation: "relu", "gelu" or their functions.

    >>> net = nn.Transformer(32, 4, 1, 1, dim_feedforward=64, batch_first=True)
    >>> net(sf.randn(2, 10, 32), sf.randn(2, 7, 32)).shape
    scaffolding.Size([2, 7, 32])
    """

    def __init__(
        self,
        d_model=512,
        nhead=8,
        num_encoder_layers=6,
        num_decoder_layers=6,
        dim_feedforward=2048,
        dropout=0.1,
        activation="relu",
        custom_encoder=None,
        custom_decoder=None,
        layer_norm_eps=1e-5,
        batch_first=False,
        norm_first=False,
        bias=True,
        device=None,
        dtype=None,
    ):
        super().__init__()
        place = {"device": device, "dtype": dtype}
        sizes = (d_model, nhead, dim_feedforward, dropout, _named_activation(activation), layer_norm_eps)
        sizes += (batch_first, norm_first, bias)

        def norm():
            return _core._layer_LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **place)

        self.encoder = custom_encoder
        if custom_encoder is None:
            layer = _core._layer_TransformerEncoderLayer(*sizes, **place)
            self.encoder = TransformerEncoder(layer, num_encoder_layers, norm())
        self.decoder = custom_decoder
        if custom_decoder is None:
            self.decoder = TransformerDecoder(TransformerDecoderLayer(*sizes, **place), num_decoder_layers, norm())
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self,
        src,
        tgt,
        src_mask=None,
        tgt_mask=None,
        memory_mask=None,
        src_key_padding_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        src_is_causal=None,
        tgt_is_causal=None,
        memory_is_causal=False,
    ):
        """src[S, N, E] and tgt[T, N, E] (or N first with batch_first, or without N) -> the shape of tgt.
        RuntimeError where the batches differ or E is not d_model.

        Args:
            src_mask, tgt_mask, memory_mask: [S, S], [T, T], [T, S]: True is left out, numbers are added to scores
            src_key_padding_mask, memory_key_padding_mask: [N, S], True where a token is padding
            tgt_key_padding_mask: [N, T], likewise
            src_is_causal, tgt_is_causal, memory_is_causal: a hint that the mask is the causal one
        """
        batch_dim = 0 if self.batch_first else 1
        if src.dim() == 3 and src.shape[batch_dim] != tgt.shape[batch_dim]:
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz, device=None, dtype=None):
        """[sz, sz] of dtype on device: -inf above the diagonal, where nothing may be attended to, and 0 elsewhere."""
        return _core.triu(_core.full((sz, sz), -math.inf, dtype=dtype, device=device), 1)

    def _reset_parameters(self):
        for parameter in self.parameters():
            if parameter.dim() > 1:
                init.xavier_uniform_(parameter)


for _cls in (TransformerEncoder, TransformerDecoderLayer, TransformerDecoder, Transformer):
    _cls.__module__ = "scaffolding.nn"


for _class in (TransformerEncoder, TransformerDecoderLayer, TransformerDecoder, Transformer):
    add_to(_class, "nn")
