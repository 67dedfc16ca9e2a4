"""What is alive at the peak: a tree by module and by line, and bars."""

from collections.abc import Callable, Iterable, Sequence

from vramcast.records.prediction import AliveGroup, AlivePlace, Prediction
from vramcast.reporting import sections as page
from vramcast.reporting.tensors import colour_of, described, folded_modules, operator_of, words

NO_MODULE, NO_LINE = "outside of modules", "line not known"
# A part narrower than this share of the whole cannot be seen or pointed at.
SMALLEST_SHARE = 2e-4
MOST_BARS = 24
Path = tuple[str, ...]


def alive_tree(p: Prediction) -> page.Tree | None:
    if not p.alive_places:
        return None
    return page.Tree(
        title=f"What holds the memory at the peak ({p.peak_phase})",
        caption="Predicted. The width of a part is its memory. Choose a part to see it alone, and "
        "the top one to go back. * stands for a number: modules that differ in it are together.",
        trees=[
            ("by module", _root(p.alive_places, _modules)),
            ("by source line", _root(p.alive_places, _lines)),
        ],
    )


def _root(places: Sequence[AlivePlace], path_of: Callable[[AlivePlace], Path]) -> page.Node:
    total = max(1, sum(place.num_bytes for place in places))
    return _node("all", [(path_of(place), place) for place in places], 0, total)


def _modules(place: AlivePlace) -> Path:
    """The parts of a module's name. `blocks.*` is one part, not two."""
    parts: list[str] = []
    for name in place.module.split("."):
        if name == "*" and parts:
            parts[-1] += ".*"
        else:
            parts.append(name)
    return tuple(parts) if place.module else (NO_MODULE,)


def _lines(place: AlivePlace) -> Path:
    file, found, line = place.source.rpartition(":")
    return (file, f"line {line}") if found else (NO_LINE,)


def _node(name: str, held: Sequence[tuple[Path, AlivePlace]], depth: int, total: int) -> page.Node:
    places = [place for _, place in held]
    num_bytes = sum(place.num_bytes for place in places)
    deeper: dict[str, list[tuple[Path, AlivePlace]]] = {}
    for path, place in held:
        if len(path) > depth:
            deeper.setdefault(path[depth], []).append((path, place))
    parts = [_node(part, inside, depth + 1, total) for part, inside in deeper.items()]
    parts += _categories([place for path, place in held if len(path) == depth])
    return page.Node(
        name,
        num_bytes,
        [*_size(places, num_bytes, total), *_alike(name, places, num_bytes)],
        note=_times(name, places, num_bytes),
        parts=_largest_first(part for part in parts if part.num_bytes >= SMALLEST_SHARE * total),
    )


def _categories(places: Sequence[AlivePlace]) -> list[page.Node]:
    by_category: dict[str, list[AlivePlace]] = {}
    for place in places:
        by_category.setdefault(place.category, []).append(place)
    return [
        page.Node(
            words(category),
            sum(place.num_bytes for place in inside),
            [page.count(sum(place.num_tensors for place in inside), "tensor"), *_where(inside)],
            colour_of(category),
        )
        for category, inside in by_category.items()
    ]


def _largest_first(nodes: Iterable[page.Node]) -> list[page.Node]:
    return sorted(nodes, key=lambda node: -node.num_bytes)


def _size(places: Sequence[AlivePlace], num_bytes: int, total: int) -> list[str]:
    tensors = page.count(sum(place.num_tensors for place in places), "tensor")
    return [f"{page.share(num_bytes / total)} of what is alive, in {tensors}"]


def _num_alike(name: str, places: Sequence[AlivePlace]) -> int:
    return max((place.num_modules for place in places), default=1) if name.endswith("*") else 1


def _alike(name: str, places: Sequence[AlivePlace], num_bytes: int) -> list[str]:
    number = _num_alike(name, places)
    each = page.size(round(num_bytes / max(1, number)))
    return [f"{number} alike, each about {each}"] if number > 1 else []


def _times(name: str, places: Sequence[AlivePlace], num_bytes: int) -> str:
    number = _num_alike(name, places)
    return f" = {number} × {page.size(round(num_bytes / number))}" if number > 1 else ""


def _where(places: Sequence[AlivePlace]) -> list[str]:
    """The largest source lines, or modules."""
    ranked = sorted(places, key=lambda place: -place.num_bytes)[:3]
    return [
        f"{page.size(place.num_bytes)} {place.source or place.module or NO_LINE}"
        for place in ranked
    ]


def _by_module(groups: Sequence[AliveGroup]) -> list[tuple[str, str, int, list[str]]]:
    """Memory by category and module, similar modules together, largest first, in the form that
    `_bars` takes."""
    names = folded_modules(group.module for group in groups)
    alike: dict[tuple[str, str], list[AliveGroup]] = {}
    for group in groups:
        alike.setdefault((group.category, names[group.module]), []).append(group)
    bars = []
    for (category, name), inside in alike.items():
        total = sum(group.num_bytes for group in inside)
        tensors = page.count(sum(group.num_tensors for group in inside), "tensor")
        each = f"{len(inside)} alike, each about {page.size(round(total / len(inside)))}"
        details = [page.size(total), *([each] if len(inside) > 1 else []), tensors]
        bars.append((category, f"{name or 'no module'} · {words(category)}", total, details))
    return sorted(bars, key=lambda bar: -bar[2])


def alive_bars(p: Prediction) -> page.Chart:
    modules = _by_module(p.alive_at_peak)
    num_groups = len(modules)
    more = f" By module: the {MOST_BARS} largest groups of {num_groups}."
    return page.chart(
        f"Alive at the peak ({p.peak_phase})",
        f"Predicted, largest first.{more if num_groups > MOST_BARS else ''}",
        _bars(
            "by category",
            (
                (name, words(name), num_bytes, [f"{words(name)}: {page.size(num_bytes)}"])
                for name, num_bytes in sorted(categories_of(p), key=lambda item: -item[1])
            ),
        ),
        _bars(
            "by module",
            modules[:MOST_BARS],
        ),
        _bars(
            "by tensor",
            (
                (t.category, f"{i}. {t.name or operator_of(t)}", t.num_bytes, described(t))
                for i, t in enumerate(p.largest_tensors, 1)
            ),
        ),
    )


def _bars(name: str, bars: Iterable[tuple[str, str, int, list[str]]]) -> page.View:
    """A view of bars, from category, label, bytes and details. Each category is a layer, which
    gives a legend."""
    colours, drawn = {}, []
    for category, label, num_bytes, details in bars:
        colours[words(category)] = colour_of(category)
        drawn.append(page.Bar(words(category), label, 0, num_bytes, details))
    return page.bar_view(page.MEMORY_AXIS, drawn, colours, name)


def categories_of(p: Prediction) -> list[tuple[str, int]]:
    return [(name, num_bytes) for name, num_bytes in p.breakdown_bytes.items() if num_bytes > 0]
