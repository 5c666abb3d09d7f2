// release_threads: for host threads that computed and leave what comes to others, as those that load models or make
// files. Each host thread has a team of its own, and while there are more threads than processors OpenMP puts them to
// sleep after every region: a picture of emoji-128 took 120 ms instead of 80 on two cores.
#pragma once

namespace sf {

// Ends the threads of the calling one's team; its next region starts them anew, some 50 us. Nothing inside a region.
void release_threads();

}  // namespace sf
