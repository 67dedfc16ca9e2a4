// What copies and reductions allocate beside their result.
#pragma once
#include "deriving.h"

namespace vramcast {

// What a copy between host and device takes on the device: the conversion is made there if the host
// does not wait, else on the host, and dense buffers are what is moved.
static void simulate_crossing(const at::Tensor& destination, const at::Tensor& source,
                              bool non_blocking) {
  const bool same_type = destination.dtype() == source.dtype();
  const bool same_layout =
      destination.strides() == source.strides() && destination.is_non_overlapping_and_dense();
  const bool both_dense = destination.is_contiguous() && source.is_contiguous();
  if (same_type && destination.sizes() == source.sizes() && (same_layout || both_dense)) return;
  const bool source_converts = source.is_cuda() == non_blocking;
  const auto moved_type = source_converts ? destination.dtype() : source.dtype();
  if (destination.is_cuda()) {
    if (!destination.is_contiguous() || (!source_converts && !same_type))
      new_tensor(destination.sizes(), dense_strides(destination.sizes()), moved_type, true);
    return;
  }
  at::Tensor converted;
  if (source_converts && !same_type)
    converted = new_tensor(source.sizes(), dense_strides(source.sizes()), moved_type, true);
  if (!source.is_contiguous())
    new_tensor(source.sizes(), dense_strides(source.sizes()), moved_type, true);
}

// Clamped numbers that become whole ones are levels, bins or classes. Before, they are taken to be
// normally distributed, as activations are, and as wide as what they are clamped to.
static bool draw_integers(const at::Tensor& destination, const Typical& typical) {
  if (!(typical.low < typical.high) || !c10::isIntegralType(destination.scalar_type(), false) ||
      destination.numel() > max_drawn_elements || !may_carry_values(destination))
    return false;
  BelowSimulation below;
  const DrawnByGpu gpu;
  const auto numbers = at::randn(destination.sizes(), at::TensorOptions().dtype(at::kFloat));
  const auto wide = numbers * ((typical.high - typical.low) / 2);
  set_values(destination, wide.clamp(typical.low, typical.high));
  note_guess(destination);
  return true;
}

// Of numbers that nobody has asked for yet.
static bool defer_copy(const at::Tensor& destination, const at::Tensor& source) {
  if (!source.is_cuda()) return false;
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  const auto* block = block_of(source);
  if (!block || !block->values) return false;
  const std::vector<IValue> arguments = {destination, source, false};
  if (!c10::isFloatingType(destination.scalar_type()))
    return defer_integers(op, operator_info(op), arguments, destination);
  if (!block->drawn && may_carry_values(destination)) return false;
  auto later = deferred(op, operator_info(op), arguments, destination);
  if (!later) return false;
  const auto typical = typical_of(source);
  const bool guessed = is_guess(source);
  forget_values(destination);
  set_typical(destination, typical);
  set_deferred(destination, std::move(later), guessed);
  return true;
}

// Of whole storages.
static bool is_exact_copy(const at::Tensor& destination, const at::Tensor& source) {
  return destination.is_cuda() && source.is_cuda() && destination.dtype() == source.dtype() &&
         destination.sizes() == source.sizes() && destination.strides() == source.strides() &&
         is_whole(destination) && is_whole(source) && block_of(destination) && block_of(source);
}

static void copy_contents(const at::Tensor& destination, const at::Tensor& source) {
  if (destination.is_cuda() && defer_copy(destination, source)) return;
  const auto values = known_values(source);
  if (!destination.is_cuda()) {
    BelowSimulation below;
    const auto& host = destination.unsafeGetTensorImpl()->unsafe_storage();
    const bool whole_host = static_cast<size_t>(destination.nbytes()) == host.nbytes();
    auto* mapping = mapping_of(destination);
    if (mapping) mapping->filled = values.defined();
    const bool is_whole_number = c10::isIntegralType(source.scalar_type(), true);
    if (values.defined() ? is_guess(source) : is_whole_number) guess_was_read = true;
    if (values.defined())
      destination.copy_(values);
    else if (destination.numel() <= max_read_elements)
      destination.fill_(as_read(source));
    else if (!whole_host || !LazyHostAllocator::clear(host.data_ptr()))
      destination.zero_();
    return;
  }
  if (values.defined() && may_carry_values(destination)) {
    const bool guessed = is_guess(source);
    set_values(destination, values);
    if (guessed) note_guess(destination);
    return;
  }
  const auto typical = typical_of(source);
  if (draw_integers(destination, typical)) return;
  forget_values(destination);
  set_typical(destination, typical);
}

// Copies within the device take nothing.
static void simulate_copy(const at::Tensor& destination, const at::Tensor& source,
                          bool non_blocking) {
  const bool crosses = destination.is_cuda() != source.is_cuda();
  if (crosses && !non_blocking) streams.finish(current_stream());
  if (source.is_cuda() && !destination.is_cuda()) ++num_host_reads;
  if (crosses) simulate_crossing(destination, source, non_blocking);
  copy_contents(destination, source);
  if (is_exact_copy(destination, source))
    block_of(destination)->last_write = block_of(source)->last_write;
}

// What angle and clamp make before their result, and keep until they end.
static c10::DataPtr copy_made_first(const Operator& info, c10::ArrayRef<IValue> arguments,
                                    const std::vector<IValue>& results) {
  if (!info.copies_first) return {};
  const auto &x = arguments[0].toTensor(), &result = results[0].toTensor();
  if (x.scalar_type() == result.scalar_type()) return {};
  const auto item_bytes = x.is_complex() ? x.itemsize() : result.itemsize();
  return device_allocator.allocate(x.numel() * item_bytes);
}

// The magnitude of complex numbers is computed as a complex number.
static void simulate_complex_result(const at::Tensor& input) {
  if (input.is_complex()) device_allocator.allocate(input.nbytes());
}

// The probabilities are looked at. Then one number is drawn for each, and the largest shares of
// them are taken.
static void simulate_single_choices(const at::Tensor& input, int64_t count) {
  at::Tensor is_valid, is_zero;
  {
    const auto largest = at::max(input), is_finite = at::lt(largest, INFINITY);
    const auto smallest = at::min(input), is_positive = at::ge(smallest, 0);
    is_valid = at::logical_and(is_finite, is_positive);
  }
  if (input.dim() == 1) {
    is_zero = at::eq(at::sum(input), 0);
  } else {
    const auto sums = at::sum(input, {1}), are_zero = at::eq(sums, 0);
    is_zero = at::any(are_zero);
  }
  at::logical_not(is_zero);
  const auto drawn = at::empty_like(input);
  if (count > 1) at::empty(input.numel() / input.size(-1) * count, input.options());
}

// Several choices that may be the same: the probabilities as they are, of sum one, and added up,
// for which CUB takes scratch memory where there is one row.
static void simulate_choices(c10::ArrayRef<IValue> arguments) {
  const auto& input = arguments[0].toTensor();
  if (input.numel() == 0) return;
  if (takes_one_for_each(arguments)) return simulate_single_choices(input, arguments[1].toInt());
  std::array<at::Tensor, 3> copies;
  for (auto& copy : copies) copy = at::empty_like(input);
  const auto tiles = input.numel() / 1920 + 33;
  if (input.dim() == 1) device_allocator.allocate((8 * tiles + 255) / 256 * 256 + 511);
}

// Where results must not vary, what is written to places that a tensor names goes by index_put_,
// which sorts them. Of scatter every element has a place: the other dimensions are counted.
static void simulate_sorted_places(const Operator& info, c10::ArrayRef<IValue> arguments,
                                   at::Tensor out) {
  const auto dim = at::maybe_wrap_dim(arguments[1].toInt(), out.dim());
  const auto& index = arguments[2].toTensor();
  auto source = arguments[3].toTensor();
  if (!index.numel() || !out.dim()) return;
  if (info.names_rows && info.adds_up) source = at::mul(source, arguments[4].toScalar());
  c10::List<std::optional<at::Tensor>> places;
  for (int64_t d = 0; d < out.dim() && (d <= dim || !info.names_rows); ++d) {
    if (d == dim || info.names_rows) {
      places.push_back(d == dim ? std::optional(index) : std::nullopt);
      continue;
    }
    std::vector<int64_t> shape(index.dim(), 1);
    shape[d] = index.size(d);
    const auto counted = at::arange(index.size(d), index.options());
    places.push_back(counted.view(shape).expand(index.sizes()));
  }
  if (!info.names_rows && source.sizes() != index.sizes())
    source = source.as_strided(index.sizes(), source.strides());
  auto before = known_values(out);
  if (before.defined()) {  // index_put_ changes it, as the operator itself does afterwards
    const BelowSimulation below;
    before = before.clone();
  }
  at::_index_put_impl_(out, places, source, info.adds_up, false);
  if (before.defined()) set_values(out, before);
}

// Scratch memory of a reduction: taken after the result, given back when the kernel has been
// launched.
static void simulate_reduction(const c10::OperatorHandle& op, const Reduction& reduction,
                               c10::ArrayRef<IValue> arguments, const IValue& first_result) {
  const auto& input = arguments[0].toTensor();
  const auto& result = first_result.toTensor();
  if (input.numel() == 0 || input.dim() > 25) return;
  auto type = input.scalar_type();
  at::Tensor converted;
  if (reduction.converts && type != result.scalar_type() &&
      !(c10::isReducedFloatingType(type) && result.scalar_type() == at::kFloat)) {
    type = result.scalar_type();
    converted = new_tensor(input.sizes(), dense_strides(input.sizes()), result.dtype(), true);
  }
  const auto& source = converted.defined() ? converted : input;
  const auto mask = reduced_dims(op.schema(), arguments, input.dim());
  ReductionScratch scratch;
  {
    BelowSimulation below;
    const auto iter = reduction_iterator(meta_of(source), meta_of(result), mask);
    const auto item_bytes = static_cast<int64_t>(source.itemsize());
    const int loads = reduction.accumulator == Accumulator::welford ? 2
                      : !reduction.wide_loads || item_bytes > 2     ? 4
                      : item_bytes == 2                             ? 8
                                                                    : 16;
    const auto address =
        reinterpret_cast<int64_t>(source.unsafeGetTensorImpl()->unsafe_storage().data_ptr().get()) +
        source.storage_offset() * item_bytes;
    scratch = reduction_scratch(iter, gpu, address, item_bytes,
                                accumulator_bytes(reduction.accumulator, type), loads);
  }
  if (!scratch.buffer_bytes) return;
  const auto buffer = device_allocator.allocate(scratch.buffer_bytes);
  const auto semaphores = device_allocator.allocate(scratch.semaphore_bytes);
}

}  // namespace vramcast
