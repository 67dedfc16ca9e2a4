"""The memory of several GPUs side by side, predicted or measured."""

from collections.abc import Sequence

from vramcast.reporting import sections as page

MOST_RANKS = 32
COLOURS = {"allocated": "allocated", "cached unused": "cached_unused"}
RankBar = tuple[int, int, int]  # rank, bytes allocated, bytes reserved


def ranks_chart(
    ranks: Sequence[RankBar], capacity_bytes: int | None, origin: str
) -> page.Chart | None:
    """Bars of several ranks. None for a single one, which the meter shows."""
    if len(ranks) < 2:
        return None
    bars = [
        bar
        for rank, allocated, reserved in ranks[:MOST_RANKS]
        for bar in _bars(f"rank {rank}", allocated, max(allocated, reserved))
    ]
    limits = {bar.label: capacity_bytes for bar in bars}
    more = f" The first {MOST_RANKS} of {len(ranks)}." if len(ranks) > MOST_RANKS else ""
    return page.chart(
        "Ranks side by side",
        f"{origin.capitalize()}: the peak of each.{more}",
        page.bar_view(page.MEMORY_AXIS, bars, COLOURS, limits=limits),
    )


def _bars(label: str, allocated: int, reserved: int) -> list[page.Bar]:
    details = [f"{page.size(allocated)} allocated", f"{page.size(reserved)} reserved"]
    bars = [page.Bar("allocated", label, 0, allocated, details)]
    if reserved > allocated:
        bars.append(page.Bar("cached unused", label, allocated, reserved, details))
    return bars
