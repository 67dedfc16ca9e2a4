// vramcast/allocator in C++, for the allocator's usual settings and millions of events: no
// expandable segments, no limit of splits, no garbage collection. The model in Python has the rules
// and their reasons; tests compare the two. Needs no torch.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace vramcast {

constexpr int64_t mebibyte = 1 << 20;
static int64_t divided_up(int64_t number, int64_t by) { return number / by + (number % by > 0); }

// As allocator/addresses.py.
class AddressSpace {
 public:
  explicit AddressSpace(bool has_kernels) {
    if (has_kernels) start_kernels(false);
  }
  void start_kernels(bool after_copies) {
    gaps_[origin - units_below] = units_below;
    gaps_[origin] = arena_units;
    if (!after_copies) take_units(kernel_units);
  }
  void start_cudnn() { take_units(cudnn_units); }
  void start_cublas(int64_t num_bytes) { take_units(divided_up(num_bytes, unit_bytes)); }
  void fill_gaps() { gaps_.clear(); }
  int64_t take(int64_t num_bytes) {
    const auto units = divided_up(num_bytes, unit_bytes);
    const bool is_first = std::exchange(is_empty_, false);
    return (is_first && units == 1 ? origin + arena_units : take_units(units)) * unit_bytes;
  }
  void give_back(int64_t address, int64_t num_bytes) {
    add_gap(address / unit_bytes, divided_up(num_bytes, unit_bytes));
  }

 private:
  static constexpr int64_t unit_bytes = 2 * mebibyte, range_units = 16, arena_units = 207,
                           units_below = 3, above = 244, units_above = 12, kernel_units = 5,
                           cudnn_units = 5, origin = 1 << 20;

  int64_t take_units(int64_t units) {
    for (const auto& [start, length] : gaps_) {
      if (units > length) continue;
      const auto first = start, rest = length - units;
      gaps_.erase(first);
      if (rest) gaps_[first + units] = rest;
      return first;
    }
    const auto whole = divided_up(units, range_units) * range_units;
    lowest_ -= whole;
    if (whole > units) add_gap(lowest_ + units, whole - units);
    return lowest_;
  }
  // Neighbouring gaps become one, except across the beginning of the arena.
  void add_gap(int64_t start, int64_t units) {
    auto gap = gaps_.emplace(start, units).first;
    const auto next = std::next(gap);
    if (next != gaps_.end() && start + units == next->first && next->first != origin) {
      gap->second += next->second;
      gaps_.erase(next);
    }
    if (gap == gaps_.begin() || start == origin) return;
    const auto previous = std::prev(gap);
    if (previous->first + previous->second != start) return;
    previous->second += gap->second;
    gaps_.erase(gap);
  }

  std::map<int64_t, int64_t> gaps_{{origin + above, units_above}};  // length by start
  int64_t lowest_ = origin - range_units;
  bool is_empty_ = true;
};

struct Replayed {
  int64_t num_retries = 0;
  // of the request that failed, and when it did
  int64_t requested_bytes = 0, segment_bytes = 0, allocated_bytes = 0, reserved_bytes = 0;
  int64_t num_pieces = 0;  // where they were asked for
};

class ReplayAllocator {
 public:
  int64_t allocated_bytes = 0, reserved_bytes = 0, peak_allocated_bytes = 0,
          peak_reserved_bytes = 0;
  Replayed result;

  ReplayAllocator(int64_t num_allocations, int64_t capacity_bytes, int64_t large_segment_bytes,
                  bool has_kernels)
      : capacity_bytes_(capacity_bytes),
        large_segment_bytes_(large_segment_bytes),
        in_use_(num_allocations + 1),
        addresses_(has_kernels) {}

