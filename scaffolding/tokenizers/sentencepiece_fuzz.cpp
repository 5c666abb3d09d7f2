#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/tokenizers/t5_tokenizer.h"

SF_FUZZ_TARGET(sentencepiece) {
  auto tok = sf::tokenizers::T5Tokenizer::from_sentencepiece(sf::io::Bytes::borrow(data, size, "fuzz"), {}, 3);
  for (const char* text :
       {"The  quick caf\xC3\xA9, don't </s> 12!<extra_id_1>", "e\xCC\x81\xF0\x9F\x98\x80\t\xEF\xBC\xA1"})
    tok.decode(tok.encode(text).ids, size % 2);
}
