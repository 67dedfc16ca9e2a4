"""Stages of a pipeline do not wait for their neighbours.

Why: stages vote on whether all shapes are known beforehand; if not, they send each other shapes.
Only one rank is simulated, so the others are assumed to vote like it, and gradients come back in
the shapes that were sent.
Versions: up to 2.11 without a vote, from 2.15 on by an all_reduce.
"""

from typing import Any

import torch.distributed as dist

from vramcast.errors import WorkloadError
from vramcast.simulate.patching import Patcher

LIBRARY = "torch.distributed.pipelining.stage"


def apply(patcher: Patcher) -> None:
    from torch.distributed.pipelining import stage as stages

    kind = stages.PipelineStage
    make = kind.__init__

    def __init__(self: Any, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        patcher.gpu.pipeline_ranks.update(dist.get_process_group_ranks(self.group))
        patcher.gpu.note(
            "what a stage waits for the others of its pipeline is not in the step time"
        )

    patcher.put(kind, "__init__", __init__)
    sent: dict[int, Any] = {}  # by stage

    def shapes_before(stage: Any) -> Any:
        if not sent:
            raise WorkloadError(
                f"Stage {stage.stage_index} of the pipeline asks stage {stage.stage_index - 1}, "
                "which another GPU has, for the shapes of its output, and one GPU is simulated at "
                "a time.",
                "Give PipelineStage input_args and output_args, or ask for the first rank with "
                "--ranks 0.",
            )
        patcher.gpu.note(
            "what another GPU's stage of the pipeline sends is taken to have the shape of what "
            "this one's stages send"
        )
        return sent[max(sent)]

    if hasattr(kind, "_shape_inference"):
        _without_vote(patcher, kind, sent, shapes_before)
        return
    if hasattr(kind, "_warmup_forward_vote"):
        _vote_alone(patcher, kind, stages.InferenceMode)

    def send_meta(self: Any, meta: Any, to_stage: int) -> None:
        if to_stage > self.stage_index:
            sent[self.stage_index] = meta

    def receive_meta(self: Any, source: int) -> Any:
        if source < self.stage_index:
            return shapes_before(self)
        metas = stages._derive_grad_metas(self._stage_meta.outputs)
        return stages._StageBackwardMeta(backward_metas=metas)

    patcher.put(kind, "_recv_meta", receive_meta)
    patcher.put(kind, "_send_meta", send_meta)


def _vote_alone(patcher: Patcher, kind: Any, modes: Any) -> None:
    vote = kind._warmup_forward_vote

    def forward_vote(self: Any, has_backward: bool, received_acc: Any = None) -> Any:
        mine = vote(self, has_backward, received_acc)
        return mine.fill_(int(not modes.needs_dynamic(self._user_meta, has_backward)))

    patcher.put(kind, "_warmup_forward_vote", forward_vote)
    patcher.put(kind, "_warmup_backward_result", lambda self, received_result=None: received_result)


def _without_vote(patcher: Patcher, kind: Any, sent: dict[int, Any], shapes_before: Any) -> None:
    """Stages send each other the shapes as objects."""
    infer, asking = kind._shape_inference, list[Any]()
    receive_really = dist.recv_object_list

    def infer_and_remember(self: Any, *arguments: Any, **options: Any) -> Any:
        asking.append(self)
        try:
            to_pass_on = infer(self, *arguments, **options)
        finally:
            asking.pop()
        sent[self.stage_index] = self.get_outputs_meta()
        return to_pass_on

    def receive(objects: list[Any], *arguments: Any, **options: Any) -> Any:
        if not asking:  # a call by the program itself
            return receive_really(objects, *arguments, **options)
        objects[:] = [shapes_before(stage) for stage in asking]
        return None

    patcher.put(kind, "_shape_inference", infer_and_remember)
    patcher.put(dist, "recv_object_list", receive)
