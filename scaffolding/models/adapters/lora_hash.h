// By what the web UI knows a LoRA again, whatever its file is called.
#pragma once
#include <string>

namespace sf::models {

// 12 hexadecimal digits: those of the metadata's "sshs_model_hash", or of the SHA-256 of a safetensors file's data
// without its header, so that other metadata change nothing; of a file of another kind, of all of it. Of PEFT's folder
// the config counts too, and of a folder with a part for each component each of them. RuntimeError and ValueError as
// io::open_checkpoint() for a file that cannot be read.
std::string lora_hash(const std::string& path);

}  // namespace sf::models
