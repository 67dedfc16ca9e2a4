// Which operators on the host really run.
#pragma once
#include <atomic>

#include "work.h"

namespace vramcast {

// Small operators on the host really run, because what they compute may decide what the program
// does next. Larger ones do where what they read has values, until so much was gone through; but
// not the operators whose work is more than a pass over what they read. All others are simulated
// too: their results are zeros.
constexpr int64_t max_host_float_bytes = 256 << 10, max_host_other_bytes = 32 << 20,
                  max_host_asked_bytes = 256 << 20, max_host_known_bytes = 512 << 20,
                  most_host_bytes = int64_t{4} << 30;

static std::atomic<int64_t> host_bytes_left = most_host_bytes;

// What parameters contain is of no interest.
static bool has_values(const at::Tensor& tensor) {
  const auto* mapping = mapping_of(tensor);
  return !tensor.requires_grad() && (!mapping || mapping->filled);
}

static bool overwrites(const Operator& info, size_t argument) {
  return (info.overwrites || info.is_copy) && info.writes_to(argument);
}

static bool runs_on_host(const Operator& info, c10::ArrayRef<IValue> arguments) {
  int64_t float_bytes = 0, other_bytes = 0;
  bool any_sparse = false, all_known = true;
  for (size_t i = 0; i < arguments.size(); ++i) {
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      any_sparse = any_sparse || tensor.layout() != at::kStrided;
      const auto num_bytes = tensor.numel() * tensor.itemsize();
      (c10::isFloatingType(tensor.scalar_type()) ? float_bytes : other_bytes) += num_bytes;
      const bool is_overwritten = overwrites(info, i) && !tensor.requires_grad();
      all_known = all_known && (is_overwritten || has_values(tensor));
    });
  }
  if (computing.is_on && computing.has_room(0)) return true;
  if (any_sparse) return true;  // it has no storage of its own whose size could stand for it
  const auto num_bytes = float_bytes + other_bytes;
  if (info.asks && num_bytes <= max_host_asked_bytes) return true;
  if (float_bytes <= max_host_float_bytes && other_bytes <= max_host_other_bytes) return true;
  if (!all_known || info.uninitialised || info.samples || info.is_laborious || only_views(info) ||
      num_bytes > std::min(max_host_known_bytes, host_bytes_left.load()))
    return false;
  host_bytes_left -= num_bytes;
  return true;
}

static void note_host_values(const Operator& info, c10::ArrayRef<IValue> arguments, bool filled) {
  for (const int i : info.written_arguments)
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (auto* mapping = mapping_of(tensor)) mapping->filled = filled;
    });
}

// Of what was not computed: the norm of weights is not 0.
static void fill_small(const Operator& info, c10::ArrayRef<IValue> results) {
  constexpr int64_t most_elements = 64;
  if (info.uninitialised || !info.written_arguments.empty() || only_views(info)) return;
  for (const auto& result : results)
    for_each_tensor(result, [](const at::Tensor& tensor) {
      if (!tensor.is_cpu() || !tensor.is_floating_point() || tensor.numel() > most_elements) return;
      BelowSimulation below;
      tensor.fill_(healthy_now().number);
    });
}

// The host's time for what is not small: sizes[0] are the bytes that it goes through.
static void note_host_work(const Operator& info, c10::ArrayRef<IValue> arguments,
                           c10::ArrayRef<IValue> results) {
  constexpr int64_t least_bytes = 64 << 10;
  if (info.uninitialised || only_views(info)) return;
  if (!info.written_arguments.empty()) results = {};  // it is an argument
  int64_t num_bytes = 0;
  for (const auto values : {arguments, results})
    for (const auto& value : values)
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        if (tensor.is_cpu()) num_bytes += tensor.numel() * tensor.itemsize();
      });
  if (num_bytes < least_bytes) return;
  const auto name = recorder.intern("vramcast::host");
  work_log.add({0, 0, {num_bytes, 0, 0, 0}, name, -1, forward, no_kernel});
}

}  // namespace vramcast
