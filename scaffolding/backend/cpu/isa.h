// Instruction sets our own CPU kernels are compiled for, and which of them this processor has.
#pragma once
#include <string>

namespace sf::cpu {

enum class Isa { base, avx2, avx512, avx512bf16, avx512amx };

bool has(Isa isa);  // the processor has it and SF_ISA does not forbid it
Isa best();         // the best of the above
// Kernels for tiles run with tiles written out in plain C++ (SF_ISA=amx_emulated): any processor tests them.
bool emulates_tiles();
const char* name(Isa isa);
bool isa_from_name(const char* name, Isa& out);
std::string processor_name();
// Why there is no kernel at all: a build for another processor. Empty where there are some.
std::string why_no_kernels();

}  // namespace sf::cpu
