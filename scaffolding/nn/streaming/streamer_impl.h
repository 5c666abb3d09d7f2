// What streamer.cpp (where weights are between calls), streamer_calls.cpp (within them) and streamed_graph.cpp share.
#pragma once
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <unordered_set>

#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/nn/streaming/held_weights.h"
#include "scaffolding/nn/streaming/host_slots.h"
#include "scaffolding/nn/streaming/page_reader.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/nn/streaming/stream_slots.h"
#include "scaffolding/nn/streaming/stream_staging.h"
#include "scaffolding/nn/streaming/streamer.h"

namespace sf::nn {

class StreamedPass;
constexpr int kAhead = 2;  // groups that a disk is told of before they are needed

class Streamer::Impl {
 public:
  Impl(Module& model, const StreamOptions& options);
  ~Impl();

  void load();
  void offload();
  int64_t evict(int64_t bytes);
  bool lay_side_by_side(const Tensors& tensors);
  bool holds_any(const std::unordered_set<TensorImpl*>& tensors) const;
  bool loaded = false;
  StreamStatistics statistics() const;
  std::vector<std::string> names(bool resident) const;

  Module& model;
  const StreamOptions options;
  std::vector<ResidencePlace> places;

 private:
  friend class StreamedPass;
  struct Group;
  // Of one of a group's modules. The group leaves behind the last one.
  struct Door final : Residence {
    Impl* all = nullptr;
    Group* group = nullptr;
    Module* module = nullptr;
    bool last = false;
    void enter() override { all->enter(*group); }
    void leave() noexcept override { all->leave(*this); }
  };
  struct Group {
    std::string name;
    std::vector<Module*> owners;
    HeldWeights weights;
    bool resident = false;
    int slot = -1;       // that holds it, or will when its copy is done
    int inside = 0;      // calls under way
    bool shown = false;  // tensors are views of a slot
    int shown_in = -1;   // of this one
    uint32_t slot_version = 0;
    size_t turn = 0;  // of a capture: the last one
    bool was_entered = false;
    size_t order = 0;  // how many were called before it the first time, and itself; 0: it never was
    // The streamed group that came after it the last time, by the one before it: a group may have its turn twice.
    std::map<const Group*, Group*> next;
    std::vector<std::unique_ptr<Door>> doors;
  };
  // Brings everything back at the next call of the model, or of a part of it.
  struct Bell final : Residence {
    Impl* all = nullptr;
    Module* module = nullptr;
    void enter() override { all->begin(); }
    void leave() noexcept override { --all->calls_; }
  };

  bool on_cpu() const { return options.device.is_cpu(); }
  bool memory_is_short() const;
  void read_residents();
  void choose_residents();
  void list_streamed();
  void pin_streamed();
  void make_slots();
  size_t largest_streamed() const;
  void fetch_first();
  void forget_order();
  std::vector<Group*> choose_evicted(int64_t bytes, int64_t& freed);
  void open_doors();
  void hang_bells();
  void close_all() noexcept;
  void begin();
  bool in_call() const;
  void enter(Group& g);
  void leave(Door& door) noexcept;
  void show(Group& g, int slot);
  void away(Group& g);
  void fill(Group& g, int slot);
  void forget(Group& g);
  void drop_passes() noexcept;
  void fetch(Group& g, bool may_evict);
  void make_host_slots(size_t bytes);
  const Ref<Storage>& memory_of(int slot) const { return host_ ? host_->storage(slot) : slots_->storage(slot); }
  void wait_for_copies() { host_ ? host_->wait_for_reads() : slots_->wait_for_copies(); }
  Group* next_of(const Group* before, const Group* g) const;
  void fetch_after(Group& g);
  void look_at(Group& g);
  int free_slot() const;

  std::vector<Group> groups_;  // all, in the order of the tree
  std::vector<Group*> streamed_;
  HeldWeights kept_;
  std::unique_ptr<StreamSlots> slots_;
  std::unique_ptr<HostSlots> host_;  // instead of them, on the CPU
  PageReader page_reader_;           // of what stays, on the CPU
  std::optional<cpu::LeanMemory> lean_;
  std::unique_ptr<StreamStaging> staging_;
  std::vector<Group*> in_slot_;
  std::vector<std::unique_ptr<Bell>> bells_;
  Group *last_ = nullptr, *before_last_ = nullptr;  // that were entered
  Group* first_ = nullptr;
  size_t entered_ = 0;  // groups that were, ever
  size_t ordered_ = 0;
  int calls_ = 0;  // under way, that bells know of
  StreamedPass* capturing_ = nullptr;
  std::vector<StreamedPass*> passes_;  // captured ones
  StreamStatistics counts_;
};

// A captured call: stretches of work, each a graph, and what is queued between them.
class StreamedPass {
 public:
  using Group = Streamer::Impl::Group;
  explicit StreamedPass(Streamer::Impl& all) : all_(&all) {}
  ~StreamedPass();
  StreamedPass(const StreamedPass&) = delete;
  StreamedPass& operator=(const StreamedPass&) = delete;

  void capture(const std::function<void()>& f, cuda::GraphPool pool, CaptureMode mode);
  void replay();
  bool is_current() const;
  void drop() noexcept;  // memory that it reads is gone
  int64_t graphs() const;
  int64_t nodes() const;

  // ---- of the streamer, while it is captured
  void enter(Group& g);
  void leave(Group& g);
  void broke(std::exception_ptr error) { error_ = error; }

 private:
  enum class Begin : uint8_t { Call, Enter, Leave };
  struct Stretch {
    Begin begin = Begin::Call;
    size_t turn = 0;                         // of Enter and Leave
    std::unique_ptr<cuda::CudaGraph> graph;  // null where no work follows
  };
  struct Turn {
    Group* group;
    int slot;
    size_t next = 0;  // of the same slot, of the next call too
  };
  void open(Begin begin, size_t turn);
  int slot_for(const Group& g) const;
  void want(size_t turn);
  void read_ahead(size_t behind) const;
  void run(const Stretch& s);

  Streamer::Impl* all_;  // null: dropped
  cuda::GraphPool pool_ = 0;
  CaptureMode mode_ = CaptureMode::Global;
  std::vector<Stretch> stretches_;
  std::vector<Turn> turns_;
  bool over_ = false;  // the capture
  std::exception_ptr error_;
};

}  // namespace sf::nn
