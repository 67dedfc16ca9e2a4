"""Heights as blocks, and the colours of kinds of memory: what everything shown in a terminal draws with."""

from __future__ import annotations

BLOCKS = "▁▂▃▄▅▆▇█"
FRAME = 6  # of the line with a panel's title: a corner, a dash and a space on both sides
COLOURS = {
    "parameters": "blue",
    "buffers": "bright_blue",
    "gradients": "magenta",
    "optimizer_state": "yellow",
    "activations": "green",
    "workspaces": "cyan",
    "temporaries": "red",
    "cached_unused": "bright_black",
}


def block(share: float, blocks: str = BLOCKS) -> str:
    """For a share of the height; what is beyond the ends is drawn at the end."""
    return blocks[round((len(blocks) - 1) * min(1.0, max(0.0, share)))]
