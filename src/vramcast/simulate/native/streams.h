// Streams and events of the simulated device. Nothing runs, so nothing takes time: this only knows
// what must have finished before what.
//
// Memory that a second stream uses (record_stream) can be used again when that stream has come so
// far. On a real GPU this happens somewhere between the free and the moment at which the host knows
// that it has happened; the recorder notes both, and when it happens by predicted times.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "short_mutex.h"

namespace vramcast {

const c10::Device device_zero(c10::kCUDA, 0);

// What a thread has of its own, together: to find one of these takes a call each time.
struct OfThread {
  int64_t stream = 0;  // 0 is the default stream
  int64_t location = -2;
  uint64_t num_nodes = 0;
  int32_t operator_name = -1;
};
inline OfThread& of_thread() {
  static constinit thread_local OfThread one;
  return one;
}
inline int64_t& current_stream() { return of_thread().stream; }

inline c10::Stream as_stream(int64_t id) {
  return c10::Stream(c10::Stream::UNSAFE, device_zero, id);
}

// How far each stream has come.
using Progress = std::map<int64_t, int64_t>;

inline void advance(Progress& progress, const Progress& other) {
  for (const auto& [stream, position] : other)
    progress[stream] = std::max(progress[stream], position);
}

struct Event {
  Progress progress;  // what has finished when the event has
  int64_t num_launches;
  int64_t last_launch = 0;  // that must have finished
  int64_t stream = 0, num_works = 0;  // where it was recorded: work.h
};
// work.h counts what was done, and notes where one stream, or the host, waits for another.
inline std::atomic<int64_t> num_works = 0;
inline constexpr int64_t the_host = -1;
inline void (*note_wait)(int64_t waiting, int64_t for_stream, int64_t num_works) = nullptr;

// A launch takes about ten microseconds, and time does not stand still.
inline double elapsed_milliseconds(const Event& from, const Event& to) {
  return std::max(0.001, 0.01 * static_cast<double>(to.num_launches - from.num_launches));
}

// Asks Python how many launches the GPU would have finished by now; first the host waits for as
// many as are given.
inline int64_t (*finished_callback)(int64_t num_waited_for) = nullptr;

class Streams {
 public:
  // Not while a lock is held: the callback waits for Python's.
  void ask_progress() {
    if (!has_freed_later_) return;
    {
      const std::lock_guard lock(mutex_);
      if (pending_.empty()) return;
    }
    ask(0);
  }
  // As torch does, streams are handed out in turn from 32 for each of 4 priorities.
  int64_t from_pool(int priority) {
    const std::lock_guard lock(mutex_);
    const int64_t index = std::clamp(-priority, 0, 3);
    const int64_t number = num_taken_[index]++ % 32;
    return number << 5 | (index + 1) << 1 | 1;
  }
  static int priority_of(int64_t stream) { return stream & 1 ? 1 - (stream >> 1 & 15) : 0; }

  void note_launch(int64_t stream) {
    const std::lock_guard lock(mutex_);
    last_launch_[stream] = ++num_launches_;
  }
  void record(Event& event, int64_t stream) {
    const std::lock_guard lock(mutex_);
    event = {now(stream), num_launches_, last_launch_[stream], stream, num_works};
  }
  void wait(int64_t stream, const Event& event) {
    const std::lock_guard lock(mutex_);
    advance(waited_for_[stream], event.progress);
    last_launch_[stream] = std::max(last_launch_[stream], event.last_launch);
    if (note_wait && event.stream != stream) note_wait(stream, event.stream, event.num_works);
  }
  // The host knows of it: of an event, a stream, everything.
  void finish(const Event& event) {
    const std::lock_guard lock(mutex_);
    advance(finished_, event.progress);
  }
  void finish(int64_t stream) {
    const std::lock_guard lock(mutex_);
    advance(finished_, now(stream));
  }
  void finish_all() {
    const std::lock_guard lock(mutex_);
    all_finished_ = ++position_;
  }
  // The host waits until the GPU has come to an event, to the end of a stream, or has done all.
  void wait_on_host(const Event& event) { wait_for_launch(event.last_launch, event.stream); }
  void wait_on_host(int64_t stream) { wait_for_launch(last_launch(stream), stream); }
  void wait_on_host() { wait_for_launch(num_launches_, current_stream()); }

