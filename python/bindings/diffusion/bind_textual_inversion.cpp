// Textual inversion as _core._pipelines has it: concepts of files, and tokens in a tokenizer and a text encoder. Called
// by python/scaffolding/diffusion/pipelines/textual_inversion.py.
#include "python/bindings/diffusion/bind_textual_inversion.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/nn/bind_nn.h"
#include "scaffolding/diffusion/pipelines/textual_inversion.h"
#include "scaffolding/models/text_encoders/input_embeddings.h"

namespace sf::py {

namespace {

models::Model& text_encoder_of(nb::handle o) {
  auto* model = dynamic_cast<models::Model*>(&module_of(o, "textual inversion"));
  SF_CHECK_AS(TypeError, model, "textual inversion: ", type_name(o.ptr()), " is no text encoder of this library");
  return *model;
}

}  // namespace

void bind_textual_inversion(nb::module_& m) {
  using tokenizers::Tokenizer;
  m.def("read_concepts", [](const std::string& path) {
    std::vector<std::pair<std::string, Tensor>> out;
    for (auto& one : models::read_textual_inversion(*io::open_checkpoint(path), path))
      out.emplace_back(one.name, one.vectors);
    return out;
  });
  m.def("add_concept_tokens", [](Tokenizer& tokenizer, nb::handle text_encoder, const std::vector<std::string>& tokens,
                                 const Tensor& vectors) {
    diffusion::add_concept_tokens(tokenizer, text_encoder_of(text_encoder), tokens, vectors);
  });
  m.def("remove_concept_tokens",
        [](Tokenizer& tokenizer, nb::handle text_encoder, const std::vector<std::string>& tokens) {
          diffusion::remove_concept_tokens(tokenizer, text_encoder_of(text_encoder), tokens);
        });
  m.def("with_all_vectors", &diffusion::with_all_vectors);
  m.def("concept_tokens", &diffusion::concept_tokens);
  m.def("resize_token_embeddings", [](nb::handle text_encoder, int64_t rows) {
    models::resize_token_embeddings(text_encoder_of(text_encoder), rows);
  });
}

}  // namespace sf::py
