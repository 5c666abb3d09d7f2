"""Golden files of recurrent layers and transformers, as make_golden_nn.py writes them.

Usage: /path/to/python-with-torch tests/golden/make_golden_nn_recurrent.py
"""

from make_golden_nn import write

CASES = [
    ("nn.LSTM(3, 4)", "randn(5, 2, 3)"),
    ("nn.LSTM(3, 4)", "randn(5, 3)"),
    ("nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True)", "randn(2, 5, 3)"),
    ("nn.LSTM(3, 4, num_layers=2, bias=False)", "randn(5, 2, 3)", "hx=(randn(2, 2, 4), randn(2, 2, 4))"),
    ("nn.LSTM(3, 4, bidirectional=True, proj_size=2)", "randn(5, 2, 3)", "hx=(randn(2, 2, 2), randn(2, 2, 4))"),
    ("nn.LSTM(3, 4, 2, dropout=0.5)", "randn(5, 2, 3)"),
    ("eval:nn.LSTM(3, 4, 2, dropout=0.5)", "randn(1, 2, 3)"),
    ("nn.LSTM(3, 4)", "randn(5, 3)", "hx=(randn(1, 4), randn(1, 4))"),
    ("nn.LSTM(3, 4, dtype=torch.float64)", "randn(5, 2, 3, dtype=torch.float64)"),
    ("nn.GRU(3, 4)", "randn(5, 2, 3)"),
    ("nn.GRU(3, 4, 2, bias=False, batch_first=True)", "randn(2, 5, 3)", "hx=randn(2, 2, 4)"),
    ("nn.GRU(3, 4, 2, bidirectional=True)", "randn(5, 2, 3)"),
    ("nn.GRU(3, 4)", "randn(5, 3)", "hx=randn(1, 4)"),
    ("nn.RNN(3, 4)", "randn(5, 2, 3)"),
    ("nn.RNN(3, 4, 2, nonlinearity='relu', bidirectional=True)", "randn(5, 2, 3)"),
    ("nn.RNN(3, 4, 1, 'tanh', False, True)", "randn(2, 5, 3)", "hx=randn(1, 2, 4)"),
    ("nn.LSTMCell(3, 4)", "randn(2, 3)"),
    ("nn.LSTMCell(3, 4, bias=False)", "randn(3)", "hx=(randn(4), randn(4))"),
    ("nn.GRUCell(3, 4)", "randn(2, 3)", "hx=randn(2, 4)"),
    ("nn.RNNCell(3, 4)", "randn(2, 3)"),
    ("nn.RNNCell(3, 4, nonlinearity='relu')", "randn(2, 3)", "hx=randn(2, 4)"),
    ("nn.TransformerDecoderLayer(8, 2, 12, dropout=0.0)", "randn(4, 3, 8), randn(5, 3, 8)"),
    (
        "nn.TransformerDecoderLayer(8, 2, 12, 0.0, 'gelu', batch_first=True, norm_first=True, bias=False)",
        "randn(3, 4, 8), randn(3, 5, 8)",
        "tgt_mask=nn.Transformer.generate_square_subsequent_mask(4), tgt_is_causal=True",
    ),
    (
        "eval:nn.TransformerDecoderLayer(8, 2, 12)",
        "randn(4, 3, 8), randn(5, 3, 8)",
        "memory_key_padding_mask=torch.arange(15).reshape(3, 5) % 4 == 3",
    ),
    (
        "nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 3, dropout=0.0), 2, nn.LayerNorm(4))",
        "randn(4, 3, 4), randn(5, 3, 4)",
        "memory_mask=torch.arange(20).reshape(4, 5) % 3 == 2",
    ),
    (
        "nn.Transformer(8, 2, 1, 1, 12, 0.0)",
        "randn(5, 3, 8), randn(4, 3, 8)",
        "tgt_mask=nn.Transformer.generate_square_subsequent_mask(4)",
    ),
    (
        "nn.Transformer(8, 2, 1, 1, 12, 0.0, 'gelu', batch_first=True, norm_first=True)",
        "randn(3, 5, 8), randn(3, 4, 8)",
    ),
]

if __name__ == "__main__":
    write("nn_recurrent", CASES, kept=3, join=True)
