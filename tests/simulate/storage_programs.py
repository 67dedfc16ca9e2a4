"""What programs do with storages and the operators of a GPU: run by test_device_programs.py.

python tests/simulate/storage_programs.py
"""

from __future__ import annotations

from program_device import KIB, SESSION, live_bytes, run_programs, taken_by

# isort: split
# the device is loaded before torch
import copy
import io
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from vramcast.hardware.calibration.table import minor_version
from vramcast.simulate.workspaces import GIVEN_BACK_SINCE

# storages


def masks_of_ones_are_ones_at_the_size_of_features_however_large() -> None:
    mask = torch.ones(2, 4, 2900, 2900, dtype=torch.long, device="cuda")
    smaller = nn.functional.interpolate(mask[:, :1].float(), size=(20, 20))
    assert smaller.bool().flatten(1).all()
    padded = torch.ones(2, 1, 64, 64, device="cuda")
    padded[1, :, :, 32:] = 0
    assert not nn.functional.interpolate(padded, size=(20, 20)).bool().all()


def a_sparse_matrix_of_the_host_is_computed_however_large_it_would_be_dense() -> None:
    matrix = torch.eye(600).to_sparse()
    assert matrix._nnz() == 600
    assert torch.equal(matrix @ torch.full((600, 2), 3.0), torch.full((600, 2), 3.0))


def what_is_made_of_a_list_is_like_its_tensors() -> None:
    """Also where torch's Meta kernels are not asked, which see every tensor of thousands."""
    half, wide = (torch.ones(4, 6, device="cuda", dtype=t) for t in (torch.half, torch.double))
    given = [half, wide, torch.ones(2, 8, 3, 3, device="cuda"), torch.ones((), device="cuda")]
    others = [[one.t() if one.dim() == 2 else one for one in given], [given[2][:, ::2], half[:0]]]
    last = [given[2].to(memory_format=torch.channels_last), given[0].expand(3, 4, 6)]
    for tensors in (given, *others, last, [half.int(), half.bool()]):
        for make, one in ((torch._foreach_sqrt, torch.sqrt), (torch._foreach_exp, torch.exp)):
            for found, expected in zip(make(tensors), map(one, tensors), strict=True):
                assert found.dtype is expected.dtype
                assert (found.shape, found.stride()) == (expected.shape, expected.stride())
    assert torch._foreach_mul([given[2]], 2j)[0].is_complex()
    made = torch._foreach_addcdiv(given, given, given, [1.0] * 4)
    assert [one.dtype for one in made] == [one.dtype for one in given]
    assert torch._foreach_norm(given)[0].shape == ()
    assert taken_by(lambda: torch._foreach_add(given[:2], given[:2])) == [48, 192]


def shapes_that_are_known_without_torchs_python_are_those_it_says() -> None:
    """Among them strides; a norm's are compared in torch's own kernels for the host."""
    from torch.nn import functional as F

    x, picture = torch.rand(6, 8), torch.rand(2, 6, 9, 7)
    last, labels = picture.to(memory_format=torch.channels_last), torch.zeros(2, 9, 7).long()
    weight = nn.utils.weight_norm(nn.Conv1d(4, 6, 3)).weight_v.detach()
    cases = [
        (F.binary_cross_entropy, x, x.round()),
        (F.glu, x.t()),
        (F.prelu, picture, torch.rand(6)),
        (torch._weight_norm, weight, torch.rand(6, 1, 1)),
        (F.cross_entropy, picture, labels),
        (lambda x: F.cross_entropy(x, labels.to(x.device), reduction="none"), picture),
        (F.adaptive_avg_pool2d, picture, (3, 2)),
        (F.adaptive_avg_pool2d, last, (3, 2)),
        (F.adaptive_avg_pool2d, picture[0], 4),
        (torch.cdist, torch.rand(3, 1, 30, 8), torch.rand(4, 26, 8)),
        (torch.searchsorted, torch.arange(8.0), x),
        (torch.bucketize, x.t(), torch.arange(8.0)),
        (lambda x: torch.nan_to_num(x[:, ::2], 1.0), last),
        *(
            (lambda x, name=name: getattr(x.detach()[:, ::2], name)(), last)
            for name in ("abs_", "nan_to_num_", "logical_not_")
        ),
        (lambda x: x.unfold(0, 3, 2), x),
        (lambda x: torch.stack(torch.var_mean(x, (0, 2))), picture),
        (lambda x: torch.stack(torch.std_mean(x, 1, keepdim=True)), last),
        (lambda x: F.batch_norm(x, None, None, training=True), last),
        (lambda x: F.group_norm(x, 3), picture),
        (lambda x: F.conv_transpose2d(x, torch.rand(6, 5, 3, 2, device=x.device), None, 2), last),
        (lambda x: F.conv2d(x, torch.rand(4, 3, 3, 2, device=x.device), None, 2, 1, 2, 2), last),
    ]
    for function, *given in cases:
        shapes = []
        for device in ("cuda", "cpu"):
            arguments = [_on(device, one) for one in given]
            arguments[0].requires_grad_()
            made = function(*arguments)
            if made.requires_grad:
                made.sum().backward()
            found = [one for one in (made, arguments[0].grad) if one is not None]
            shapes.append([(one.dtype, one.shape, one.stride()) for one in found])
        assert shapes[0] == shapes[1], (function, *shapes)


