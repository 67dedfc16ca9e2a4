// Every allocation and free on the simulated device, in order, with what is known about each.
#pragma once
#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/typeid.h>
#include <torch/csrc/autograd/function.h>

#include <cstdio>
#include <cstdlib>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "long_list.h"
#include "streams.h"

namespace vramcast {

// Work outside the backward pass counts as forward while gradients are recorded, else as an update
// (optimizer, clipping, evaluation).
// Run as a part of a CUDA graph; only recorded for one, or done while something was compiled.
enum Phase : int32_t { forward = 0, backward = 1, update = 2, replayed = 3, captured = 4 };

struct Allocation {
  int64_t num_bytes;
  int64_t stream;         // that was current: memory is used again only on the same one
  int32_t operator_name;  // index into names
  int32_t node_name = -1;  // backward only
  int32_t location = -1;  // what the location callback returned
  int32_t shape_offset = 0;  // into shapes
  int16_t dtype;          // c10::ScalarType, or -1 for raw bytes
  int8_t phase = forward;
  uint8_t num_dims = 0;
};
// As events, minus the number of the allocation: another stream may still use the memory that was
// just freed; it can be used again now at the latest.
constexpr int64_t held = -(int64_t{1} << 60), released = 2 * held, known = 3 * held;

// Every thread has a handle of cuBLAS. When the thread ends, the next new one has it.
struct BlasHandle {
  int64_t number;
  BlasHandle() {
    const std::lock_guard lock(pool().mutex);
    auto& unused = pool().unused;
    if (unused.empty()) unused.push_back(pool().count++);
    number = unused.back();
    unused.pop_back();
  }
  ~BlasHandle() {
    const std::lock_guard lock(pool().mutex);
    pool().unused.push_back(number);
  }

 private:
  struct Pool {
    std::mutex mutex;
    std::vector<int64_t> unused;
    int64_t count = 0;
  };
  // never destroyed: threads may end after the program
  static Pool& pool() {
    static auto* pool = new Pool();
    return *pool;
  }
};

struct Recorder {
  // what is allocated: a tensor's memory, or raw bytes
  struct Described {
    c10::IntArrayRef sizes;
    int16_t dtype = -1;
  };
  ShortMutex mutex;
  LongList<int64_t> events;  // +id allocates, -id frees; ids start at 1; 0 is a mark
  LongList<Allocation> allocations;
  LongList<int64_t> shapes;
  std::vector<std::string> names;
  std::unordered_map<std::string, int32_t> name_index;
  // Asks Python for the number of the current line of the user's program.
  int64_t (*location_callback)() = nullptr;
  int64_t location_minimum_bytes = 0;
  // Asks Python whether there is no memory for so many bytes on a stream.
  int32_t (*limit_callback)(int64_t, int64_t) = nullptr;
  std::string out_of_memory_message;
  // Where in the user's program each autograd node was made, by the thread that made it and its
  // sequence number, which counts nodes per thread.
  std::map<std::pair<uint64_t, uint64_t>, int64_t> node_locations;
  // The number of the allocation by handle, stream, and whether it is cuBLASLt's.
  std::map<std::tuple<int64_t, int64_t, bool>, int64_t> workspaces;
  std::atomic<int64_t> num_compiling = 0;  // compilations and timings that are going on
  // Of the workspaces that were first taken meanwhile, by their allocation: the last allocation
  // before the program itself used them.
  std::map<int64_t, int64_t> used_after;
  int64_t gemm_workspace_bytes = 0;
  int64_t gemm_lt_workspace_bytes = 0;
  bool keeps_gemm_workspaces = true;
  std::unordered_map<int64_t, int64_t> repeated;  // allocations of the pass that is repeated
  int64_t epoch = 1;  // counts resets
  // what torch.cuda.memory_allocated() answers
  int64_t allocated_bytes = 0, peak_allocated_bytes = 0;

  int32_t intern(const std::string& name) {
    const std::lock_guard lock(mutex);
    const auto [found, added] = name_index.try_emplace(name, static_cast<int32_t>(names.size()));
    if (added) names.push_back(name);
    return found->second;
  }

  // node.name() demangles the name of its type at every call, which is slow.
  int32_t node_name(const torch::autograd::Node& node) {
    static thread_local std::unordered_map<const std::type_info*, int32_t> names_by_type;
    const auto* type = &typeid(node);
    const auto found = names_by_type.find(type);
    if (found != names_by_type.end()) return found->second;
    return names_by_type[type] = intern(node.name());
  }

