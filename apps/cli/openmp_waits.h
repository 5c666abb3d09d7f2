// How long GNU OpenMP's threads wait for work, chosen before it is loaded.
#pragma once

namespace sf::cli {

// First in main. libgomp reads GOMP_SPINCOUNT (scaffolding/core/spin_count.h) when it is loaded, before main, and has
// no function for it. Where the value could not be slipped in by then, the program begins again with it: 14 ms.
void wait_sparingly(char** argv);

}  // namespace sf::cli
