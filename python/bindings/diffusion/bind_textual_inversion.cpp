// Textual inversion as _core._pipelines has it: concepts of files, and tokens in a tokenizer and a text encoder. Called
// by python/scaffolding/diffusion/pipelines/textual_inversion.py.
#include "python/bindings/diffusion/bind_textual_inversion.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/models/model_of.h"
#include "scaffolding/diffusion/pipelines/textual_inversion.h"
#include "scaffolding/models/text_encoders/input_embeddings.h"

namespace sf::py {

namespace {

using tokenizers::Tokenizer;

constexpr const char* kOp = "textual inversion";

diffusion::TextPart part_of(Tokenizer& tokenizer, nb::handle text_encoder) {
  return {&tokenizer, &model_of(text_encoder, kOp)};
}

}  // namespace

void bind_textual_inversion(nb::module_& m) {
  m.def("read_concepts", [](const std::string& path) {
    std::vector<std::pair<std::string, Tensor>> out;
    for (auto& one : models::read_textual_inversion(*io::open_checkpoint(path), path))
      out.emplace_back(one.name, one.vectors);
    return out;
  });
  m.def("add_concepts", [](const std::vector<std::pair<Tokenizer*, nb::object>>& parts,
                           const std::vector<std::pair<std::string, Tensors>>& concepts) {
    std::vector<diffusion::TextPart> of;
    for (auto& [tokenizer, text_encoder] : parts) of.push_back(part_of(*tokenizer, text_encoder));
    std::vector<diffusion::Concept> all;
    for (auto& [token, vectors] : concepts) all.push_back({token, vectors});
    diffusion::add_concepts(of, all);
  });
  m.def("remove_concepts", [](Tokenizer& tokenizer, nb::handle text_encoder, const std::vector<std::string>& tokens) {
    diffusion::remove_concepts(part_of(tokenizer, text_encoder), tokens);
  });
  m.def("with_all_vectors", &diffusion::with_all_vectors);
  m.def("resize_token_embeddings", [](nb::handle text_encoder, int64_t rows) {
    models::resize_token_embeddings(model_of(text_encoder, "resize_token_embeddings"), rows);
  });
}

}  // namespace sf::py