  // Called when an operator begins. If an autograd node was made since this thread's last operator,
  // it is this operator's: autograd makes the node first and then runs the operator. What the node
  // allocates in the backward pass is shown at this line. A node that a backward pass makes, to be
  // differentiated again, has the line of the node it comes from.
  void locate_new_node() {
    auto& last_seen = of_thread().num_nodes;
    const auto num_nodes = at::sequence_number::peek();
    if (current_operator() < 0) operator_location() = unknown;
    if (!location_callback || num_nodes == last_seen) return;
    last_seen = num_nodes;
    auto location = current_location();
    const auto differentiated = torch::autograd::get_current_node();
    const std::lock_guard lock(mutex);
    if (location < 0 && differentiated) location = location_of(*differentiated);
    node_locations[{at::RecordFunction::currentThreadId(), num_nodes - 1}] = location;
  }

  // Asks Python once for each outermost operator.
  int64_t current_location() {
    if (current_operator() < 0 || operator_location() == unknown)
      operator_location() = location_callback();
    return operator_location();
  }

  int64_t location_of(const torch::autograd::Node& node) const {
    const auto found = node_locations.find({node.thread_id(), node.sequence_nr()});
    return found == node_locations.end() ? -1 : found->second;
  }

  // Under the same lock `then` gets the number of the allocation.
  template <typename Then>
  void alloc(int64_t num_bytes, const Described& as, const Then& then) {
    TORCH_CHECK_WITH(OutOfMemoryError,
                     !limit_callback || !limit_callback(num_bytes, private_pools.key()),
                     out_of_memory_message);
    Allocation allocation{num_bytes, private_pools.key(), current_operator()};
    allocation.dtype = as.dtype;
    const auto node = torch::autograd::get_current_node();
    if (node) {
      allocation.phase = backward;
      allocation.node_name = node_name(*node);
    } else if (!c10::GradMode::is_enabled()) {
      allocation.phase = update;
    }
    // In the backward pass there are lines of the user's program only where checkpointing computes
    // a part of the forward pass again: with gradients enabled.
    const bool has_line = !node || c10::GradMode::is_enabled();
    streams.ask_progress();
    if (location_callback && has_line && num_bytes >= location_minimum_bytes)
      allocation.location = static_cast<int32_t>(current_location());
    const std::lock_guard lock(mutex);
    if (node && allocation.location < 0)
      allocation.location = static_cast<int32_t>(location_of(*node));
    allocation.num_dims = static_cast<uint8_t>(as.sizes.size());
    allocation.shape_offset = offset_of(as.sizes);
    for (const auto other : streams.take_released()) events.push_back(released - other);
    for (const auto other : streams.take_known()) events.push_back(known - other);
    allocations.push_back(allocation);
    const auto id = static_cast<int64_t>(allocations.size());
    events.push_back(id);
    allocated_bytes += (num_bytes + 511) / 512 * 512;
    peak_allocated_bytes = std::max(peak_allocated_bytes, allocated_bytes);
    then(id);
  }
  int64_t alloc(int64_t num_bytes) {
    int64_t number = 0;
    alloc(num_bytes, {}, [&](int64_t id) { number = id; });
    return number;
  }
  // Most are of the same shape as the last.
  int32_t offset_of(c10::IntArrayRef sizes) {
    const bool is_last = shapes.size() >= sizes.size() &&
                         std::equal(sizes.begin(), sizes.end(), shapes.end() - sizes.size());
    if (!is_last) shapes.insert(shapes.end(), sizes.begin(), sizes.end());
    return static_cast<int32_t>(shapes.size() - sizes.size());
  }

  void free(int64_t id, int64_t allocated_in_epoch, const std::set<int64_t>& used_on) {
    const std::lock_guard lock(mutex);
    free_locked(id, allocated_in_epoch, used_on);
  }
  void free_locked(int64_t id, int64_t allocated_in_epoch, const std::set<int64_t>& used_on) {
    if (allocated_in_epoch != epoch) return;  // from before a reset
    events.push_back(-id);
    allocated_bytes -= (allocations[id - 1].num_bytes + 511) / 512 * 512;
    if (used_on.empty()) return;
    events.push_back(held - id);
    streams.free_later(id, used_on);
  }

