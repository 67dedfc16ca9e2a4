// .item(), bool(tensor) and the like: a number of the device that the host reads.
#pragma once
#include <ATen/ops/_local_scalar_dense.h>

#include <atomic>

#include "deriving.h"
#include "values.h"
#include "work.h"

namespace vramcast {

// Until the next backward pass or step, so many known numbers are read here, in a tenth of the
// time; further ones in Python (host_reads.py), which ends a loop that reads for ever.
static std::atomic<int64_t> num_reads_left = 0;

// As vramcast_begin_kernel does.
struct ReadingKernel {
  const CurrentOperator current;
  explicit ReadingKernel(int32_t name) : current(recorder, name) {
    if (WorkLog::depth()++ == 0) kernel_has_guessed = false;
  }
  ~ReadingKernel() { WorkLog::depth() -= 1; }
};

// Where a CUDA graph is captured, the stream that may not be waited for.
static std::atomic<bool> is_capturing = false;
static std::atomic<int64_t> captured_stream = 0;

static void check_no_capture() {
  TORCH_CHECK(!is_capturing || current_stream() != captured_stream,
              "CUDA error: operation not permitted when stream is capturing");
}

static int32_t dtype_of_read(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  const bool is_usual = type == at::kHalf || type == at::kFloat || type == at::kDouble ||
                        type == at::kBFloat16;
  return is_usual ? static_cast<int32_t>(type) : -1;
}

// The number, if it is known.
static std::optional<at::Scalar> known_number(const at::Tensor& tensor) {
  static const auto name = recorder.intern("aten::_local_scalar_dense");
  std::optional<at::Scalar> number;
  recorder.locate_new_node();
  {
    const ReadingKernel kernel(name);
    const auto host = known_values(tensor);
    if (!host.defined()) return std::nullopt;
    kernel_has_guessed = kernel_has_guessed || is_guess(tensor);
    const BelowSimulation below;
    number = at::_local_scalar_dense(host);
  }
  const auto num_bytes = static_cast<double>(tensor.numel() * tensor.itemsize());
  work_log.add({0, num_bytes, {0, 0, 0, 0}, name, dtype_of_read(tensor), forward, plain});
  ++num_host_reads;
  streams.finish(current_stream());
  guess_was_read = guess_was_read || kernel_has_guessed;
  return number;
}

// An optimizer reads the number of the step of every parameter, on the host. What is on the device
// and not known, or is asked for by wrapper tensors, is read by a kernel written in Python.
static at::Scalar read_number(DispatchKeySet keys, const at::Tensor& tensor) {
  const auto below = keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, DispatchKey::Fake);
  if (tensor.is_cuda()) check_no_capture();
  const bool is_plain = !below.has(DispatchKey::Python) && tensor.layout() == at::kStrided;
  if (tensor.is_cpu() && !below.has(DispatchKey::Python))
    return at::_ops::_local_scalar_dense::redispatch(below, tensor);
  if (is_plain && tensor.is_cuda() && tensor.numel() == 1 && num_reads_left > 0) {
    if (const auto number = known_number(tensor)) {
      --num_reads_left;
      return *number;
    }
  }
  static const auto in_python = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("vramcast::_local_scalar_dense", "")
                                    .typed<at::Scalar(const at::Tensor&)>();
  return in_python.redispatch(keys, tensor);
}

}  // namespace vramcast
