// What operators that only CUDA has compute, by operators of the CPU.
#pragma once
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/grid_sampler_2d.h>
#include <ATen/ops/grid_sampler_2d_backward.h>
#include <ATen/ops/log_sigmoid_backward.h>
#include <ATen/ops/log_sigmoid_forward.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>

#include "drawing.h"

namespace vramcast {

// Takes the arguments off the stack and puts results there: all, or the first ones.
using Compute = void (*)(Stack&);

struct OnHost {
  Compute compute = nullptr;   // none: the operator itself
  std::set<size_t> left_out;   // arguments that it does not need
  std::vector<size_t> writes;  // to arguments that the schema does not tell of
};

static std::optional<at::Tensor> optional_tensor(const IValue& value) {
  return value.isTensor() && value.toTensor().defined() ? std::optional(value.toTensor())
                                                        : std::nullopt;
}

static at::Tensor convolved(const Stack& given, size_t stride, size_t padding, size_t dilation,
                            int64_t groups, const std::vector<int64_t>& more = {}) {
  const auto strides = given[stride].toIntVector();
  const bool is_transposed = !more.empty();
  const auto after = is_transposed ? more : std::vector<int64_t>(strides.size(), 0);
  return at::convolution(given[0].toTensor(), given[1].toTensor(), {}, strides,
                         given[padding].toIntVector(), given[dilation].toIntVector(),
                         is_transposed, after, groups);
}

static void convolve(Stack& stack) {
  stack = {convolved(stack, 3, 2, 4, stack[5].toInt())};
}
static void convolve_transposed(Stack& stack) {
  stack = {convolved(stack, 4, 2, 5, stack[6].toInt(), stack[3].toIntVector())};
}
static void convolve_by_channel(Stack& stack) {
  auto result = convolved(stack, 4, 5, 6, stack[0].toTensor().size(1));
  if (const auto bias = optional_tensor(stack[3])) {
    std::vector<int64_t> sizes(result.dim(), 1);
    sizes[1] = -1;
    result = result.add(bias->view(sizes));
  }
  stack = {result};
}

static void normalise(Stack& s) {
  const auto [out, mean, scale] = at::native_batch_norm(
      s[0].toTensor(), optional_tensor(s[1]), optional_tensor(s[2]), optional_tensor(s[3]),
      optional_tensor(s[4]), s[5].toBool(), s[6].toDouble(), s[7].toDouble());
  s = {out, mean, scale};
}
static void normalise_backward(Stack& s) {
  const auto [x, weight, bias] = at::native_batch_norm_backward(
      s[1].toTensor(), s[0].toTensor(), optional_tensor(s[2]), optional_tensor(s[3]),
      optional_tensor(s[4]), optional_tensor(s[5]), optional_tensor(s[6]), true, s[7].toDouble(),
      {true, true, true});
  s = {x, weight, bias};
}

// On the CPU the result has the type of what is given.
template <bool is_log>
static void make_shares(Stack& s) {
  auto x = s[0].toTensor();
  if (s[2].toBool()) x = x.to(at::kFloat);
  const auto dim = s[1].toInt();
  s = {is_log ? at::_log_softmax(x, dim, false) : at::_softmax(x, dim, false)};
}
template <bool is_log>
static void make_shares_backward(Stack& s) {
  const auto &grad = s[0].toTensor(), &output = s[1].toTensor();
  const auto type = s[3].toScalarType();
  const auto found =
      is_log ? at::_log_softmax_backward_data(grad, output, s[2].toInt(), grad.scalar_type())
             : at::_softmax_backward_data(grad, output, s[2].toInt(), grad.scalar_type());
  s = {found.to(type)};
}
static void log_sigmoid_backward(Stack& s) {
  const auto &grad = s[0].toTensor(), &x = s[1].toTensor();
  s = {at::log_sigmoid_backward(grad, x, std::get<1>(at::log_sigmoid_forward(x)))};
}

// By where each argument is; where there is no bias, and in the forward pass no result, it is 0.
template <size_t query, size_t bias, size_t out, size_t dropout, size_t is_causal, size_t scale>
static void attend(Stack& s) {
  TORCH_CHECK(s[dropout].toDouble() == 0, "vramcast: what is dropped is not known");
  const auto &q = s[query].toTensor(), &k = s[query + 1].toTensor(), &v = s[query + 2].toTensor();
  const auto mask = bias ? optional_tensor(s[bias]) : std::nullopt;
  const auto by = s[scale].toOptional<double>();
  const bool causal = s[is_causal].toBool();
  const auto [made, sums] =
      at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0, causal, mask, by);
  if (out == 0) {
    s = {made};
    return;
  }
  const auto [first, second, third] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      s[0].toTensor(), q, k, v, made, sums, 0, causal, mask, by);
  s = {first, second, third};
}

