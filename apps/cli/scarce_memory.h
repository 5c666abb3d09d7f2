// Prepares the program for memory that runs out (ulimit -v, ulimit -d): what is left then must do for saying so.
#pragma once

namespace sf::cli {

// Once, at the beginning of main. Keeps a reserve that the first allocation that fails gives back before it throws:
// destructors and messages that run while it unwinds find memory. Where one of them fails all the same, the program
// ends with one line instead of an abort.
void prepare_for_scarce_memory();

inline constexpr const char* kMemoryRanOut =
    "memory ran out: a limit of this process (ulimit -v, ulimit -d) or of the machine is too low";

}  // namespace sf::cli