def results_have_the_strides_that_torchs_kernels_give_them() -> None:
    """Also of pictures of one pixel, which are contiguous and have channels last at once, and where
    torch's Meta kernels in Python are loaded, whose strides are others."""
    from torch.nn import functional as F

    from vramcast.simulate import meta_kernels

    meta_kernels.load()
    shape, backward = (64, 96, 30, 10), torch.ops.aten
    pictures = [torch.zeros(shape), torch.zeros(64, 10, 96, 30).permute(0, 2, 3, 1)]
    pictures.append(torch.zeros(96, 64, 30, 10).transpose(0, 1))
    pixels = torch.zeros(640, 96).as_strided((640, 96, 1, 1), (96, 1, 96, 96))
    of_one = (
        torch.relu,
        F.hardswish,
        lambda x: F.layer_norm(x, x.shape[1:]),
        lambda x: x.cumsum(1),
    )
    of_two = (
        lambda x, y: backward.mse_loss_backward(x, x, y, 1),
        lambda x, y: backward.hardtanh_backward(x, y, 0, 1),
        lambda x, y: backward.hardswish_backward(x, y),
        lambda x, y: backward.glu_backward(x.narrow(1, 0, x.shape[1] // 2), y, 1),
        lambda x, y: torch.where(x > y, x, y),
    )
    for x in (*pictures, pixels):
        for function in of_one:
            assert function(_alike(x)).stride() == function(x).stride(), (function, x.stride())
        for y in [one for one in (*pictures, pixels) if one.shape == x.shape]:
            for function in of_two:
                found, expected = function(_alike(x), _alike(y)).stride(), function(x, y).stride()
                assert found == expected, (function, x.stride(), y.stride())


def it_is_known_where_the_program_first_uses_a_workspace_that_a_compilation_took() -> None:
    used_after, x = SESSION.device.library.vramcast_used_after, torch.ones(8, 8, device="cuda")
    first = SESSION.device.num("allocations") + 1
    with SESSION.gpu.compiling():
        x @ x
        x @ x
    last = SESSION.device.num("allocations")
    workspaces = [n for n in range(first, last + 1) if used_after(n) >= 0]
    if minor_version(torch.__version__) >= GIVEN_BACK_SINCE:
        assert not workspaces, "each product gives back its own"
        return
    (workspace,) = workspaces
    assert used_after(workspace) == 0
    kept = torch.ones(1, device="cuda") + 1, x @ x, x @ x
    assert used_after(workspace) == last + len(kept)


def _alike(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(x.shape, x.stride(), device="cuda")


def _on(device: str, given: object) -> object:
    return given.detach().to(device) if isinstance(given, torch.Tensor) else given


def most_programs_do_without_torchs_meta_kernels_in_python() -> None:
    """Nor its compiler, which torchvision, einx and deterministic algorithms import otherwise."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from program_device import SESSION
import torch
from torch import nn
with SESSION.recording():
    from torch._dynamo.utils import is_compile_supported
    torch.use_deterministic_algorithms(True)
    assert torch.compiler.allow_in_graph(print) is print
    def mine(): ...
    assert torch.compiler.allow_in_graph([mine]) == [mine]
    x = torch.rand(2, 6, 9, 7, device="cuda")
    net = nn.Sequential(nn.Conv2d(6, 4, 3), nn.BatchNorm2d(4), nn.GroupNorm(2, 4)).cuda()
    loss = nn.functional.cross_entropy(net(x), torch.zeros(2, 7, 5, device="cuda").long())
    loss.backward()
    fused = [torch.optim.SGD, torch.optim.AdamW]
    fused += [torch.optim.Adagrad] * (torch.__version__ >= "2.13")  # 2.11 has none for CUDA
    for make in fused:
        make(net.parameters(), fused=True).step()
    names = "torch._meta_registrations", "torch._inductor", "sympy"
    assert not [name for name in names if name in sys.modules]
    assert is_compile_supported("cpu") is True
    assert torch._dynamo.utils.is_compile_supported is not is_compile_supported
    assert id(mine) in torch._dynamo.trace_rules._allowed_callable_ids()
    import torch._inductor.config
    assert torch._inductor.config.deterministic
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def distinct_rows_are_counted_in_the_order_in_which_they_come() -> None:
    rows = np.array([[3, 1], [1, 3], [3, 1], [0, 0], [1, 3]], np.uint64)
    first, place = SESSION.device.distinct(rows)
    assert first == [0, 1, 3]
    assert place.tolist() == [0, 1, 0, 2, 1]
    assert [len(part) for part in SESSION.device.distinct(rows[:0])] == [0, 0]


def products_of_half_precision_add_into_single_precision() -> None:
    """TRL's losses do; torch 2.11 has the wrong Meta kernel for it."""
    left = torch.zeros(3, 8, 4, device="cuda", dtype=torch.bfloat16)
    right, sums = left.transpose(1, 2).contiguous(), torch.zeros(3, 8, 8, device="cuda")
    into = {"out_dtype": torch.float32}
    assert torch.addmm(sums[0], left[0], right[0], out=sums[0], **into).dtype is torch.float32
    assert torch.addmm(sums[0], left[0], right[0], **into).shape == (8, 8)
    assert torch.baddbmm(sums, left, right, **into).shape == (3, 8, 8)
    torch.baddbmm(sums, left, right, out=sums, **into)
    torch.bmm(left, right, out=sums, **into)


def the_binary_cross_entropy_keeps_the_buffer_of_its_losses() -> None:
    """As in a trace of an H200."""
    x = torch.ones(KIB, device="cuda")
    assert taken_by(lambda: nn.functional.binary_cross_entropy(x, x)) == [4 * KIB, 4, -4]


def the_gradient_of_an_upsampled_part_has_its_channels_where_the_whole_has_them() -> None:
    whole = torch.randn(2, 16, 8, 8, device="cuda").to(memory_format=torch.channels_last)
    part, backward = whole[:, :8], torch.ops.aten.upsample_bilinear2d_backward
    half = backward(part, [8, 8], [2, 8, 4, 4], False)
    assert half.is_contiguous(memory_format=torch.channels_last)
    assert taken_by(lambda: backward(part, [8, 8], [2, 8, 4, 4], False)) == [KIB, 4 * KIB, -4 * KIB]
    same = taken_by(lambda: backward(part, [8, 8], [2, 8, 8, 8], False))
    assert same == [4 * KIB], "nothing changes its size: it is copied"


def a_layer_norm_makes_its_gradients_before_it_copies_what_is_not_dense() -> None:
    x, grad = torch.randn(64, 256, device="cuda"), torch.randn(256, 64, device="cuda").t()
    weight, moments = torch.ones(256, device="cuda"), torch.ones(64, 1, device="cuda")
    backward = torch.ops.aten.native_layer_norm_backward
    taken = taken_by(lambda: backward(grad, x, [256], moments, moments, weight, weight, [True] * 3))
    assert taken[:4] == [64 * KIB, KIB, KIB, 64 * KIB]


def a_deep_copy_takes_the_whole_storage_and_views_stay_views() -> None:
    x = torch.zeros(KIB, device="cuda")
    scalar = [4, -4]  # torch makes a tensor of no dimensions, and gives it the copied storage
    assert taken_by(lambda: copy.deepcopy(x)) == [4 * KIB, *scalar]
    whole, part = copy.deepcopy((x, x[8:16]))
    assert part.data_ptr() == whole.data_ptr() + 8 * 4


def tied_weights_stay_tied_in_a_deep_copy() -> None:
    embedding, head = nn.Embedding(64, 16), nn.Linear(16, 64, bias=False)
    head.weight = embedding.weight
    model = nn.ModuleList([embedding, head, nn.BatchNorm1d(16)]).cuda()
    before = live_bytes()
    copied = copy.deepcopy(model)
    assert copied[0].weight is copied[1].weight and copied[2].running_mean.is_cuda
    assert live_bytes() == 2 * before


def a_number_expanded_to_a_trillion_elements_is_not_gone_through() -> None:
    one = torch.ones((), device="cuda")
    began = time.process_time()
    few, many = one.expand(1000).sum(), one.expand(2**40).sum()
    assert time.process_time() - began < 30, "gone through, it would take minutes"
    assert few.item() == 1000 and many.item() > 0


def a_checkpoint_can_be_loaded_where_its_reader_wants_it() -> None:
    model = nn.Linear(256, 256).cuda()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "step": torch.tensor(3, device="cuda")}, file)
    cuda = torch.device("cuda", 0)
    for where, expected in (
        ("cuda", cuda),
        (cuda, cuda),
        ("cpu", torch.device("cpu")),
        ({"cuda:0": "cpu"}, torch.device("cpu")),
        (lambda storage, _: storage.cuda(), cuda),
        (None, cuda),
    ):
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        assert loaded["model"]["weight"].device == expected
        assert loaded["step"].item() == 3
        model.load_state_dict(loaded["model"])


def a_checkpoint_takes_no_place_on_the_disk() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.pt"
        torch.save(nn.Linear(1 << 10, 1 << 10).cuda(), file)
        assert file.stat().st_size > 4 << 20 and file.stat().st_blocks * 512 < 1 << 20
        assert torch.load(file, weights_only=False).weight.is_cuda


def storages_can_be_made_filled_copied_and_resized() -> None:
    storage = torch.UntypedStorage(KIB, device="cuda")
    copied = storage.clone().fill_(3)
    assert copied.device == torch.device("cuda", 0) and copied.cpu()[5] == 3
    # the new memory is taken before the old is given back
    assert taken_by(lambda: copied.resize_(2 * KIB)) == [2 * KIB, -KIB]
    assert copied.nbytes() == 2 * KIB and copied[5] == 3
    assert taken_by(lambda: copied.resize_(0)) == [-2 * KIB]
    x = torch.empty(0, device="cuda").set_(storage, 4, (8, 2), (2, 1))
    assert x.data_ptr() == storage.data_ptr() + 4 * 4 and x.shape == (8, 2)


def safetensors_are_loaded_onto_the_gpu() -> None:
    from safetensors.torch import load_file, save_file

    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "model.safetensors")
        save_file(nn.Linear(16, 16).cuda().state_dict(), file)
        assert taken_by(lambda: load_file(file, device="cuda")) == [64, 4 * 256]


