"""What is said of a program of the list, and where programs look for the same data."""

from __future__ import annotations

from dataclasses import dataclass

from lists.commits import COMMITS

# Written for this list, in frameworks/: each uses one library as people do.
OWN = "frameworks"
EXAMPLES, HUGGING_FACE = "pytorch/examples", "huggingface/transformers"
LIGHTNING, VISION = "Lightning-AI/pytorch-lightning", "pytorch/vision"
# Where programs look for their data, from the top of the repository, and what of DATA that is.
DIGITS_OF_EXAMPLES = (("data/MNIST", "MNIST"),)
ENCYCLOPEDIA = (("data/enwik8.gz", "enwik8.gz"),)


@dataclass(frozen=True)
class Listed:
    name: str
    repository: str
    folder: str  # in the repository, where the line is started
    line: str  # DATA is the folder that data.py has filled
    places: tuple[tuple[str, str], ...] = ()
    beside: tuple[str, ...] = ()  # other folders of the repository that it needs

    @property
    def commit(self) -> str:
        return COMMITS.get(self.repository, "")
