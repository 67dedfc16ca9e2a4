// A number that stands for the contents of a tensor that were not computed, as a healthy run would
// have them: losses and gradients are finite, and fall a little with every backward pass.
#pragma once
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>

namespace vramcast {

struct Typical {
  double number;
  bool derived = false;    // worked out from an operator's arguments
  bool sure = false;       // every element is this number, or a run would not be healthy
  bool is_share = false;   // the elements lie evenly between 0 and 1
  bool is_positive = false;
  bool is_overlap = false;  // of boxes with boxes: hardly any do, the others have 0
  double true_share = 0.5;  // of a mask: how many of its elements are true
  double low = 0, high = 0;  // the elements are clamped to these, where they differ

  // More is known than what a healthy run would have.
  bool has_spread() const { return is_share || is_positive || is_overlap || low < high; }
  bool is_like(const Typical& other) const {
    return sure == other.sure && (!sure || number == other.number) && is_share == other.is_share &&
           is_positive == other.is_positive && is_overlap == other.is_overlap &&
           low == other.low && high == other.high;
  }
};

// What new tensors contain, in the forward and in the backward pass. Python lets them fall.
struct Healthy {
  double value = 0.5, gradient = 0.5;
};
inline Healthy healthy;

// How many of the boxes that a network proposes overlap with one that is wanted, and whether that
// was asked. With new weights 0.1 to 1 % do (torchvision's detectors on an H200).
struct Overlaps {
  double share = 0.002;
  bool were_asked = false;
};
inline Overlaps overlaps;

inline Typical healthy_now() {
  return {torch::autograd::get_current_node() ? healthy.gradient : healthy.value};
}

// Outside of forward and backward passes: optimizers, line searches, evaluation.
inline bool is_update() {
  return !c10::GradMode::is_enabled() && !torch::autograd::get_current_node();
}

}  // namespace vramcast
