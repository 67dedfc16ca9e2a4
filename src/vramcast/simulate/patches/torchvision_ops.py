"""torchvision's operators have the memory of their CUDA kernels.

Why: how many boxes non-maximum suppression keeps depends on contents, so torchvision's own shapes
are of no use. Beside a torch without CUDA the library of torchvision's usual wheel cannot be
loaded, and then torchvision cannot be imported: its operators are declared here, as nothing of them
is computed anyway.
Versions: torchvision 0.25 to 0.29.
"""

from __future__ import annotations

import sys

import torch

from vramcast.simulate import kernels
from vramcast.simulate.patching import Patcher

LIBRARY = "torchvision.extension"

_POOLED = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_ROI = f"Tensor input, Tensor rois, {_POOLED}"
_SIZES = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_MAPPED = f"Tensor grad, Tensor rois, Tensor channel_mapping, {_POOLED}"
_DEFORM = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask"
)
SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    f"roi_align({_ROI}, int sampling_ratio, bool aligned) -> Tensor",
    f"qroi_align({_ROI}, int sampling_ratio, bool aligned) -> Tensor",
    f"_roi_align_backward(Tensor grad, Tensor rois, {_POOLED}, {_SIZES}, int sampling_ratio, "
    "bool aligned) -> Tensor",
    f"ps_roi_align({_ROI}, int sampling_ratio) -> (Tensor, Tensor)",
    f"_ps_roi_align_backward({_MAPPED}, int sampling_ratio, {_SIZES}) -> Tensor",
    f"roi_pool({_ROI}) -> (Tensor, Tensor)",
    f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_POOLED}, {_SIZES}) -> Tensor",
    f"ps_roi_pool({_ROI}) -> (Tensor, Tensor)",
    f"_ps_roi_pool_backward({_MAPPED}, {_SIZES}) -> Tensor",
    f"deform_conv2d({_DEFORM}) -> Tensor",
    f"_deform_conv2d_backward(Tensor grad, {_DEFORM}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
_declared: list[torch.library.Library] = []  # they stay as long as these objects


def apply(patcher: Patcher) -> None:
    if not hasattr(torch.ops.torchvision, "nms"):
        library = torch.library.Library("torchvision", "DEF")
        for schema in SCHEMAS:
            library.define(schema)
        _declared.append(library)
    if _declared:
        extension = sys.modules[LIBRARY]
        patcher.put(extension, "_has_ops", lambda: True)
        patcher.put(extension, "_check_cuda_version", lambda: -1)
    kernels.install_for("torchvision", patcher.gpu.device.library)
