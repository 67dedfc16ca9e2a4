// Collectives: how many bytes each moves among how many GPUs, on which stream it runs, and which
// stream waits for it.
#pragma once
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "work.h"

namespace vramcast {

// What runs while it lives is part of the kernel that is running.
struct PartOfKernel {
  const bool is_part;
  explicit PartOfKernel(bool part) : is_part(part) { WorkLog::depth() += is_part; }
  ~PartOfKernel() { WorkLog::depth() -= is_part; }
};

// How many GPUs of a group are in one machine, by the name of the group.
static std::map<std::string, int64_t> gpus_in_machine;
// NCCL has a stream for each group, which is no stream of torch's.
static constexpr int64_t first_group_stream = int64_t{1} << 40;
// The collective that last wrote to a storage, by its number in the log.
static std::map<const void*, int64_t> communicated;

static void note_stream_wait(int64_t waiting, int64_t for_stream, int64_t num_works_before) {
  static const auto name = recorder.intern("vramcast::wait");
  static const auto of_host = recorder.intern("vramcast::synchronize");
  const auto ago = num_works - num_works_before;
  if (waiting == the_host)
    work_log.add_on_stream({0, 0, {0, 0, 0, 0}, of_host, -1, forward, no_kernel, for_stream});
  else
    work_log.add_on_stream(
        {0, 0, {for_stream, ago, 0, 0}, name, -1, forward, no_kernel, waiting});
}
static const bool notes_waits = [] {
  note_wait = note_stream_wait;
  return true;
}();

// The current stream waits for a collective, by its number in the log.
static void note_wait_for(int64_t number) {
  int64_t stream = 0;
  {
    const std::lock_guard lock(work_log.mutex);
    if (number < 0 || number >= static_cast<int64_t>(work_log.list.size())) return;
    stream = work_log.list[number].stream;
  }
  if (stream != current_stream()) note_stream_wait(current_stream(), stream, number + 1);
}

// It waits for all that any group has begun.
static void note_wait_for_groups() {
  std::map<int64_t, int64_t> last;
  {
    const std::lock_guard lock(work_log.mutex);
    for (size_t i = 0; i < work_log.list.size(); ++i)
      if (work_log.list[i].stream >= first_group_stream) last[work_log.list[i].stream] = i;
  }
  for (const auto& [stream, number] : last) note_wait_for(number);
}

static void note_wait_for_tensor(const at::Tensor& tensor) {
  if (!tensor.is_cuda() || !tensor.has_storage()) return;
  const auto found = communicated.find(tensor.unsafeGetTensorImpl()->unsafe_storage().data());
  if (found != communicated.end()) note_wait_for(found->second);
}

template <typename Function>
static void for_each_nested_tensor(const IValue& value, const Function& function) {
  if (value.isTensor()) return function(value.toTensor());
  if (!value.isList()) return;
  for (const IValue& each : value.toListRef()) for_each_nested_tensor(each, function);
}

static void note_collective(const c10::OperatorHandle& op, const Operator& info,
                            c10::ArrayRef<IValue> arguments) {
  const auto group_index = op.schema().argumentIndexWithName("process_group");
  if (!group_index) return;
  const auto group = arguments[*group_index].toCustomClass<c10d::ProcessGroup>();
  const int64_t size = group->getSize();
  static std::map<std::string, int64_t> numbers;
  const auto number = numbers.try_emplace(group->getGroupName(), numbers.size()).first->second;
  const auto known = gpus_in_machine.find(group->getGroupName());
  const int64_t in_machine = known == gpus_in_machine.end() ? size : known->second;
  Work work{0, 0, {size, in_machine, 0, 0}, info.name, -1, forward, plain};
  bool on_gpu = false;
  for (const auto& argument : arguments) {
    double num_bytes = 0;  // of one argument: what is gathered, or what is scattered, is larger
    for_each_nested_tensor(argument, [&](const at::Tensor& tensor) {
      on_gpu |= tensor.is_cuda();
      num_bytes += static_cast<double>(tensor.nbytes());
      if (work.dtype < 0) work.dtype = static_cast<int32_t>(tensor.scalar_type());
    });
    work.num_bytes = std::max(work.num_bytes, num_bytes);
  }
  if (!on_gpu) return;
  const auto async_index = op.schema().argumentIndexWithName("async_op");
  const bool is_async = !async_index || arguments[*async_index].toBool();
  work.stream = is_async ? first_group_stream + number : current_stream();
  if (is_async) note_stream_wait(work.stream, current_stream(), num_works);
  work_log.add_on_stream(work);
  for (const auto& argument : arguments)
    for_each_nested_tensor(argument, [&](const at::Tensor& tensor) {
      if (tensor.is_cuda() && tensor.has_storage())
        communicated[tensor.unsafeGetTensorImpl()->unsafe_storage().data()] = num_works - 1;
    });
}

}  // namespace vramcast