  // What these events did once more, with allocations of its own, the one after `before` the first
  // of `sizes`. Of one repetition, the parts follow each other: the first one begins it.
  void repeat(int64_t first, int64_t last, bool begins, const int64_t* sizes, int64_t before) {
    const std::lock_guard lock(mutex);
    if (begins) repeated.clear();
    for (auto i = first; i < last; ++i) {
      const auto event = events[i];
      auto allocation = allocations[std::abs(event) - 1];
      allocation.num_bytes = sizes[std::abs(event) - 1 - before];
      const auto num_bytes = (allocation.num_bytes + 511) / 512 * 512;
      if (event > 0) {
        allocations.push_back(allocation);
        repeated[event] = static_cast<int64_t>(allocations.size());
        allocated_bytes += num_bytes;
        peak_allocated_bytes = std::max(peak_allocated_bytes, allocated_bytes);
        events.push_back(repeated[event]);
      } else {
        allocated_bytes -= num_bytes;
        events.push_back(-repeated.at(-event));
      }
    }
  }

  int32_t operator_of(int64_t id) {
    const std::lock_guard lock(mutex);
    return allocations[id - 1].operator_name;
  }

  // cuBLAS and cuBLASLt take a workspace at the first product of a handle on a stream, and keep it.
  // From torch 2.15 on each product takes one of the library it uses, and gives it back.
  void take_gemm_workspace(bool lt) {
    if (!keeps_gemm_workspaces) {
      const auto num_bytes = lt ? gemm_lt_workspace_bytes : configured_gemm_bytes();
      if (num_bytes) free(take_workspace(num_bytes), epoch, {});
      return;
    }
    auto& handle = blas_handle();
    if (!handle) handle = std::make_unique<BlasHandle>();
    take_workspace_once(*handle, false, configured_gemm_bytes());
    if (lt) take_workspace_once(*handle, true, gemm_lt_workspace_bytes);
  }
  // torch reads the variable at its first product: the program may have set it by then.
  int64_t configured_gemm_bytes() const {
    const char* rest = std::getenv("CUBLAS_WORKSPACE_CONFIG");
    int64_t total = 0;
    long long kib = 0, count = 0;
    int length = 0;
    for (; rest && std::sscanf(rest, ":%lld:%lld%n", &kib, &count, &length) == 2; rest += length)
      total += kib * count * 1024;
    return total ? total : gemm_workspace_bytes;
  }
  // of this thread
  static std::unique_ptr<BlasHandle>& blas_handle() {
    static thread_local std::unique_ptr<BlasHandle> handle;
    return handle;
  }

  void take_workspace_once(const BlasHandle& handle, bool lt, int64_t num_bytes) {
    const std::tuple of(handle.number, current_stream(), lt);
    {
      const std::lock_guard lock(mutex);
      if (!num_bytes) return;
      if (const auto found = workspaces.find(of); found != workspaces.end())
        return note_use(found->second);
    }
    const auto id = take_workspace(num_bytes);
    const std::lock_guard lock(mutex);
    workspaces[of] = id;
    if (num_compiling) used_after[id] = 0;
  }
  void note_use(int64_t id) {
    if (num_compiling || used_after.empty()) return;
    const auto found = used_after.find(id);
    if (found != used_after.end() && !found->second) found->second = allocations.size();
  }

  // cuBLAS forgets its workspaces, whose memory is given back.
  void drop_gemm_workspaces() {
    std::map<std::tuple<int64_t, int64_t, bool>, int64_t> taken;
    {
      const std::lock_guard lock(mutex);
      taken.swap(workspaces);
    }
    for (const auto& [of, id] : taken) free(id, epoch, {});
  }

  int64_t take_workspace(int64_t num_bytes) {
    const auto before = current_operator();
    current_operator() = intern("cublas_workspace");
    int64_t id = 0;
    try {
      id = alloc(num_bytes);
    } catch (...) {
      current_operator() = before;
      throw;
    }
    current_operator() = before;
    return id;
  }

  int32_t begin_kernel(const char* name) {
    locate_new_node();
    const auto before = current_operator();
    if (before < 0) current_operator() = intern(name);
    return before;
  }
  void end_kernel(int32_t before) { current_operator() = before; }

  static constexpr int64_t unknown = -2;
  static int32_t& current_operator() { return of_thread().operator_name; }
  static int64_t& operator_location() { return of_thread().location; }
};

// An allocation has the name of the outermost operator: a user knows aten::clone, not the
// empty_strided inside it.
struct CurrentOperator {
  int32_t before;
  CurrentOperator(Recorder&, int32_t name) : before(Recorder::current_operator()) {
    if (before < 0) Recorder::current_operator() = name;
  }
  ~CurrentOperator() { Recorder::current_operator() = before; }
};

}  // namespace vramcast
