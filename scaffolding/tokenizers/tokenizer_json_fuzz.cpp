#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/tokenizers/tokenizer.h"

SF_FUZZ_TARGET(tokenizer_json) {
  auto tok = sf::tokenizers::Tokenizer::from_json(sf::io::Bytes::borrow(data, size, "fuzz"));
  for (const char* text : {"The  quick caf\xC3\xA9, don't <s> 12!", "e\xCC\x81\xF0\x9F\x98\x80\t\xEF\xBC\xA1"}) {
    auto options = tok.defaults();
    if (options.padding && options.padding->length > 4096) options.padding->length = 4096;
    if (options.padding && options.padding->multiple_of > 4096) options.padding->multiple_of = 4096;
    tok.decode(tok.encode(text, options).ids, size % 2);
  }
}
