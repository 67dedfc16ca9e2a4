// The work of all operators since the recording began, in order, and where each step of it begins.
#pragma once
#include <mutex>

#include "computing.h"
#include "python_calls.h"
#include "streams.h"
#include "work_list.h"

namespace vramcast {

struct WorkLog {
  ShortMutex mutex;
  WorkList list;
  std::vector<int64_t> begins;  // of steps

  // how many kernels written in Python are running inside each other
  static int& depth() { return kernel_depth(); }

  // `always`: inside of a kernel written in Python, too
  void add(Work work, bool always = false) {
    work.stream = current_stream();
    add_on_stream(work, always);
  }
  void add_on_stream(Work work, bool always = false) {
    if (depth() > 0 && !always) return;  // part of the kernel that is running
    if (work.access != no_kernel) streams.note_launch(work.stream);
    // what checkpointing computes again costs the host what it cost in the forward pass
    work.phase = c10::GradMode::is_enabled()           ? forward
                 : torch::autograd::get_current_node() ? backward
                                                       : update;
    if (work.phase == backward) count_in_backward_thread();
    const std::lock_guard lock(mutex);
    list.push_back(work);
    num_works = static_cast<int64_t>(list.size());
    if (work.operator_name < 0) begins.push_back(num_works);
  }
  int64_t size() {
    const std::lock_guard lock(mutex);
    return static_cast<int64_t>(list.size());
  }
  void mark_since(int64_t begin, Phase phase) {
    const std::lock_guard lock(mutex);
    for (size_t i = begin; i < list.size(); ++i) {
      auto work = list[i];
      work.phase = phase;
      if (phase == replayed) work.stream = current_stream();  // not that of the capture
      list.set(i, work);
    }
  }
  void append(int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    for (auto i = begin; i < end; ++i) {
      const auto work = list[i];
      if (work.access != no_kernel) streams.note_launch(work.stream);
      list.push_back(work);
    }
    num_works = static_cast<int64_t>(list.size());
  }
  void repeat(int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    for (auto i = begin; i < end; ++i) {
      auto work = list[i];
      work.phase = replayed;
      work.stream = current_stream();
      if (work.operator_name >= 0 && work.access != no_kernel) list.push_back(work);
    }
  }
};
static WorkLog work_log;

}  // namespace vramcast
