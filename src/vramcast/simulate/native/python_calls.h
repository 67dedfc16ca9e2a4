// Counts the Python functions that the program calls (vramcast/simulate/python_calls.py). Python
// tells of every call and return, also of built-in functions: in Python, counting would take longer
// than the step.
#pragma once
#include <cstdint>
#include <unordered_map>

// Of CPython's interface only what is needed here: its headers may not be installed.
extern "C" {
struct _object;
struct _frame;
void PyEval_SetProfile(int (*)(_object*, _frame*, int, _object*), _object*);
_object* PyFrame_GetCode(_frame*);
int PyGILState_Ensure();
void PyGILState_Release(int);
void Py_DecRef(_object*);
}

namespace vramcast {

// Every function is called with Python's global lock held.
struct PythonCalls {
  enum Kind : int32_t { counted, passed, skipped };  // as in python_calls.py
  int64_t of_step = 0;
  bool is_counting = false;
  _object* profiler = nullptr;  // what sys.getprofile() returns
  int32_t (*kind_of)(_object* code) = nullptr;
  std::unordered_map<_object*, int32_t> kinds;  // by code object, each of which is kept alive

  // calls of this thread inside a function of the simulation
  static int64_t& skipped_depth() {
    static thread_local int64_t depth = 0;
    return depth;
  }

  void see(_frame* frame, int event) {
    constexpr int call = 0, return_ = 3;  // PyTrace_CALL, PyTrace_RETURN
    if (!is_counting || (event != call && event != return_)) return;
    if (skipped_depth()) {
      skipped_depth() += event == call ? 1 : -1;
    } else if (event == call) {
      const auto kind = kind_of_code(PyFrame_GetCode(frame));
      if (kind == counted) of_step += 1;
      if (kind == skipped) skipped_depth() = 1;
    }
  }

  void forget() {
    for (const auto& [code, kind] : kinds) Py_DecRef(code);
    kinds.clear();
  }

 private:
  int32_t kind_of_code(_object* code) {
    const auto found = kinds.find(code);
    if (found == kinds.end()) return kinds[code] = kind_of(code);
    Py_DecRef(code);
    return found->second;
  }
};
static PythonCalls python_calls;

static int see_python_call(_object*, _frame* frame, int event, _object*) {
  python_calls.see(frame, event);
  return 0;
}

// Counts in autograd's threads too, which run hooks, custom functions and what is recomputed.
static thread_local bool is_counted_thread = false;
static void count_in_backward_thread() {
  if (is_counted_thread || !python_calls.is_counting) return;
  is_counted_thread = true;
  const auto state = PyGILState_Ensure();
  PyEval_SetProfile(&see_python_call, nullptr);
  PyGILState_Release(state);
}

}  // namespace vramcast