  // The memory of an allocation is given back, but these streams may still use it.
  void free_later(int64_t id, const std::set<int64_t>& used_on) {
    const std::lock_guard lock(mutex_);
    Progress needed;
    for (const auto stream : used_on) needed[stream] = ++position_;
    pending_.push_back({id, std::move(needed), num_launches_});
    not_known_.push_back(pending_.back());
    has_freed_later_ = true;
  }
  int64_t num_held() {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(pending_.size());
  }
  // The allocations whose memory can be used again, by predicted times.
  std::vector<int64_t> take_released() {
    if (!has_freed_later_) return {};
    const std::lock_guard lock(mutex_);
    return take_from(pending_, [&](const Pending& one) {
      return one.num_launches <= num_finished_ || is_known(one);
    });
  }
  // Those of which the host knows it, whatever the times.
  std::vector<int64_t> take_known() {
    if (!has_freed_later_) return {};
    const std::lock_guard lock(mutex_);
    return take_from(not_known_, [&](const Pending& one) { return is_known(one); });
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    pending_.clear();
    not_known_.clear();
    num_taken_ = {};
    num_finished_ = 0;
    num_launches_ = 0;
    has_freed_later_ = false;
    last_launch_.clear();
  }

 private:
  int64_t last_launch(int64_t stream) {
    const std::lock_guard lock(mutex_);
    return last_launch_[stream];
  }
  // An event that lies behind the last launch is taken to be over: what it waits for is unknown.
  void wait_for_launch(int64_t last, int64_t stream) {
    if (note_wait && last >= last_launch(stream)) note_wait(the_host, stream, num_works);
    if (has_freed_later_) ask(last);
  }
  void ask(int64_t num_waited_for) {
    if (!finished_callback) return;
    const auto num_finished = finished_callback(num_waited_for);
    const std::lock_guard lock(mutex_);
    num_finished_ = std::max(num_finished_, num_finished);
  }
  // The host can be so many launches ahead of the GPU: then a launch waits.
  static constexpr int64_t max_launches_ahead = 1024;
  struct Pending {
    int64_t id;
    Progress needed;
    int64_t num_launches;
  };

  Progress now(int64_t stream) {
    auto progress = waited_for_[stream];
    progress[stream] = ++position_;
    return progress;
  }
  template <typename Condition>
  static std::vector<int64_t> take_from(std::vector<Pending>& list, const Condition& is_done) {
    std::vector<int64_t> taken;
    std::erase_if(list, [&](const Pending& one) {
      const bool done = is_done(one);
      if (done) taken.push_back(one.id);
      return done;
    });
    return taken;
  }
  bool is_known(const Pending& pending) {
    if (num_launches_ - pending.num_launches > max_launches_ahead) return true;
    return std::all_of(pending.needed.begin(), pending.needed.end(), [&](const auto& need) {
      return std::max(all_finished_, finished_[need.first]) >= need.second;
    });
  }

  ShortMutex mutex_;
  std::array<int64_t, 4> num_taken_ = {};
  int64_t position_ = 0, all_finished_ = 0, num_finished_ = 0;
  std::atomic<int64_t> num_launches_ = 0;
  std::atomic<bool> has_freed_later_ = false;
  Progress finished_, last_launch_;
  std::map<int64_t, Progress> waited_for_;
  std::vector<Pending> pending_, not_known_;
};
inline Streams streams;
// how often the host has read something from the device
inline std::atomic<int64_t> num_host_reads = 0;

// Private memory pools, as CUDA graphs have. An allocation's key is its stream, or its pool and its
// stream in one number (allocator/model.py: PRIVATE).
class PrivatePools {
 public:
  // What is allocated from now on: on a stream, by any thread, or by this thread on any stream.
  void begin(int64_t pool, int64_t stream, bool of_thread) {
    const std::lock_guard lock(mutex_);
    active_.push_back({pool, stream, of_thread, std::this_thread::get_id()});
    is_any_ = true;
  }
  void end(int64_t pool) {
    const std::lock_guard lock(mutex_);
    std::erase_if(active_, [&](const Active& one) { return one.pool == pool; });
    is_any_ = !active_.empty();
  }
  int64_t key() {
    const auto stream = current_stream();
    if (!is_any_) return stream;
    const std::lock_guard lock(mutex_);
    for (auto one = active_.rbegin(); one != active_.rend(); ++one)
      if (one->of_thread ? one->thread == std::this_thread::get_id() : one->stream == stream)
        return one->pool << 40 ^ stream;
    return stream;
  }

 private:
  struct Active {
    int64_t pool, stream;
    bool of_thread;
    std::thread::id thread;
  };
  std::mutex mutex_;
  std::atomic<bool> is_any_ = false;
  std::vector<Active> active_;
};
inline PrivatePools private_pools;

}  // namespace vramcast