  void start_kernels(bool after_copies) { addresses_.start_kernels(after_copies); }
  void start_cudnn() { addresses_.start_cudnn(); }
  void start_cublas(int64_t num_bytes) { addresses_.start_cublas(num_bytes); }
  void start_nccl() { addresses_.fill_gaps(); }
  // The size of the block; 0 where there is no memory for it.
  int64_t malloc(int64_t id, int64_t requested_bytes, int64_t size_bytes, int64_t key) {
    auto& pool = pools_for(key)[size_bytes > mebibyte];
    const auto found = pool.free.lower_bound({size_bytes, INT64_MIN, nullptr});
    Span* span = nullptr;
    if (found != pool.free.end()) {
      span = found->span;
      pool.free.erase(found);
    } else if (!(span = from_device(pool, size_bytes, requested_bytes))) {
      return 0;
    }
    span->free = false;
    span->id = id;
    if (span->size_bytes - size_bytes >= pool.min_rest_bytes) add_free(cut(span, size_bytes));
    in_use_[id] = span;
    allocated_bytes += span->size_bytes;
    peak_allocated_bytes = std::max(peak_allocated_bytes, allocated_bytes);
    return span->size_bytes;
  }
  // False where it is not in use.
  bool free(int64_t id, bool holds) {
    auto* span = in_use_[id];
    if (!span) return false;
    in_use_[id] = nullptr;
    allocated_bytes -= span->size_bytes;
    if (holds)
      held_[id] = span;
    else
      add_free(span);
    return true;
  }
  // The end of holding it, unless the cache was emptied meanwhile.
  void release(int64_t id) {
    const auto found = held_.find(id);
    if (found == held_.end()) return;
    add_free(found->second);
    held_.erase(found);
  }
  void empty_cache() {
    for (const auto& [id, span] : std::exchange(held_, {})) add_free(span);
    for (auto& pools : pools_)
      for (auto& pool : pools) release_whole_segments(pool);
  }
  // How the memory is cut up: three numbers for each piece, its address, its bytes, and the
  // allocation that has it (0: it is free). Before each segment a piece of no bytes.
  int64_t write_pieces(int64_t* pieces) const {
    const auto* begin = pieces;
    auto write = [&](int64_t address, int64_t size_bytes, int64_t id) {
      for (const auto number : {address, size_bytes, id}) *pieces++ = number;
    };
    for (const auto& head : spans_) {
      if (head.before || head.size_bytes == 0) continue;
      write(head.address, 0, 0);
      for (const auto* span = &head; span; span = span->after)
        write(span->address, span->size_bytes, span->free ? 0 : span->id);
    }
    return (pieces - begin) / 3;
  }

 private:
  struct Pool;
  struct Span {
    int64_t address, size_bytes;
    Pool* pool;
    bool free = false;
    Span *before = nullptr, *after = nullptr;
    int64_t id = 0;
  };
  struct Free {  // best fit is the first that is large enough
    int64_t size_bytes, address;
    Span* span;
    bool operator<(const Free& other) const {
      return size_bytes != other.size_bytes ? size_bytes < other.size_bytes
                                            : address < other.address;
    }
  };
  struct Pool {
    int64_t min_rest_bytes;
    std::set<Free> free;
  };
  using Pools = std::vector<Pool>;  // small, large

  Pools& pools_for(int64_t key) {
    const auto [found, is_new] = pools_by_key_.try_emplace(key, nullptr);
    if (is_new) {
      auto& kept = key < first_private ? pools_ : private_pools_;
      kept.push_back({Pool{512, {}}, Pool{mebibyte + 1, {}}});
      found->second = &kept.back();
    }
    return *found->second;
  }

  Span* from_device(Pool& pool, int64_t size_bytes, int64_t requested_bytes) {
    auto segment_bytes = divided_up(size_bytes, 2 * mebibyte) * 2 * mebibyte;
    if (size_bytes < 10 * mebibyte) segment_bytes = large_segment_bytes_;
    if (size_bytes <= mebibyte) segment_bytes = 2 * mebibyte;
    if (!has_room_for(segment_bytes)) {
      empty_cache();
      result.num_retries += 1;
      if (!has_room_for(segment_bytes)) {
        result = {result.num_retries, requested_bytes, segment_bytes, allocated_bytes,
                  reserved_bytes};
        return nullptr;
      }
    }
    reserved_bytes += segment_bytes;
    peak_reserved_bytes = std::max(peak_reserved_bytes, reserved_bytes);
    return new_span({addresses_.take(segment_bytes), segment_bytes, &pool});
  }
  bool has_room_for(int64_t num_bytes) const {
    return capacity_bytes_ < 0 || reserved_bytes + num_bytes <= capacity_bytes_;
  }

  // Shortens a span and returns the rest.
  Span* cut(Span* span, int64_t size_bytes) {
    auto* rest = new_span({span->address + size_bytes, span->size_bytes - size_bytes, span->pool,
                           false, span, span->after});
    if (rest->after) rest->after->before = rest;
    span->after = rest;
    span->size_bytes = size_bytes;
    return rest;
  }
  void add_free(Span* span) {
    if (span->before && span->before->free) {
      span = span->before;
      remove_free(span);
      absorb_next(span);
    }
    if (span->after && span->after->free) {
      remove_free(span->after);
      absorb_next(span);
    }
    span->free = true;
    span->pool->free.insert({span->size_bytes, span->address, span});
  }
  static void remove_free(Span* span) {
    span->pool->free.erase({span->size_bytes, span->address, span});
  }
  void absorb_next(Span* span) {
    auto* absorbed = span->after;
    span->size_bytes += absorbed->size_bytes;
    span->after = absorbed->after;
    if (span->after) span->after->before = span;
    set_aside(absorbed);
  }
  void release_whole_segments(Pool& pool) {
    for (auto at = pool.free.begin(); at != pool.free.end();) {
      auto* span = at->span;
      const bool is_whole = !span->before && !span->after;
      at = is_whole ? pool.free.erase(at) : std::next(at);
      if (!is_whole) continue;
      reserved_bytes -= span->size_bytes;
      addresses_.give_back(span->address, span->size_bytes);
      set_aside(span);
    }
  }
  void set_aside(Span* span) {
    span->size_bytes = 0;
    unused_.push_back(span);
  }
  Span* new_span(Span span) {
    if (unused_.empty()) return &spans_.emplace_back(span);
    auto* reused = unused_.back();
    unused_.pop_back();
    *reused = span;
    return reused;
  }

