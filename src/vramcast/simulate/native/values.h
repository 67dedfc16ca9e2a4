// The real contents of simulated tensors, where they are known.
#pragma once
#include <ATen/ops/copy.h>
#include <ATen/ops/rand.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "drawing.h"
#include "on_host.h"
#include "operators.h"

namespace vramcast {

// Integers and booleans decide what a program does (routing, masks, lengths), so small ones are
// really computed. Floating-point contents rarely do: only very small ones are computed (masks,
// loss scales, schedules).
constexpr int64_t max_integer_value_bytes = 16 << 20, max_float_value_bytes = 64 << 10,
                  max_drawn_float_bytes = 16 << 20;
// The floating-point tensors of a list: a longer one is an optimizer's.
constexpr int64_t max_listed_value_bytes = 1 << 20;
// A small tensor that is expanded may have any number of elements: more are not gone through.
constexpr int64_t max_computed_elements = 64 << 20, max_drawn_elements = 4 << 20;

// Where all are. What is part of a kernel written in Python is not: the kernel's results are.
static bool computes_all() { return computing.is_on && kernel_depth() == 0; }

static bool may_carry_values(const at::Tensor& tensor) {
  const auto num_bytes =
      static_cast<int64_t>(tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes());
  if (computes_all() && computing.has_room(num_bytes)) return true;
  return num_bytes <= (c10::isIntegralType(tensor.scalar_type(), true) ? max_integer_value_bytes
                                                                       : max_float_value_bytes);
}

// Random numbers are compared to make masks. Not the first contents of parameters: nothing depends
// on them.
static bool may_be_drawn(const at::Tensor& tensor) {
  if (!c10::isFloatingType(tensor.scalar_type()) || computes_all())
    return may_carry_values(tensor);
  const auto num_bytes = tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes();
  return !tensor.requires_grad() && num_bytes <= static_cast<size_t>(max_drawn_float_bytes);
}

static at::Tensor host_view(const at::Tensor& bytes, const at::Tensor& like) {
  auto storage = bytes.storage();
  auto view = make_tensor(std::move(storage), like.sizes(), like.strides(), like.storage_offset(),
                          like.dtype(), false);
  if (like.is_conj()) view._set_conj(true);
  if (like.is_neg()) view._set_neg(true);
  return view;
}

static at::Tensor host_bytes(int64_t num_bytes) {
  const std::vector<int64_t> sizes = {num_bytes}, strides = {1};
  return new_tensor(sizes, strides, caffe2::TypeMeta::Make<uint8_t>(), false);
}

static void hold_values(Block& block) {
  block.values = std::make_shared<Contents>(host_bytes(block.num_bytes));
}

// To be written to.
static const at::Tensor& own_values(Block& block) {
  if (block.values.use_count() > 1) {
    const auto bytes = block.values->read();
    hold_values(block);
    memcpy(block.values->bytes.mutable_data_ptr(), bytes.const_data_ptr(), bytes.nbytes());
  }
  return block.values->read();
}

// The real contents of a tensor as a CPU tensor, or an undefined tensor if they are not known.
static at::Tensor known_values(const at::Tensor& tensor, bool is_written = false) {
  if (!tensor.is_cuda()) return tensor.device().is_cpu() ? tensor : at::Tensor();
  if (tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes() == 0) {
    return make_tensor(
        c10::Storage(c10::Storage::use_byte_size_t(), 0, c10::GetCPUAllocator(), true),
        tensor.sizes(), tensor.strides(), 0, tensor.dtype(), false);
  }
  auto* block = block_of(tensor);
  if (!block || !block->values) return {};
  return host_view(is_written ? own_values(*block) : block->values->read(), tensor);
}

struct BelowSimulation {
  c10::impl::ExcludeDispatchKeyGuard guard{
      DispatchKeySet(DispatchKey::Fake) | c10::autograd_dispatch_keyset |
      DispatchKeySet(DispatchKey::ADInplaceOrView) | c10::default_excluded_set};
};

// While it lives, the key Fake is not excluded.
struct NotExcluded {
  const bool before = c10::impl::tls_is_dispatch_key_excluded(DispatchKey::Fake);
  NotExcluded() { c10::impl::tls_set_dispatch_key_excluded(DispatchKey::Fake, false); }
  ~NotExcluded() { c10::impl::tls_set_dispatch_key_excluded(DispatchKey::Fake, before); }
};

// Before a part is written. Integers stay zero: a list of them is often written piece by piece.
static void fill_with_typical(const Block& block, const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  if (!c10::isFloatingType(type) && !block.typical.derived) return;
  auto bytes = block.values->bytes.storage();
  const std::vector<int64_t> sizes = {static_cast<int64_t>(bytes.nbytes() / tensor.itemsize())};
  make_tensor(std::move(bytes), sizes, {std::vector<int64_t>{1}}, 0, tensor.dtype(), false)
      .fill_(block.typical.number);
}

static bool is_whole(const at::Tensor& tensor) {
  return static_cast<size_t>(tensor.numel()) * tensor.itemsize() ==
         tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes();
}

static void note_write(const at::Tensor& tensor) {
  if (auto* block = block_of(tensor)) block->last_write = ++num_writes;
}

// Whether one is the other's bytes, which lie together.
static bool is_laid_out_as(const at::Tensor& tensor, const at::Tensor& values) {
  return values.is_cpu() && values.layout() == at::kStrided && values.dtype() == tensor.dtype() &&
         values.sizes() == tensor.sizes() && values.strides() == tensor.strides() &&
         tensor.is_non_overlapping_and_dense() && values.is_conj() == tensor.is_conj() &&
         values.is_neg() == tensor.is_neg();
}

// The result of an operator may be taken as it is.
static bool can_be_taken(const Block& block, const at::Tensor& values) {
  const auto& storage = values.storage();
  return values.storage_offset() == 0 && storage.use_count() == 1 &&
         static_cast<int64_t>(storage.nbytes()) == block.num_bytes;
}

static void set_values(const at::Tensor& tensor, const at::Tensor& values) {
  auto* block = block_of(tensor);
  if (!block) return;
  block->drawn = block->ranked = block->guessed = false;
  block->last_write = ++num_writes;
  BelowSimulation below;
  const bool is_all = is_whole(tensor) && tensor.is_non_overlapping_and_dense();
  if (is_all && is_laid_out_as(tensor, values) && can_be_taken(*block, values)) {
    auto storage = values.storage();
    const std::vector<int64_t> sizes = {block->num_bytes}, strides = {1};
    block->values = std::make_shared<Contents>(make_tensor(
        std::move(storage), sizes, strides, 0, caffe2::TypeMeta::Make<uint8_t>(), false));
    return;
  }
  if (!block->values || is_all) {
    hold_values(*block);
    if (!is_all) fill_with_typical(*block, tensor);
  }
  const auto& bytes = own_values(*block);
  if (!is_laid_out_as(tensor, values)) {
    host_view(bytes, tensor).copy_(values);
    return;
  }
  const auto begin = tensor.storage_offset() * tensor.itemsize();
  memmove(static_cast<char*>(bytes.mutable_data_ptr()) + begin, values.const_data_ptr(),
          tensor.numel() * tensor.itemsize());
}

static void begin_values(const at::Tensor& tensor, bool draws) {
  auto* block = block_of(tensor);
  const bool may = draws ? may_be_drawn(tensor) : may_carry_values(tensor);
  if (block && draws && is_whole(tensor)) block->values = nullptr;  // they are overwritten
  // of integers also a part, as in set_values()
  const bool is_begun = is_whole(tensor) ||
                        (!draws && c10::isIntegralType(tensor.scalar_type(), false));
  if (block && !block->values && is_begun && may) {
    hold_values(*block);
    if (!is_whole(tensor)) fill_with_typical(*block, tensor);
    block->drawn = draws && c10::isFloatingType(tensor.scalar_type()) && !computes_all();
  }
}

// A tensor of one number, to a few places of which others are written: a mask of classes. Also an
// empty one of integers, as in set_values(): a permutation that is turned around.
static bool is_uniform(const at::Tensor& tensor) {
  const auto* block = block_of(tensor);
  if (!block || block->values || block->num_bytes > max_integer_value_bytes) return false;
  return block->typical.sure ||
         (!block->typical.derived && c10::isIntegralType(tensor.scalar_type(), false));
}
static void begin_uniform(const at::Tensor& tensor) {
  if (!is_uniform(tensor)) return;
  auto* block = block_of(tensor);
  hold_values(*block);
  fill_with_typical(*block, tensor);
}

static void forget_values(const at::Tensor& tensor) {
  auto* block = block_of(tensor);
  if (!block) return;
  block->values.reset();
  block->drawn = block->ranked = block->guessed = false;
  block->last_write = ++num_writes;
  block->typical = healthy_now();
}

// Once somebody asks for them, or at once where they are a part of a tensor. False where the
// numbers cannot be told.
static bool draw_as_gpu(Draws draws, c10::ArrayRef<IValue> arguments, const Draw& draw,
                        const at::Tensor& host) {
  if (!host.is_contiguous() || host.scalar_type() == at::kDouble) return false;
  const auto write = numbers_of(draws, arguments, draw);
  if (!write) return false;
  const auto& tensor = arguments[0].toTensor();
  auto* block = tensor.is_cuda() && is_whole(tensor) ? block_of(tensor) : nullptr;
  if (!block) {
    write(host);
    return true;
  }
  block->values->write = [=] {
    BelowSimulation below;
    write(host);
  };
  return true;
}

static bool is_guess(const at::Tensor& tensor) {
  const auto* block = tensor.is_cuda() ? block_of(tensor) : nullptr;
  return block && block->guessed;
}

static bool is_any_guess(c10::ArrayRef<IValue> arguments) {
  bool found = false;
  for (const auto& argument : arguments)
    for_each_tensor(argument, [&](const at::Tensor& one) { found = found || is_guess(one); });
  return found;
}

// What an operator is made to run with on the host.
struct HostCall {
  Stack values;
  bool drawn = false;    // some of them are random numbers, as it ranks
  bool guessed = false;  // or they are made of some
};

// Its arguments as they are on the host; false where some are not known. What it writes to is
// written at its place, or to copies.
static bool bring_to_host(const Operator& info, c10::ArrayRef<IValue> arguments, bool copies,
                          HostCall& call) {
  bool all_known = true;
  size_t place = 0;
  auto known = [&](const at::Tensor& tensor, bool is_written = false) -> at::Tensor {
    auto host = known_values(tensor, is_written && !copies);
    call.guessed = call.guessed || is_guess(tensor);
    if (host.defined() && is_written && copies) {
      BelowSimulation below;
      return host.clone();
    }
    if (!host.defined() && info.ranks && tensor.numel() <= max_drawn_elements) {
      BelowSimulation below;
      const DrawnByGpu gpu;
      call.drawn = call.guessed = true;
      return at::rand(tensor.sizes(), at::TensorOptions().dtype(at::kFloat));
    }
    if (!host.defined() && !info.on_host->left_out.count(place)) all_known = false;
    return host;
  };
  for (place = 0; place < arguments.size(); ++place) {
    const auto& argument = arguments[place];
    const bool is_written = info.writes_to(place) || info.writes_unsaid(place);
    if (argument.isTensor() && argument.toTensor().defined())
      call.values.emplace_back(known(argument.toTensor(), is_written));
    else if (argument.isTensorList()) {
      c10::List<at::Tensor> hosts;
      for (const at::Tensor& tensor : argument.toTensorVector()) {
        hosts.push_back(known(tensor, is_written));
        if (!all_known) return false;
      }
      call.values.emplace_back(std::move(hosts));
    } else if (argument.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> hosts;
      for (const IValue& item : argument.toListRef()) {
        hosts.push_back(item.isTensor() && item.toTensor().defined()
                            ? std::optional<at::Tensor>(known(item.toTensor()))
                            : std::nullopt);
        if (!all_known) return false;
      }
      call.values.emplace_back(std::move(hosts));
    } else if (argument.isDevice())
      call.values.emplace_back(c10::Device(c10::kCPU));
    else if (argument.isGenerator())
      call.values.emplace_back();
    else
      call.values.emplace_back(argument);
    if (!all_known) return false;
  }
  return true;
}

// multinomial: the largest shares of exponential numbers
static at::Tensor choose(const Draw& draw, const Stack& values) {
  const auto& chances = values[0].toTensor();
  const auto count = values[1].toInt();
  const auto shares = chances.div(draw_exponential(draw, chances.sizes()).to(chances.dtype()));
  return count == 1 ? shares.argmax(-1, true) : std::get<1>(shares.topk(count, -1));
}

// Runs the operator on the CPU; false when that is not possible.
static bool run_on_cpu(const c10::OperatorHandle& op, const Operator& info,
                       c10::ArrayRef<IValue> arguments, const std::optional<Draw>& draw,
                       Stack& values) {
  try {
    BelowSimulation below;
    const Timed timed;
    if (draw && info.draws == Draws::coins_each) {
      const auto& host = values[0].toTensor();
      host.copy_(draw_shares_in_fours(*draw, host.sizes()).le(values[1].toTensor()));
      values.resize(1);
      return true;
    }
    if (draw && info.draws == Draws::choices && takes_one_for_each(arguments)) {
      values = {choose(*draw, values)};
      return true;
    }
    if (draw && draw_as_gpu(info.draws, arguments, *draw, values[0].toTensor())) {
      values.resize(1);
      return true;
    }
    std::optional<DrawnByGpu> gpu;
    if (info.samples) gpu.emplace();
    widen(info, values);
    if (info.on_host->compute)
      info.on_host->compute(values);
    else
      op.callBoxed(&values);
    return true;
  } catch (const std::exception&) {
    return false;  // no CPU kernel: the contents stay unknown
  }
}

// Runs it with the known contents of its arguments, or where it ranks with numbers that are drawn.
static bool compute_values(const c10::OperatorHandle& op, const Operator& info,
                           c10::ArrayRef<IValue> arguments, const std::optional<Draw>& draw,
                           HostCall& call) {
  return bring_to_host(info, arguments, false, call) &&
         run_on_cpu(op, info, arguments, draw, call.values);
}

static bool has_long_list(c10::ArrayRef<IValue> arguments) {
  for (const auto& argument : arguments) {
    if (!argument.isTensorList()) continue;
    int64_t num_bytes = 0;
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (tensor.is_floating_point()) num_bytes += tensor.numel() * tensor.itemsize();
    });
    if (num_bytes > max_listed_value_bytes) return true;
  }
  return false;
}

