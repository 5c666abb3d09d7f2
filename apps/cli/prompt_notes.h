// What of a request is taken in another way than it was probably meant: told on standard error, and no error. Functions
// only.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "apps/cli/generation.h"

namespace sf::cli {

// All of them that have not been told yet, of a call that works. given: the tensors that generate() takes.
void tell_notes(const GenerationSettings& settings, const std::vector<std::string>& prompts,
                const diffusion::DiffusionPipeline& pipeline, const std::map<std::string, Tensor>& given = {});

// What a prompt has of the Stable Diffusion web UI's syntax that does not count: (word:1.3) where prompts are plain,
// <lora:...> where it is no tag. A sentence for each kind. negative: it is the negative prompt.
// takes_weights: the model's pipeline has --prompt-syntax.
std::vector<std::string> prompt_notes(const std::string& prompt, bool negative, bool weighted, bool takes_weights);

// That a size is beyond what the model was trained for: a sentence from four times its area on, "" below.
std::string size_note(int64_t height, int64_t width, int64_t trained_height, int64_t trained_width, int64_t multiple);

}  // namespace sf::cli