  int64_t capacity_bytes_, large_segment_bytes_;
  std::vector<Span*> in_use_;
  std::unordered_map<int64_t, Span*> held_;
  std::unordered_map<int64_t, Pools*> pools_by_key_;
  std::deque<Pools> pools_;  // in the order in which they came to be
  // of CUDA graphs, which keep their memory (allocator/model.py: PRIVATE)
  static constexpr int64_t first_private = int64_t{1} << 40;
  std::deque<Pools> private_pools_;
  std::deque<Span> spans_;
  std::vector<Span*> unused_;
  AddressSpace addresses_;
};

}  // namespace vramcast

// What allocator/compiled.py calls through ctypes.
extern "C" {
// The arguments of allocator/replay.py as arrays. Returns how many events were replayed: fewer than
// there are where memory ran out; -1 where an event frees what is not allocated. Where `pieces` is
// given, it gets how the memory is cut up at the end.
int64_t vramcast_replay(const int64_t* events, int64_t num_events, const int64_t* sizes,
                      const int64_t* rounded, int64_t num_allocations, const int64_t* keys,
                      const int64_t* releases, int64_t num_releases, int64_t empty_cache,
                      int64_t capacity_bytes, int64_t large_segment_bytes,
                      int64_t first_kernel, int64_t first_convolution, int64_t first_product,
                      int64_t backward_product, int64_t first_collective, int64_t cublas_bytes,
                      int64_t* allocated, int64_t* reserved, int64_t* block_bytes, int64_t* peaks,
                      vramcast::Replayed* result, int64_t* pieces) {
  vramcast::ReplayAllocator allocator(num_allocations, capacity_bytes, large_segment_bytes,
                                      !first_kernel);
  std::vector<bool> is_held(num_allocations + 1);
  for (int64_t i = 0; i < num_releases; ++i) is_held[releases[2 * i + 1]] = true;
  auto note_peaks = [&] {
    *peaks++ = allocator.peak_allocated_bytes;
    *peaks++ = allocator.peak_reserved_bytes;
  };
  int64_t at = 0;
  for (; at < num_events; ++at) {
    for (; num_releases && releases[0] <= at; --num_releases, releases += 2)
      allocator.release(releases[1]);
    if (first_kernel && at == first_kernel + 1)
      allocator.start_kernels(events[first_kernel] > 2);
    if (first_convolution && at == first_convolution + 1) allocator.start_cudnn();
    if (at && (at == first_product || at == backward_product))
      allocator.start_cublas(cublas_bytes);
    if (first_collective && at == first_collective) allocator.start_nccl();
    const auto event = events[at], id = event < 0 ? -event : event;
    if (event == 0) {
      note_peaks();
    } else if (event == empty_cache) {
      allocator.empty_cache();
    } else if (id > num_allocations) {
      return -1;
    } else if (event < 0) {
      if (!allocator.free(id, is_held[id])) return -1;
    } else if (!(block_bytes[id - 1] = allocator.malloc(id, sizes[id - 1], rounded[id - 1],
                                                        keys ? keys[id - 1] : 0))) {
      break;
    }
    allocated[at] = allocator.allocated_bytes;
    reserved[at] = allocator.reserved_bytes;
  }
  note_peaks();
  if (pieces) allocator.result.num_pieces = allocator.write_pieces(pieces);
  *result = allocator.result;
  return at;
}

// forecast/timing/pipeline.py: from the end of one step to the end of the next.
double vramcast_step_period(const double* costs, const double* seconds, const bool* waits,
                          int64_t count, int64_t repetitions, int64_t queue_length, double latency,
                          double gap, double wait, double device_factor, double host_factor) {
  std::vector<double> ends(queue_length, 0.0);  // of the last kernels, in a ring
  size_t oldest = 0;
  double host = 0, device = 0, before = 0, last = 0;
  for (int64_t repetition = 0; repetition < repetitions; ++repetition) {
    for (int64_t i = 0; i < count; ++i) {
      host += costs[i] * host_factor;
      if (seconds[i] != 0) {
        host = std::max(host, ends[oldest]);
        device = std::max(device + gap, host + latency) + seconds[i] * device_factor;
        ends[oldest] = device;
        if (++oldest == ends.size()) oldest = 0;  // a division takes longer than all of this
      }
      if (waits[i]) host = std::max(host, device) + wait;
    }
    before = last;
    last = std::max(host, device);
  }
  return last - before;
}
}
