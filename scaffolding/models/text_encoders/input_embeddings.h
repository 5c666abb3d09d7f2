// A text encoder's table of tokens: the row that each id reads.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/nn/embedding.h"

namespace sf::models {

// transformers' get_input_embeddings(). NotSupported for a model without such a table.
nn::Embedding& input_embeddings(Model& model);

// Another table [rows, hidden], whose rows are the config's vocab_size then. ValueError for another width, NotSupported
// where the table is in few bits.
void set_input_embeddings(Model& model, const Tensor& table);

// transformers' resize_token_embeddings(): rows are added or left out at the end. New ones are the mean of the others.
// ValueError for rows < 1.
void resize_token_embeddings(Model& model, int64_t rows);

}  // namespace sf::models
