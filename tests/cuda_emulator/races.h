// Finds accesses of one byte that nothing orders, one of them a write: of threads of a block, of blocks, and of pieces
// of work on streams. Which threads ran in which order here does not matter. What orders, as the CUDA C++ Programming
// Guide has it: __syncthreads all threads of a block, __syncwarp those of a warp (shuffles and ballots do not); a fence
// before an atomic and one after another thread's later atomic on the same word; the order of a stream, events and
// waits of the host between streams. A kernel that may start before the one in front of it has ended comes after it
// from griddepcontrol.wait on: device memory that a thread touches before is found too.
// For one thread of the host at a time: under the runtime's lock.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cuda_emulator::races {

using Clock = std::vector<uint64_t>;  // by stream: how much of its work is known to be done

// Who touches memory now.
struct Actor {
  uint32_t work = 0, block = 0, barriers = 0;  // barriers: __syncthreads that the thread has passed
  uint16_t warp_barriers = 0, thread = 0;
};

#ifdef SF_EMULATOR_RACES
extern Actor now;
extern bool inside;    // a kernel's own code is running
extern bool is_early;  // in a thread that has not waited for the grid before and must not touch device memory

int add_stream();
int select(int stream);                            // its work runs from here on; returns whose did
void begin_work();                                 // a kernel or a copy of the selected stream
void end_piece(int stream, uint64_t place);        // the stream's queue is done up to place
void join(int stream, int other, uint64_t place);  // stream's later work comes after other's up to place
void host_waited(int other, uint64_t place);
Clock host_clock();                   // what the host has waited for
void join(int stream, const Clock&);  // stream's later work comes after what the clock has
void touch(const void*, size_t, bool write);
void forget(const void*, size_t);  // memory that was given or taken back
void open_barrier(unsigned threads);
#else
inline Actor now;
inline bool inside = false, is_early = false;
inline int add_stream() { return 0; }
inline int select(int) { return 0; }
inline void begin_work() {}
inline void end_piece(int, uint64_t) {}
inline void join(int, int, uint64_t) {}
inline void host_waited(int, uint64_t) {}
inline Clock host_clock() { return {}; }
inline void join(int, const Clock&) {}
inline void touch(const void*, size_t, bool) {}
inline void forget(const void*, size_t) {}
inline void open_barrier(unsigned) {}
#endif

// While the emulator, not the kernel, runs.
struct Outside {
  Outside() { inside = false; }
  ~Outside() { inside = true; }
};

}  // namespace cuda_emulator::races