static void sample_grid(Stack& s) {
  s = {at::grid_sampler_2d(s[0].toTensor(), s[1].toTensor(), 0, 0, true)};
}
static void sample_grid_backward(Stack& s) {
  const auto [x, grid] = at::grid_sampler_2d_backward(
      s[2].toTensor(), s[0].toTensor(), s[1].toTensor(), 0, 0, true, {true, true});
  s = {x, grid};
}

// The workspace keeps the four gates.
static void lstm_cell(Stack& s) {
  auto sum = s[0].toTensor().add(s[1].toTensor());
  for (const size_t bias : {3, 4})
    if (const auto added = optional_tensor(s[bias])) sum = sum.add(*added);
  const auto parts = sum.chunk(4, 1);
  const auto in = parts[0].sigmoid(), forget = parts[1].sigmoid(), cell = parts[2].tanh(),
             out = parts[3].sigmoid();
  const auto cy = forget * s[2].toTensor() + in * cell;
  s = {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}
static void lstm_cell_backward(Stack& s) {
  const auto &cx = s[2].toTensor(), &cy = s[3].toTensor();
  const auto gates = s[4].toTensor().chunk(4, 1);
  const auto &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  const auto grad = optional_tensor(s[0]).value_or(at::zeros_like(cx));
  const auto tanh = cy.tanh();
  auto of_cell = grad * out * (1 - tanh * tanh);
  if (const auto more = optional_tensor(s[1])) of_cell = of_cell + *more;
  const auto all = at::cat({of_cell * cell * in * (1 - in), of_cell * cx * forget * (1 - forget),
                            of_cell * in * (1 - cell * cell), grad * tanh * out * (1 - out)},
                           1);
  const bool has_bias = s[5].toBool();
  s = {all, of_cell * forget};
  if (has_bias) s.emplace_back(all.sum(0));
}

// What is kept, as the GPU's kernel draws it before it takes its numbers.
static void drop_out(Stack& s) {
  const auto& x = s[0].toTensor();
  const auto share = 1 - s[1].toDouble();
  const bool trains = s[2].isNone() || s[2].toBool();
  TORCH_CHECK(trains && share < 1 && share > 0 && x.is_contiguous() && gpu_random.is_known,
              "vramcast: what is dropped is not known");
  const auto kept = draw_kept(next_of(x.numel(), 4), x.sizes(), static_cast<float>(share),
                              x.itemsize());
  s = {x * kept * (1 / share), kept};
}

// The sums of rows in the order of the GPU's threads (ATen/native/cuda/Reduce.cuh): whether a point
// is apart from itself may depend on the last bit.
struct RowSums {
  static constexpr int64_t warp = 32, most_threads = 512, accumulators = 4;
  int64_t length, width;  // of a row, and threads for one

  static int64_t power_below(int64_t number) {
    int64_t power = 1;
    while (2 * power <= std::min(number, most_threads)) power *= 2;
    return power;
  }
  RowSums(int64_t rows, int64_t of) : length(of) {
    width = std::min(power_below(length), warp);
    const auto height = std::min(power_below(rows), most_threads / width);
    width = std::min(power_below(length), most_threads / height);
    const auto each = (length + width - 1) / width;
    // longer rows are loaded by fours, or several warps have a part
    if (length >= 128 || each >= 16 * height) width = 0;
  }
  float of_thread(const float* row, int64_t thread) const {
    float sums[accumulators] = {};
    int64_t at = 0;
    for (auto i = thread; i < length; i += width) sums[at++ % accumulators] += row[i];
    return sums[0] + sums[1] + sums[2] + sums[3];
  }
  float of_row(const float* row) const {
    std::array<float, most_threads> sums;
    for (int64_t thread = 0; thread < width; ++thread) sums[thread] = of_thread(row, thread);
    auto left = width;
    for (; left > warp; left /= 2)
      for (int64_t i = 0; i < left / 2; ++i) sums[i] += sums[i + left / 2];
    for (int64_t offset = 1; offset < left; offset *= 2)
      for (int64_t i = 0; i + offset < left; i += 2 * offset) sums[i] += sums[i + offset];
    return sums[0];
  }
};

// sum(x, dims, keepdim, dtype)
static void sum_rows(Stack& s) {
  const auto x = s[0].toTensor();
  const auto dims = s[1].isNone() ? std::vector<int64_t>() : s[1].toIntVector();
  const bool keeps = s[2].toBool();
  const auto last = x.dim() - 1;
  const bool is_last = last > 0 && dims.size() == 1 && (dims[0] == last || dims[0] == -1);
  const auto type = s[3].toOptional<at::ScalarType>();
  if (is_last && x.is_contiguous() && x.scalar_type() == at::kFloat && x.numel() &&
      type.value_or(at::kFloat) == at::kFloat) {
    const auto length = x.size(-1), rows = x.numel() / length;
    if (const RowSums sums(rows, length); length > 1 && sums.width) {
      const auto found = at::empty(x.sizes().slice(0, x.dim() - 1), at::kFloat);
      auto* const to = found.mutable_data_ptr<float>();
      const auto* const from = x.const_data_ptr<float>();
      for (int64_t row = 0; row < rows; ++row) to[row] = sums.of_row(from + row * length);
      s = {keeps ? found.unsqueeze(-1) : found};
      return;
    }
  }
  s = {at::sum(x, at::OptionalIntArrayRef(dims), keeps, type)};
}

static const std::unordered_map<std::string, OnHost> on_host_by_name = {
    {"aten::sum.dim_IntList", {&sum_rows}},
    {"aten::cudnn_convolution", {&convolve}},
    {"aten::cudnn_convolution_transpose", {&convolve_transposed}},
    {"aten::_conv_depthwise2d", {&convolve_by_channel}},
    {"aten::conv_depthwise3d", {&convolve_by_channel}},
    {"aten::cudnn_batch_norm", {&normalise, {}, {3, 4}}},
    {"aten::cudnn_batch_norm_backward", {&normalise_backward, {8}}},
    {"aten::native_batch_norm", {nullptr, {}, {3, 4}}},
    {"aten::_softmax", {&make_shares<false>}},
    {"aten::_log_softmax", {&make_shares<true>}},
    {"aten::_softmax_backward_data", {&make_shares_backward<false>}},
    {"aten::_log_softmax_backward_data", {&make_shares_backward<true>}},
    {"aten::log_sigmoid_backward", {&log_sigmoid_backward, {2}}},
    {"aten::_scaled_dot_product_flash_attention", {&attend<0, 0, 0, 3, 4, 6>}},
    {"aten::_scaled_dot_product_efficient_attention", {&attend<0, 3, 0, 5, 6, 7>}},
    {"aten::_scaled_dot_product_cudnn_attention", {&attend<0, 3, 0, 5, 6, 8>}},
    {"aten::_scaled_dot_product_flash_attention_backward",
     {&attend<1, 0, 4, 10, 11, 14>, {4, 5, 6, 7, 12, 13}}},
    {"aten::_scaled_dot_product_efficient_attention_backward",
     {&attend<1, 4, 5, 9, 11, 12>, {5, 6, 7, 8}}},
    {"aten::_scaled_dot_product_cudnn_attention_backward",
     {&attend<1, 8, 4, 13, 14, 15>, {4, 5, 6, 7, 9, 10}}},
    {"aten::cudnn_grid_sampler", {&sample_grid}},
    {"aten::cudnn_grid_sampler_backward", {&sample_grid_backward}},
    {"aten::_thnn_fused_lstm_cell", {&lstm_cell}},
    {"aten::_thnn_fused_lstm_cell_backward_impl", {&lstm_cell_backward}},
    {"aten::native_dropout", {&drop_out}},
};

static const OnHost& find_on_host(const std::string& name) {
  static const OnHost by_itself;
  const auto found = on_host_by_name.find(name);
  return found == on_host_by_name.end() ? by_itself : found->second;
}

// A product, a convolution or attention in half precision: GPUs sum in single precision, and many
// CPUs have no instructions for halves, with which one takes up to 300 times as long. What is made
// is rounded where it is kept.
static void widen(const Operator& info, Stack& values) {
  if (!info.is_laborious || !info.written_arguments.empty()) return;
  for (auto& value : values) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const auto& tensor = value.toTensor();
    if (c10::isReducedFloatingType(tensor.scalar_type())) value = tensor.to(at::kFloat);
  }
}

inline bool Operator::writes_unsaid(size_t argument) const {
  const auto& places = on_host->writes;
  return std::find(places.begin(), places.end(), argument) != places.end();
}

}  // namespace vramcast
