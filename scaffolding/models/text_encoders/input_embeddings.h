// A text encoder's table of tokens: the row that each id reads.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/nn/embedding.h"

namespace sf::models {

// transformers' get_input_embeddings(). NotSupported for a model without such a table.
nn::Embedding& input_embeddings(Model& model);

// transformers' resize_token_embeddings(): rows are added or left out at the end, and the config's vocab_size is their
// number. New rows are the mean of the old ones. ValueError for rows < 1, NotSupported for a table in few bits.
void resize_token_embeddings(Model& model, int64_t rows);

}  // namespace sf::models
