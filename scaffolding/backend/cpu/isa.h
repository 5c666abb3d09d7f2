// Instruction sets our own CPU kernels are compiled for, and which of them this processor has.
#pragma once
#include <string>

namespace sf::cpu {

enum class Isa { base, avx2, avx512, avx512bf16 };

bool has(Isa isa);  // the processor has it and SF_ISA does not forbid it
Isa best();         // the best of the above
const char* name(Isa isa);
bool isa_from_name(const char* name, Isa& out);
std::string processor_name();

}  // namespace sf::cpu
