// torch.jit fuses operators that work by element into one kernel, of which only the results take
// memory. What is fused is decided by torch itself; here such a kernel does nothing.
#pragma once
#include <torch/csrc/jit/codegen/fuser/compiler.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/runtime/operator.h>

#include "meta.h"
#include "work.h"

namespace vramcast {

static void note_fused(const Stack& arguments, const Stack& results) {
  Work work{0, 0, {}, recorder.intern("inductor::fused_by_torch_jit"), -1, forward, plain};
  for (const auto* values : {&arguments, &results})
    for (const auto& value : *values)
      if (value.isTensor()) work.num_bytes += moved_bytes(value.toTensor());
  work.dtype = static_cast<int32_t>(results.at(0).toTensor().scalar_type());
  work_log.add(work);
}

// Where a shape cannot be found without data, its operators run one by one.
static bool simulate_fused(const torch::jit::Code& code, const Stack& arguments, Stack& results) {
  for (const auto& argument : arguments) results.push_back(to_meta(argument));
  try {
    torch::jit::InterpreterState(code).run(results);
  } catch (const std::exception&) {
    results.clear();
    return false;
  }
  const CurrentOperator current(recorder, recorder.intern("prim::TensorExprGroup"));
  for (auto& result : results) result = materialise(result.toTensor(), true);
  note_fused(arguments, results);
  return true;
}

static bool is_on_gpu(const IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().is_cuda();
}

static torch::jit::Operation fused_operators(const torch::jit::Node* node) {
  const torch::jit::Code code(node->g(torch::jit::attr::Subgraph), "");
  return [code, num_arguments = node->inputs().size()](Stack& stack) {
    const Stack arguments(stack.end() - num_arguments, stack.end());
    Stack results;
    if (!std::any_of(arguments.begin(), arguments.end(), is_on_gpu) ||
        !simulate_fused(code, arguments, results))
      return torch::jit::InterpreterState(code).run(stack);
    torch::jit::drop(stack, num_arguments);
    stack.insert(stack.end(), results.begin(), results.end());
  };
}

// torch takes the first operator of a name, so its own is replaced. A build without CUDA fuses for
// no GPU unless something is registered that could compile for one.
static void install_fused_operators() {
  namespace jit = torch::jit;
  if (!jit::fuser::hasFusionBackend(c10::kCUDA))
    jit::fuser::registerFusionBackend(c10::kCUDA, [](auto&&...) { return nullptr; });
  for (const auto& known : jit::getAllOperatorsFor(jit::prim::TensorExprGroup))
    const_cast<std::shared_ptr<jit::Operator>&>(known) = std::make_shared<jit::Operator>(
        jit::prim::TensorExprGroup, jit::OperationCreator(fused_operators),
        c10::AliasAnalysisKind::INTERNAL_SPECIAL_CASE);
}

}  // namespace vramcast
