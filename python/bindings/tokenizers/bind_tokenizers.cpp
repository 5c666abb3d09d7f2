// Tokenizers: what scaffolding.tokenizers is made of.
#include "python/bindings/tokenizers/bind_tokenizers.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "scaffolding/core/error.h"
#include "scaffolding/tokenizers/clip_tokenizer.h"
#include "scaffolding/tokenizers/gemma_tokenizer.h"
#include "scaffolding/tokenizers/qwen2_tokenizer.h"
#include "scaffolding/tokenizers/t5_tokenizer.h"
#include "scaffolding/tokenizers/text_tokenizer.h"

namespace nb = nanobind;

namespace sf::py {

namespace {

using namespace tokenizers;

Side side_of(const std::string& name, const char* what) {
  SF_CHECK(name == "left" || name == "right", "tokenizer: ", what, " must be 'left' or 'right', got '", name, "'");
  return name == "left" ? Side::Left : Side::Right;
}

std::optional<TextCleaning> cleaning_named(const std::optional<std::string>& name) {
  if (!name) return {};
  SF_CHECK(*name == "transformers" || *name == "openai",
           "CLIPTokenizer: text_cleaning must be 'transformers' or 'openai', got '", *name, "'");
  return *name == "openai" ? TextCleaning::OpenAI : TextCleaning::Transformers;
}

// Lists of ids and of mask values, one each for a text.
std::pair<std::vector<std::vector<int64_t>>, std::vector<std::vector<int64_t>>> encode(
    const Tokenizer& tok, const std::vector<std::string>& texts, bool add_special_tokens,
    std::optional<int64_t> max_length, const std::string& truncation_side, std::optional<int64_t> padded,
    int64_t multiple_of, const std::string& padding_side, int64_t pad_id) {
  nb::gil_scoped_release release;
  EncodeOptions options{.add_special_tokens = add_special_tokens};
  if (max_length) options.truncation = Truncation{*max_length, side_of(truncation_side, "truncation_side")};
  if (padded) options.padding = Padding{*padded, side_of(padding_side, "padding_side"), multiple_of, pad_id};
  std::pair<std::vector<std::vector<int64_t>>, std::vector<std::vector<int64_t>>> out;
  for (auto& e : tok.encode_batch(texts, options)) {
    out.first.push_back(std::move(e.ids));
    out.second.push_back(std::move(e.attention_mask));
  }
  return out;
}

nb::object content(const std::optional<AddedToken>& token) {
  return token ? nb::object(nb::str(token->content.c_str())) : nb::none();
}

nb::dict config(const Tokenizer& tok) {
  auto& c = tok.config();
  nb::dict out;
  out["bos_token"] = content(c.bos_token);
  out["eos_token"] = content(c.eos_token);
  out["unk_token"] = content(c.unk_token);
  out["pad_token"] = content(c.pad_token);
  out["model_max_length"] = c.model_max_length;
  out["padding_side"] = c.padding_side == Side::Left ? "left" : "right";
  out["truncation_side"] = c.truncation_side == Side::Left ? "left" : "right";
  return out;
}

// Added tokens that are special, or that are not.
std::vector<std::pair<int64_t, std::string>> added_tokens(const Tokenizer& tok, bool special) {
  std::vector<std::pair<int64_t, std::string>> out;
  for (auto& [id, token] : tok.added_tokens())
    if (token.special == special) out.emplace_back(id, token.content);
  return out;
}

}  // namespace

void bind_tokenizers(nb::module_& m) {
  nb::class_<Tokenizer>(m, "_Tokenizer")
      .def_static("from_file", &Tokenizer::from_file)
      .def_static("from_pretrained", [](const std::string& folder) { return Tokenizer::from_pretrained(folder); })
      .def("encode", &encode, nb::arg("texts"), nb::arg("add_special_tokens"), nb::arg("max_length").none(),
           nb::arg("truncation_side"), nb::arg("padded").none(), nb::arg("multiple_of"), nb::arg("padding_side"),
           nb::arg("pad_id"))
      .def("decode", &Tokenizer::decode, nb::arg("ids"), nb::arg("skip_special_tokens"))
      .def("token_to_id", [](const Tokenizer& tok, const std::string& token) { return tok.token_to_id(token); })
      .def("id_to_token", &Tokenizer::id_to_token)
      .def("vocabulary", &Tokenizer::vocabulary, nb::arg("with_added"))
      .def("special_tokens", [](const Tokenizer& tok) { return added_tokens(tok, true); })
      .def("added_words", [](const Tokenizer& tok) { return added_tokens(tok, false); })
      .def("add_tokens",
           [](Tokenizer& tok, const std::vector<std::string>& tokens, bool special) {
             std::vector<AddedToken> added;
             for (auto& t : tokens) added.push_back({.content = t, .normalized = !special, .special = special});
             return tok.add_tokens(added);
           })
      .def("config", &config)
      .def("size", &Tokenizer::size);
  nb::class_<CLIPTokenizer, Tokenizer>(m, "_CLIPTokenizer")
      .def_static(
          "from_pretrained",
          [](const std::string& folder, std::optional<std::string> cleaning) {
            return CLIPTokenizer::from_pretrained(folder, cleaning_named(cleaning));
          },
          nb::arg("folder"), nb::arg("text_cleaning") = nb::none())
      .def_static(
          "from_files",
          [](const std::string& vocab, const std::string& merges, std::optional<std::string> cleaning) {
            return CLIPTokenizer::from_files(
                vocab, merges, {.text_cleaning = cleaning_named(cleaning).value_or(TextCleaning::Transformers)});
          },
          nb::arg("vocab"), nb::arg("merges"), nb::arg("text_cleaning") = nb::none())
      .def_static(
          "built_in",
          [](const std::optional<std::string>& pad_token, const std::optional<std::string>& cleaning) {
            TokenizerConfig config;
            if (pad_token) config.pad_token = {.content = *pad_token, .normalized = false, .special = true};
            config.text_cleaning = cleaning_named(cleaning).value_or(TextCleaning::Transformers);
            return CLIPTokenizer::built_in(std::move(config));
          },
          nb::arg("pad_token").none(), nb::arg("text_cleaning").none())
      .def("save_pretrained", &CLIPTokenizer::save_pretrained);
  nb::class_<GemmaTokenizer, Tokenizer>(m, "_GemmaTokenizer")
      .def_static("from_pretrained", [](const std::string& folder) { return GemmaTokenizer::from_pretrained(folder); })
      .def("save_pretrained", &GemmaTokenizer::save_pretrained);
  nb::class_<Qwen2Tokenizer, Tokenizer>(m, "_Qwen2Tokenizer")
      .def_static("from_pretrained", [](const std::string& folder) { return Qwen2Tokenizer::from_pretrained(folder); })
      .def("save_pretrained", &Qwen2Tokenizer::save_pretrained);
  nb::class_<T5Tokenizer, Tokenizer>(m, "_T5Tokenizer")
      .def_static("from_pretrained", [](const std::string& folder) { return T5Tokenizer::from_pretrained(folder); })
      .def_static("from_file",
                  [](const std::string& path, int64_t extra_ids) {
                    return T5Tokenizer::from_sentencepiece(io::Bytes::map(path), {}, extra_ids);
                  })
      .def("save_pretrained", &T5Tokenizer::save_pretrained);
  nb::class_<TextTokenizer>(m, "_TextTokenizer")
      .def(nb::init<int64_t, int64_t>())
      .def_static("from_pretrained", &TextTokenizer::from_pretrained)
      .def("save_pretrained", &TextTokenizer::save_pretrained)
      .def_static("words", [](const std::string& text) { return TextTokenizer::words(text); })
      .def("encode",
           [](const TextTokenizer& tok, const std::string& text) {
             Encoding e = tok.encode(text);
             return std::pair(std::move(e.ids), std::move(e.attention_mask));
           })
      .def_prop_ro("vocab_size", &TextTokenizer::vocab_size)
      .def_prop_ro("max_length", &TextTokenizer::max_length);
  m.def(
      "_train_bpe",
      [](const std::vector<std::string>& texts, int64_t vocab_size, int64_t min_frequency) {
        nb::gil_scoped_release release;
        return train_bpe(texts, {.vocab_size = vocab_size, .min_frequency = min_frequency});
      },
      nb::arg("texts"), nb::arg("vocab_size"), nb::arg("min_frequency"));
  m.def(
      "_train_words",
      [](const std::vector<std::string>& texts, int64_t vocab_size, int64_t model_max_length) {
        nb::gil_scoped_release release;
        return train_words(texts, {.vocab_size = vocab_size, .model_max_length = model_max_length});
      },
      nb::arg("texts"), nb::arg("vocab_size"), nb::arg("model_max_length"));
}

}  // namespace sf::py