static bool worth_computing(const Operator& info, c10::ArrayRef<IValue> arguments,
                            const std::vector<IValue>& results) {
  if (info.uninitialised) return false;
  if (computes_all()) return !only_views(info);
  if (has_long_list(arguments)) return false;
  bool small = false;
  for (const auto& result : results)
    for_each_tensor(result,
                    [&](const at::Tensor& tensor) { small = small || may_carry_values(tensor); });
  for (const int i : info.written_arguments)
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      small = small || may_carry_values(tensor) || (info.scatters && is_uniform(tensor)) ||
              (info.samples && may_be_drawn(tensor));
    });
  if (!small || info.ranks) return small;
  const bool makes_floats = !info.samples && !results.empty() && results[0].isTensor() &&
                            results[0].toTensor().defined() &&
                            c10::isFloatingType(results[0].toTensor().scalar_type());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& argument = arguments[i];
    if (info.overwrites && info.writes_to(i)) continue;
    bool known = true;
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (tensor.is_cuda()) {
        const auto* block = block_of(tensor);
        known = known && tensor.numel() <= max_computed_elements &&
                !(makes_floats && block && block->drawn) &&
                (tensor.numel() == 0 || (block && block->values) ||
                 (info.scatters && is_uniform(tensor)) ||
                 (info.samples && may_be_drawn(tensor)));
      }
    });
    if (!known) return false;
  }
  return true;
}

}  // namespace vramcast
