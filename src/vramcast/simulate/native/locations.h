// Where in the user's program an operator runs, as the number that vramcast/simulate/locations.py
// gives to a line and the module that is running. It is looked for at every autograd node: in
// Python that would take longer than the operator.
#pragma once
#include <tuple>
#include <unordered_map>

#include "python_calls.h"

extern "C" {
_frame* PyEval_GetFrame();
_frame* PyFrame_GetBack(_frame*);
int PyFrame_GetLineNumber(_frame*);
_object* PyObject_CallNoArgs(_object*);
_object* PyWeakref_NewRef(_object*, _object*);
_object* PyList_GetItem(_object*, ptrdiff_t);
ptrdiff_t PyList_Size(_object*);
void Py_IncRef(_object*);
}

namespace vramcast {

// Every function but here() is called with Python's global lock held.
struct Locations {
  static constexpr int max_frames = 80;  // as in locations.py
  int64_t (*number_new)(_object* code, int32_t line) = nullptr;
  int32_t (*is_of_user)(_object* code) = nullptr;

  // The list of the modules that are running in this thread; it is kept alive.
  static _object*& running() {
    static thread_local _object* list = nullptr;
    return list;
  }

  int64_t here() {
    const auto state = PyGILState_Ensure();
    const auto number = look();
    PyGILState_Release(state);
    return number;
  }

  void forget() {
    for (const auto& [code, is_users] : codes_) Py_DecRef(code);
    for (const auto& [line, known] : known_) drop(known.module);
    codes_.clear();
    known_.clear();
  }

 private:
  using Line = std::tuple<_object*, int, _object*>;  // code, line, module
  struct Hash {
    size_t operator()(const Line& line) const {
      const auto& [code, number, module] = line;
      return std::hash<void*>()(code) * 31 + std::hash<void*>()(module) + number * 0x9E3779B9u;
    }
  };
  struct Known {
    int64_t number;
    _object* module;  // a weak reference
  };

  static void drop(_object* object) {
    if (object) Py_DecRef(object);
  }

  int64_t look() {
    auto* frame = number_new ? PyEval_GetFrame() : nullptr;
    if (frame) Py_IncRef(reinterpret_cast<_object*>(frame));
    for (int i = 0; frame && i < max_frames; ++i) {
      auto* code = PyFrame_GetCode(frame);
      const bool found = is_users(code);
      const auto number = found ? number_of({code, PyFrame_GetLineNumber(frame), module()}) : -1;
      Py_DecRef(code);
      auto* back = found ? nullptr : PyFrame_GetBack(frame);
      Py_DecRef(reinterpret_cast<_object*>(frame));
      if (found) return number;
      frame = back;
    }
    drop(reinterpret_cast<_object*>(frame));
    return -1;
  }

  bool is_users(_object* code) {
    const auto found = codes_.find(code);
    if (found != codes_.end()) return found->second;
    Py_IncRef(code);  // no other one will have its address
    return codes_[code] = is_of_user(code);
  }

  static _object* module() {
    const auto count = running() ? PyList_Size(running()) : 0;
    return count ? PyList_GetItem(running(), count - 1) : nullptr;
  }

  int64_t number_of(const Line& line) {
    const auto& [code, number, module] = line;
    const auto found = known_.find(line);
    if (found != known_.end() && is(found->second.module, module)) return found->second.number;
    const Known known{number_new(code, number),
                      module ? PyWeakref_NewRef(module, nullptr) : nullptr};
    if (found != known_.end()) drop(found->second.module);
    known_[line] = known;
    return known.number;
  }

  // A new module may have the place of one that is gone.
  static bool is(_object* reference, _object* module) {
    if (!module) return true;
    auto* alive = reference ? PyObject_CallNoArgs(reference) : nullptr;
    drop(alive);
    return alive == module;
  }

  std::unordered_map<_object*, bool> codes_;
  std::unordered_map<Line, Known, Hash> known_;
};
static Locations locations;
static int64_t locate_here() { return locations.here(); }

}  // namespace vramcast
