"""T5's encoder, under transformers' name."""

from .modeling import ModelMixin, model_class
from .outputs import BaseModelOutput
from .token_table import TokenTableMixin


@model_class
class T5EncoderModel(TokenTableMixin, ModelMixin):
    """Token ids to the vectors that PixArt, SD 3 and FLUX attend to: transformers' T5EncoderModel, with its config
    fields and state-dict keys.

    The embedding is shared.weight, as in files; encoder.embed_tokens.weight is read as it. Loaded in float16, the
    weights called wo stay in float32.

    >>> model = sf.models.T5EncoderModel(vocab_size=100, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    >>> model(sf.tensor([[5, 7, 1]])).last_hidden_state.shape
    scaffolding.Size([1, 3, 16])
    """

    _keep_in_fp32_modules = ("wo",)

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        inputs_embeds=None,
        output_attentions=None,
        output_hidden_states=None,
        return_dict=None,
    ):
        """last_hidden_state [B, N, d_model] of input_ids[B, N], or of their embeddings inputs_embeds[B, N, d_model].

        attention_mask[B, N]: 0 where a token is padding. output_hidden_states: the embeddings and every block's output
        too, of the last after the final norm."""
        if output_attentions:
            raise NotImplementedError(
                "BaseModelOutput: attention weights are never stored; output_attentions must be False"
            )
        last, *hidden = self.native_forward(input_ids, attention_mask, inputs_embeds, bool(output_hidden_states))
        result = BaseModelOutput(last_hidden_state=last, hidden_states=tuple(hidden) or None)
        return result if return_dict is None or return_dict else result.to_tuple()
