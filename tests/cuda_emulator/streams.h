// Streams, events and captures of the emulated runtime, and what its other half (runtime.cpp) shares with them. Work on
// streams is kept back until something waits for it, as late as CUDA allows:
// a program that forgets to wait reads old bytes.
#pragma once
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "cuda_runtime.h"
#include "races.h"

namespace races = cuda_emulator::races;

// Work in the order in which it was captured, which is one of those that the streams and events of the capture allow.
struct EmulatedGraph {
  std::vector<std::function<void()>> work;
  size_t nodes = 0;  // pieces of work, of a dry run too
  EmulatedStream* origin = nullptr;
  std::thread::id thread;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool invalid = false;
  std::set<EmulatedStream*> streams;   // that take part
  std::set<EmulatedStream*> unjoined;  // with work that the origin does not wait for yet
};
struct EmulatedGraphExec {
  std::shared_ptr<const std::vector<std::function<void()>>> work;
};
struct EmulatedStream {
  int device = -1;  // any: the default stream
  int index = races::add_stream();
  EmulatedGraph* graph = nullptr;  // while captured
  unsigned flags = 0;
  uint64_t queued = 0, done = 0;  // pieces of work
  bool lets_next_come = false;    // its last work, captured or not, is a kernel that was launched to start early
  std::deque<std::function<void()>> work;
};
struct EmulatedEvent {
  int device = 0;
  EmulatedStream* stream = nullptr;  // null: never recorded
  uint64_t after = 0;                // pieces of work of that stream
  EmulatedGraph* graph = nullptr;    // recorded in a capture: it orders the captured work only
  std::chrono::steady_clock::time_point time;
};

namespace cuda_emulator {

extern std::recursive_mutex lock;  // of all that follows
// What a program asked of the host so far: waits for a stream, an event or the device,
// and copies to and from host memory.
struct Counts {
  int64_t waits = 0, to_host = 0, from_host = 0;
  int64_t kernels = 0, library_calls = 0, copies = 0, fills = 0;  // given to streams or to graphs that are captured
  int64_t dependent = 0, behind_dependent = 0;                    // of the kernels: may start early; and behind such
  int64_t blocks = 0;                                             // of all their grids
  int64_t properties = 0, memory_queries = 0, allocations = 0;    // calls of the driver that take long
  int64_t calls = 0, device_calls = 0;                            // of the runtime; of those: for the current device
};
extern Counts counts;
extern thread_local int current_device;

// Where every call of the runtime begins: makes the current device's context, and says what broke it. A kernel that
// trapped, or sf_cuda_emulator_break_after, breaks it for good: every later call fails with the same error.
cudaError_t enter(bool makes_context = true);
cudaError_t outcome();  // after work ran: of what broke the context meanwhile, else success
void break_context(cudaError_t status);
extern cudaError_t broken;
extern int64_t calls_until_broken;
extern cudaError_t breaks_with;
void end_captures();
bool has_context(int device);

// SF_CUDA_EMULATOR_DRY=1: calls are checked and counted, and nothing runs. Memory is addresses alone, as much as an
// H200 has; what is copied to the host is 0.
bool is_dry();

// Device memory is open to the calling thread for as long as this lives.
struct OpenMemory {
  OpenMemory();
  ~OpenMemory();
};

EmulatedStream& stream_of(cudaStream_t s);  // stops the program for one that does not exist
void queue(cudaStream_t stream, std::function<void()> work);
void run_all(EmulatedStream& s);  // as the host waits for it
void run_device();

// Calls that CUDA's manual lists as unsafe while a stream is captured ("Stream capture modes"):
// they break the captures that forbid them.
bool breaks_captures();
bool breaks_capture_of(EmulatedStream& s);  // waiting for, or asking about, a stream that is captured
bool breaks_any_capture();  // waiting for a device: those of that device, and those that forbid unsafe calls

}  // namespace cuda_emulator
