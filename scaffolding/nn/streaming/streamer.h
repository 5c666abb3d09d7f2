// Streamer: a model whose weights do not fit where it computes. Blocks that stay are on the device; the others pass
// through a few slots at fixed addresses, each by one copy on a stream of its own, fetched while the ones before it
// compute, the first ones of the next call during the last ones of this. The host waits for no copy.
//
// A module whose weights are away has its parameters as tensors in host memory: state dicts and saving work at any
// time, and writing there counts. Within its call they are views of a slot. Weights that a call did not write are
// dropped behind it, never copied back.
//
// On the CPU slots are memory that a thread reads blocks into, from their file; blocks that are of no file stay. Calls
// that may record a gradient, through frozen weights, read them where they are in the file, for the backward pass too.
//
// The order of calls is learned; another order costs time, not correctness. Calls record no gradients through weights
// that leave. One thread at a time, as the model.
#pragma once
#include <memory>

#include "scaffolding/core/device.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/nn/streaming/stream_groups.h"

namespace sf::nn {

class Streamer;

// Models of which one at a time is on the device: loading one offloads the others. Shared by their streamers.
struct StreamPhases {
  std::vector<Streamer*> members;
};

struct StreamOptions {
  Device device;  // where calls compute
  StreamLevel level = StreamLevel::Block;
  int64_t blocks_per_group = 1;
  std::vector<std::string> only;  // names of modules: all else stays. Empty: groups are found everywhere
  int64_t resident_bytes = 0;     // of groups that stay on the device, spread evenly; all that is in no group stays
  int64_t pinned_bytes =
      INT64_MAX;            // of host memory that may be pinned for streamed groups; the rest stays where it is
  bool pin_weights = true;  // false: weights are only staged through two pinned buffers
  int64_t slots = 3;        // on the device, each of the largest streamed group
  bool use_stream = true;   // false: copies are queued where the work is, and hide behind nothing
  bool load_now = true;     // false: the first call does
  std::shared_ptr<StreamPhases> phases;
};

struct StreamStatistics {
  int64_t groups = 0, resident_groups = 0;
  int64_t weight_bytes = 0;    // of the whole model
  int64_t resident_bytes = 0;  // on the device all the time, what is in no group included
  int64_t slot_bytes = 0;      // of all slots
  int64_t pinned_bytes = 0;    // of the host, with the buffers that unpinned weights go through
  // since the streamer was made
  int64_t copies = 0, copied_bytes = 0;  // of groups to slots; bytes of their weights
  int64_t misses = 0;                    // calls whose group was not under way yet
  int64_t waits = 0;                     // of the host, for a buffer of weights that are not pinned
  int64_t written_back = 0;              // bytes that a call had written
};

class Streamer {
 public:
  // Moves what stays to the device. The model must not go before it, nor be moved (nn::to) while it is attached.
  // Where something fails, the model is as it was.
  Streamer(Module& model, const StreamOptions& options);
  ~Streamer();  // detaches: all weights are in host memory then
  Streamer(const Streamer&) = delete;
  Streamer& operator=(const Streamer&) = delete;

  static Streamer* of(const Module& model);  // the one that is attached to this root, or null

  // Where these weights, rows of one product, are some streamer's: from now on they lie next to each other wherever
  // they are shown; no memory of the host is taken for it. False where they are nobody's.
  static bool lay_side_by_side(const Tensors& tensors);

  // Takes everything off the device, slots included; the next call brings it back.
  void offload();
  bool is_loaded() const;
  void load();  // what offload took off; nothing where it is there

  // Makes room between calls: of the groups that stay, as many are streamed from now on as free so many bytes of the
  // device, what slots take for it subtracted. Returns what that frees: less where there is no more to have, 0 where
  // there is nothing. RuntimeError within a call. Where it fails, the same groups stay as before, and all is off the
  // device until the next call.
  int64_t evict(int64_t bytes);

  Device device() const;
  const StreamOptions& options() const;
  StreamStatistics statistics() const;
  std::vector<std::string> resident_names() const;
  std::vector<std::string> streamed_names() const;

  // Around calls that C++ does not see: of modules whose forward is Python's. The same as long as this lives.
  const std::vector<ResidencePlace>& places() const;

  class Impl;

 private:
  friend class StreamedGraph;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sf::nn
