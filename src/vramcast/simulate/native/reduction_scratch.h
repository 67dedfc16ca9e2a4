// How much scratch memory a CUDA reduction takes: a reduction whose output is too small to fill the
// GPU is split over several thread blocks, which meet in a buffer in global memory. The launch
// configuration follows from the shape, the strides and the GPU alone.
#pragma once
#include <ATen/TensorIterator.h>

#include <algorithm>

namespace vramcast {

struct Gpu {
  int num_multiprocessors = 132;
  int max_threads_per_multiprocessor = 2048;
};

struct ReductionScratch {
  int64_t buffer_bytes = 0;
  int64_t semaphore_bytes = 0;
};

inline int last_power_of_two(int64_t n) {
  int power = 1;
  while (static_cast<int64_t>(power) * 2 <= n) power *= 2;
  return power;
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The width of the vector loads when neighbouring threads work on neighbouring outputs. A view
// may not be aligned: its simulated address shows that.
inline int output_vector_width(const at::TensorIteratorBase& iter, int64_t address,
                               int64_t item_bytes) {
  int width = 4;
  auto narrow = [&](int64_t n) {
    while (n % width != 0) width /= 2;
  };
  const int input = iter.noutputs(), first_output_dim = iter.num_reduce_dims();
  narrow(address / item_bytes);
  narrow(iter.shape()[first_output_dim]);
  const auto strides = iter.strides(input);
  for (int d = 0; d < static_cast<int>(strides.size()); ++d)
    if (d != first_output_dim) narrow(strides[d] / item_bytes);
  return width;
}

// accumulator_bytes: size of one partial result (a float for sums of half precision, a value and an
// index for argmax). values_per_load: how many inputs a thread reads at once (4, or 8 for a few
// two-byte reductions).
inline ReductionScratch reduction_scratch(const at::TensorIteratorBase& iter, const Gpu& gpu,
                                          int64_t address, int64_t item_bytes,
                                          int64_t accumulator_bytes, int values_per_load,
                                          int max_threads = 512) {
  const int64_t num_outputs = iter.num_output_elements();
  if (iter.numel() == 0 || num_outputs == 0) return {};
  const int64_t inputs_per_output = iter.numel() / num_outputs;
  const int input = iter.ntensors() - 1, num_reduced = iter.num_reduce_dims();

  bool along_fastest = true;
  int64_t dim0 = 1, dim1 = 1, fastest_stride = item_bytes;
  if (iter.ndim() > 0) {
    const auto strides = iter.strides(input);
    along_fastest = num_reduced == iter.ndim() || strides[0] < strides[num_reduced];
    dim0 = along_fastest ? inputs_per_output : num_outputs;
    dim1 = along_fastest ? num_outputs : inputs_per_output;
    fastest_stride = along_fastest ? strides[0] : strides[num_reduced];
  }
  int output_vector = 1;
  if (fastest_stride == item_bytes) {
    if (along_fastest && dim0 >= 128 && num_reduced == 1)
      dim0 /= values_per_load;
    else if (!along_fastest)
      dim0 /= (output_vector = output_vector_width(iter, address, item_bytes));
  }

  const int threads = max_threads / output_vector;
  const int width_limit = dim0 < threads ? last_power_of_two(dim0) : threads;
  const int height_limit = dim1 < threads ? last_power_of_two(dim1) : threads;
  int width = std::min(width_limit, 32);
  const int height = std::min(height_limit, threads / width);
  width = std::min(width_limit, threads / height);

  int64_t input_step = 1, output_step = 1;
  (along_fastest ? input_step : output_step) *= width;
  auto values_per_thread = [&] { return ceil_div(inputs_per_output, input_step); };
  const bool across_warps = values_per_thread() >= std::min(height * 16, 256);
  (across_warps ? input_step : output_step) *= height;
  if (!across_warps || values_per_thread() < 256) return {};

  const int64_t grid = ceil_div(num_outputs / output_vector, output_step);
  const int64_t target_grid = static_cast<int64_t>(gpu.num_multiprocessors) *
                              (gpu.max_threads_per_multiprocessor / (width * height));
  if (grid > target_grid) return {};
  const int64_t blocks =
      std::max(std::min(ceil_div(target_grid, grid), ceil_div(values_per_thread(), 16)),
               ceil_div(values_per_thread(), 256));
  if (blocks <= 1) return {};
  ReductionScratch scratch;
  scratch.buffer_bytes = accumulator_bytes * num_outputs * blocks *
                         (along_fastest ? 1 : static_cast<int64_t>(width) * output_vector);
  scratch.semaphore_bytes = 4 * grid;
  return scratch;
}

}  // namespace vramcast
