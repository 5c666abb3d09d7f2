"""What text models made for generation share as text encoders: Gemma 3's and Qwen3's layers."""

from .modeling import ModelMixin
from .outputs import BaseModelOutput
from .token_table import TokenTableMixin


class TextDecoder(TokenTableMixin, ModelMixin):
    """Token ids to hidden states, each of which sees those before it. Nothing is generated."""

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        cache=None,
        inputs_embeds=None,
        use_cache=None,
        output_hidden_states=None,
        return_dict=None,
    ):
        """last_hidden_state [B, N, hidden_size] of input_ids[B, N], or of their embeddings inputs_embeds[B, N,
        hidden_size].

        attention_mask[B, N]: 0 where a token is padding. position_ids[B, N]: 0, 1, ... without them.
        output_hidden_states: the embeddings and every layer's output too, of the last after the final norm. cache and
        use_cache: None or False."""
        if cache is not None or use_cache:
            raise NotImplementedError(
                f"{type(self).__name__}: nothing is generated here; cache must be None and use_cache False"
            )
        last, *hidden = self.native_forward(
            input_ids, attention_mask, position_ids, inputs_embeds, bool(output_hidden_states)
        )
        result = BaseModelOutput(last_hidden_state=last, hidden_states=tuple(hidden) or None)
        return result if return_dict is None or return_dict else result.to_tuple()