def tensor_types_of_the_gpu_make_tensors_there() -> None:
    x = torch.cuda.FloatTensor(2, 3)
    assert (
        x.is_cuda and isinstance(x, torch.cuda.FloatTensor) and x.type() == "torch.cuda.FloatTensor"
    )
    assert torch.ones(3).type(torch.cuda.HalfTensor).dtype == torch.float16
    assert torch.cuda.LongTensor([1, 2]).tolist() == [1, 2]


def torch_tensor_is_of_the_default_type() -> None:
    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    assert torch.Tensor([1.0]).is_cuda and torch.Tensor(2, 3).is_cuda and torch.zeros(2).is_cuda
    assert nn.Parameter(torch.Tensor(2)).is_cuda
    torch.set_default_tensor_type("torch.FloatTensor")
    assert not torch.Tensor([1.0]).is_cuda and not torch.zeros(2).is_cuda


def questions_that_programs_ask_in_passing_are_answered() -> None:
    free_bytes, total_bytes = torch.cuda.cudart().cudaMemGetInfo(0)
    assert 0 < free_bytes <= total_bytes
    with torch.cuda.nvtx.range("step"):
        assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated()
    assert not torch.cuda.can_device_access_peer(0, 0)
    torch.cuda.memory._record_memory_history()
    address = torch.cuda.caching_allocator_alloc(KIB)
    assert taken_by(lambda: torch.cuda.caching_allocator_delete(address)) == [-KIB]


