"""CLIP's text encoders, under transformers' names."""

from .modeling import ModelMixin, model_class
from .outputs import BaseModelOutputWithPooling, CLIPTextModelOutput
from .token_table import TokenTableMixin


def _named(call, output, names, arguments, output_attentions, output_hidden_states, return_dict):
    if output_attentions:
        raise NotImplementedError(
            f"{output.__name__}: attention weights are never stored; output_attentions must be False"
        )
    tensors = call(*arguments, bool(output_hidden_states))
    values = dict(zip(names, tensors))
    if output_hidden_states:
        values["hidden_states"] = tuple(tensors[2:])
    result = output(**values)
    return result if return_dict is None or return_dict else result.to_tuple()


@model_class
class CLIPTextModel(TokenTableMixin, ModelMixin):
    """Token ids to the vectors that a UNet attends to: transformers' CLIPTextModel,
    with its config fields and state-dict keys.

    >>> model = sf.models.CLIPTextModel(hidden_size=16, intermediate_size=32, num_hidden_layers=1)
    >>> ids = sf.tokenizers.CLIPTokenizer.built_in()("a red apple", return_tensors="pt").input_ids
    >>> model(ids).last_hidden_state.shape
    scaffolding.Size([1, 5, 16])
    """

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        output_attentions=None,
        output_hidden_states=None,
        return_dict=None,
    ):
        """last_hidden_state [B, N, hidden_size] and pooler_output [B, hidden_size], the vector at the end-of-text
        token, of input_ids[B, N].

        attention_mask[B, N]: 0 where a token is padding. output_hidden_states: the embeddings and every layer's output
        too, before the final norm."""
        names = ("last_hidden_state", "pooler_output")
        arguments = (input_ids, attention_mask, position_ids)
        return _named(
            self.native_forward,
            BaseModelOutputWithPooling,
            names,
            arguments,
            output_attentions,
            output_hidden_states,
            return_dict,
        )


@model_class
class CLIPTextModelWithProjection(TokenTableMixin, ModelMixin):
    """CLIPTextModel with a projection of the pooled vector into the space that pictures and texts share.

    >>> model = sf.models.CLIPTextModelWithProjection(1000, 16, 32, projection_dim=8, num_hidden_layers=1)
    >>> model(sf.randint(0, 1000, (1, 77))).text_embeds.shape
    scaffolding.Size([1, 8])
    """

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        output_attentions=None,
        output_hidden_states=None,
        return_dict=None,
    ):
        """text_embeds [B, projection_dim] and last_hidden_state [B, N, hidden_size] of input_ids[B, N];
        the rest as in CLIPTextModel.
        """
        names = ("text_embeds", "last_hidden_state")
        arguments = (input_ids, attention_mask, position_ids)
        return _named(
            self.native_forward,
            CLIPTextModelOutput,
            names,
            arguments,
            output_attentions,
            output_hidden_states,
            return_dict,
        )
