#include "streams.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "grid.h"

using namespace cuda_emulator;

std::recursive_mutex cuda_emulator::lock;
Counts cuda_emulator::counts;
thread_local int cuda_emulator::current_device = 0;
cudaError_t cuda_emulator::broken = cudaSuccess;
int64_t cuda_emulator::calls_until_broken = -1;
cudaError_t cuda_emulator::breaks_with = cudaErrorLaunchFailure;

namespace {

std::set<EmulatedStream*> streams;
std::deque<std::unique_ptr<EmulatedStream>> destroyed_streams;  // events may name them
std::set<EmulatedGraph*> captures;                              // that go on
EmulatedStream default_stream;
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

void run_until(EmulatedStream& s, uint64_t count) {
  if (s.done >= count || s.work.empty()) return;
  if (broken) {  // nothing runs any more
    s.done += s.work.size();
    return s.work.clear();
  }
  OpenMemory open;
  int before = races::select(s.index);
  while (s.done < count && !s.work.empty() && !broken) {
    auto work = std::move(s.work.front());
    s.work.pop_front();
    uint64_t place = ++s.done;  // before it runs: work may wait for other streams that wait for what came before this
    work();
    races::end_piece(s.index, place);
  }
  races::select(before);
}
void wait_until(EmulatedStream& s, uint64_t count) {  // as the host
  run_until(s, count);
  races::host_waited(s.index, count);
}
void push(EmulatedStream& s, std::function<void()> work) {
  if (races::Clock known = races::host_clock(); !known.empty())
    work = [known = std::move(known), i = s.index, work = std::move(work)] {
      races::join(i, known);
      work();
    };
  s.work.push_back(std::move(work));
  ++s.queued;
}

}  // namespace

bool cuda_emulator::is_dry() {
  static const char* dry = std::getenv("SF_CUDA_EMULATOR_DRY");
  return dry && std::strcmp(dry, "1") == 0;
}

static uint64_t contexts = 0;  // a bit per device

bool cuda_emulator::has_context(int device) { return contexts >> device & 1; }
void cuda_emulator::break_context(cudaError_t status) {
  if (!broken) broken = status;
}
cudaError_t cuda_emulator::outcome() { return broken ? failed(broken) : cudaSuccess; }
cudaError_t cuda_emulator::enter(bool makes_context) {
  std::lock_guard guard(lock);
  ++counts.calls;
  if (calls_until_broken == 0) break_context(breaks_with);
  if (calls_until_broken > 0) --calls_until_broken;
  if (makes_context) contexts |= uint64_t(1) << current_device;
  return outcome();
}
void cuda_emulator::end_captures() {
  for (EmulatedGraph* g : captures) {
    for (EmulatedStream* s : g->streams) s->graph = nullptr;
    delete g;
  }
  captures.clear();
}

EmulatedStream& cuda_emulator::stream_of(cudaStream_t s) {
  if (!s) return default_stream;
  if (!streams.count(s)) stop("a stream that does not exist");
  return *s;
}

void cuda_emulator::run_all(EmulatedStream& s) { wait_until(s, s.queued); }
void cuda_emulator::run_device() {
  run_all(default_stream);
  for (EmulatedStream* s : streams) run_all(*s);
}

// The default stream waits for all blocking streams and they for it (CUDA Runtime API,
// "Stream synchronization behavior").
void cuda_emulator::queue(cudaStream_t handle, std::function<void()> work) {
  EmulatedStream& s = stream_of(handle);
  s.lets_next_come = false;
  if (s.graph) {
    ++s.graph->nodes;
    if (!is_dry()) s.graph->work.push_back(std::move(work));
    if (&s != s.graph->origin) s.graph->unjoined.insert(&s);
    return;
  }
  if (is_dry()) return;
  auto after = [&](EmulatedStream& other) {
    if (&other == &s || other.queued == 0) return;
    push(s, [&other, i = s.index, n = other.queued] {
      run_until(other, n);
      races::join(i, other.index, n);
    });
  };
  if (&s != &default_stream && !(s.flags & cudaStreamNonBlocking)) after(default_stream);
  if (&s == &default_stream)
    for (EmulatedStream* other : streams)
      if (!(other->flags & cudaStreamNonBlocking)) after(*other);
  push(s, std::move(work));
}