# inference mode


def inference_mode_makes_inference_tensors_and_ordinary_views_of_ordinary_tensors() -> None:
    model = nn.Linear(16, 16).cuda()
    with torch.inference_mode():
        y = model(torch.zeros(4, 16, device="cuda"))
        assert y.is_inference() and y.view(-1)[3:7].is_inference()
        view = model.weight.view(-1)
        assert not view.is_inference()
        view.add_(1)
        assert model.weight._version == view._version > 0
    assert not y.clone().is_inference()
    try:
        y.add_(1)
    except RuntimeError as error:
        assert "Inplace update to inference tensor" in str(error)
    else:
        raise AssertionError("an inference tensor was changed outside inference mode")


def evaluation_in_inference_mode_between_training_steps_leaves_nothing() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU()).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    after = []
    for _ in range(3):
        model(torch.zeros(4, 16, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.inference_mode(), torch.no_grad():
            model(torch.zeros(64, 16, device="cuda")).mean().item()
            with torch.inference_mode(False), torch.enable_grad():
                model(torch.zeros(4, 16, device="cuda")).sum().backward()
                optimizer.zero_grad()
        after.append(live_bytes())
    assert after[1] == after[2]


# torch itself


def torch_describes_its_build_and_has_the_parts_that_no_one_imported() -> None:
    assert "CUDA" in torch.__config__.show()
    assert torch.broadcast_shapes((2, 1), (1, 3)) == (2, 3)


def a_product_in_8_bits_into_a_given_tensor_is_not_computed_on_the_host() -> None:
    left, right = (torch.empty(64, 64, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    out, one = (
        torch.empty(64, 64, device="cuda", dtype=torch.bfloat16),
        torch.ones((), device="cuda"),
    )
    torch._scaled_mm(left, right.t(), one, one, out_dtype=torch.bfloat16, out=out)
    assert torch._C._dispatch_has_kernel_for_dispatch_key("aten::_scaled_mm.out", "Meta")


def integers_of_a_large_graph_are_computed() -> None:
    links = torch.arange(1 << 20, device="cuda").view(2, -1)
    loops = links.clone()
    loops[1, :5] = loops[0, :5]
    assert loops[:, loops[0] != loops[1]].shape == (2, (1 << 19) - 5)


# operators


def angle_and_clamp_make_a_copy_before_their_result() -> None:
    """As traces of gateloop and gpt_vae on an H200 show."""
    turned = torch.zeros(4096, dtype=torch.complex64, device="cuda")
    counted = torch.ones(512, dtype=torch.long, device="cuda")
    assert taken_by(turned.angle)[:3] == [32768, 16384, -32768]
    assert taken_by(lambda: counted.clamp(min=1e-5))[:3] == [2048, 2048, -2048]
    assert taken_by(lambda: counted.clamp(min=1))[0] == 4096


def batch_norm_of_volumes_with_channels_last_sums_what_it_has_converted() -> None:
    """As an H200 did in the step x3d-channels_last-amp-B4 of the suite wide."""
    volumes = torch.empty(4, 48, 8, 56, 56, device="cuda", dtype=torch.bfloat16)
    volumes = volumes.to(memory_format=torch.channels_last_3d)
    norm = torch.nn.BatchNorm3d(48).cuda()
    events = taken_by(lambda: norm(volumes))
    one = volumes.nbytes
    assert sorted(e for e in events if e > 1024) == [one, one, 2 * one]


def means_of_whole_numbers_are_whole_numbers() -> None:
    places, sums = torch.zeros(4, dtype=torch.long, device="cuda"), torch.arange(4, device="cuda")
    ones = torch.ones_like(sums)
    assert sums.scatter_reduce(0, places, ones, "mean").dtype == torch.long
    assert sums.index_reduce(0, places, ones, "mean").dtype == torch.long


if __name__ == "__main__":
    run_programs()
