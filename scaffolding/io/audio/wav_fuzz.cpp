#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/io/audio/wav.h"

SF_FUZZ_TARGET(wav) { sf::io::load_wav(sf::io::Bytes::borrow(data, size, "fuzz")).samples.to_vector(); }
