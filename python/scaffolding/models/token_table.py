"""What text encoders have of transformers' interface for their table of tokens."""

from .._core import _pipelines


class TokenTableMixin:
    """A text encoder whose ids read rows of a table, which may grow: for tokens that are added to the tokenizer."""

    def get_input_embeddings(self):
        """The table: an nn.Embedding whose weight is [vocab_size, hidden_size]."""
        for name in ("shared", "embed_tokens"):
            if hasattr(self, name):
                return getattr(self, name)
        return self.text_model.embeddings.token_embedding

    def resize_token_embeddings(self, new_num_tokens=None):
        """Rows are added or left out at the end until there are new_num_tokens, which is the config's vocab_size then.
        New rows are the mean of the others. Returns the table. ValueError for fewer than one, NotImplementedError for a
        table in few bits.
        """
        if new_num_tokens is not None:
            _pipelines.resize_token_embeddings(self, new_num_tokens)
        return self.get_input_embeddings()