bool cuda_emulator::breaks_captures() {
  bool broken = false;
  if (thread_mode == cudaStreamCaptureModeRelaxed) return false;
  for (EmulatedGraph* g : captures) {
    bool mine = g->thread == std::this_thread::get_id();
    bool forbids = mine ? g->mode != cudaStreamCaptureModeRelaxed
                        : g->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
    if (forbids) g->invalid = broken = true;
  }
  return broken;
}
bool cuda_emulator::breaks_capture_of(EmulatedStream& s) {
  if (s.graph) s.graph->invalid = true;
  return s.graph != nullptr;
}
bool cuda_emulator::breaks_any_capture() {
  bool broken = breaks_captures();
  for (EmulatedGraph* g : captures)
    if (g->origin->device == current_device) g->invalid = broken = true;
  return broken;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  *s = new EmulatedStream;
  (*s)->device = current_device;
  (*s)->flags = flags;
  streams.insert(*s);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  run_device();  // other streams' work may name it
  if (s->graph) stop("a stream that is captured was destroyed");
  streams.erase(&stream_of(s));
  destroyed_streams.emplace_back(s);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  if (breaks_capture_of(stream_of(s))) return failed(cudaErrorStreamCaptureUnsupported);
  ++counts.waits;
  run_all(stream_of(s));
  return outcome();
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  if (breaks_capture_of(stream_of(s))) return failed(cudaErrorStreamCaptureUnsupported);
  if (stream_of(s).done < stream_of(s).queued) return cudaErrorNotReady;
  races::host_waited(stream_of(s).index, stream_of(s).queued);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  EmulatedStream& waits = stream_of(s);
  if (e->graph) {
    if (!captures.count(e->graph) || (waits.graph && waits.graph != e->graph))
      return failed(cudaErrorStreamCaptureIsolation);
    waits.graph = e->graph;
    e->graph->streams.insert(&waits);
    // The captured order holds what is waited for; work of the event's stream behind it counts as waited for too.
    if (&waits == e->graph->origin) e->graph->unjoined.erase(e->stream);
    return cudaSuccess;
  }
  if (waits.graph && e->stream) {  // the graph would depend on work outside of it
    waits.graph->invalid = true;
    return failed(cudaErrorStreamCaptureIsolation);
  }
  if (e->stream)
    queue(s, [other = e->stream, i = waits.index, n = e->after] {
      run_until(*other, n);
      races::join(i, other->index, n);
    });
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  *e = new EmulatedEvent;
  (*e)->device = current_device;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  if (e->stream && !e->graph) run_until(*e->stream, e->after);  // recorded work writes its time into the event
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  if (int d = stream_of(s).device; d >= 0 && d != e->device) return failed(cudaErrorInvalidResourceHandle);
  if (stream_of(s).graph) {
    e->graph = stream_of(s).graph;
    e->stream = &stream_of(s);
    return cudaSuccess;
  }
  e->graph = nullptr;
  if (e->stream) run_until(*e->stream, e->after);
  queue(s, [e] { e->time = std::chrono::steady_clock::now(); });
  e->stream = &stream_of(s);
  e->after = e->stream->queued;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  if (e->graph) return failed(cudaErrorCapturedEvent);
  if (breaks_captures()) return failed(cudaErrorStreamCaptureUnsupported);
  ++counts.waits;
  if (e->stream) wait_until(*e->stream, e->after);
  return outcome();
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  if (e->graph) return failed(cudaErrorCapturedEvent);
  if (breaks_captures()) return failed(cudaErrorStreamCaptureUnsupported);
  if (!e->stream) return cudaSuccess;
  if (e->stream->done < e->after) return cudaErrorNotReady;
  races::host_waited(e->stream->index, e->after);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  if (!start->stream || !end->stream) return failed(cudaErrorInvalidResourceHandle);
  if (cudaEventQuery(start) != cudaSuccess || cudaEventQuery(end) != cudaSuccess) return failed(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  EmulatedStream& s = stream_of(handle);
  if (&s == &default_stream) return failed(cudaErrorStreamCaptureImplicit);
  if (s.graph) return failed(cudaErrorInvalidValue);
  s.graph = new EmulatedGraph;
  s.graph->origin = &s;
  s.graph->thread = std::this_thread::get_id();
  s.graph->mode = mode;
  s.graph->streams.insert(&s);
  captures.insert(s.graph);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  *graph = nullptr;
  EmulatedStream& s = stream_of(handle);
  if (!s.graph || s.graph->origin != &s) return failed(cudaErrorStreamCaptureUnmatched);
  EmulatedGraph* g = s.graph;
  if (g->mode != cudaStreamCaptureModeRelaxed && g->thread != std::this_thread::get_id())
    return failed(cudaErrorStreamCaptureWrongThread);
  for (EmulatedStream* one : g->streams) one->graph = nullptr;
  captures.erase(g);
  cudaError_t status = g->invalid            ? cudaErrorStreamCaptureInvalidated
                       : g->unjoined.empty() ? cudaSuccess
                                             : cudaErrorStreamCaptureUnjoined;
  if (status == cudaSuccess) *graph = g;
  else delete g;
  return status == cudaSuccess ? status : failed(status);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::lock_guard guard(lock);
  ++counts.calls;
  std::swap(thread_mode, *mode);
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  if (nodes) return failed(cudaErrorInvalidValue);
  *count = graph->nodes;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  *exec = new EmulatedGraphExec{std::make_shared<const std::vector<std::function<void()>>>(graph->work)};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  // child graphs are not emulated
  if (breaks_capture_of(stream_of(s))) return failed(cudaErrorStreamCaptureUnsupported);
  queue(s, [work = exec->work] {
    for (auto& one : *work) one();
  });
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  delete exec;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  std::lock_guard guard(lock);
  if (cudaError_t status = enter()) return status;
  delete graph;
  return cudaSuccess;
}
