"""From a known model to a configuration of its library."""

from __future__ import annotations

from typing import Any

from vramcast_zoo.known.catalogue import KnownModel
from vramcast_zoo.known.tasks import BY_TYPE, TASKS
from vramcast_zoo.refusal import Refused, need

# Models that learn a vector for every position take no longer sequences; these keep some for
# other uses.
LEARNED_POSITIONS = {
    "bert": 0,
    "roberta": 2,
    "xlm-roberta": 2,
    "camembert": 2,
    "distilbert": 0,
    "electra": 0,
    "albert": 0,
    "mpnet": 2,
    "gpt2": 0,
    "gpt_neo": 0,
    "opt": 0,
    "bart": 0,
    "biogpt": 0,
    "clip_text_model": 0,
    "siglip_text_model": 0,
    "whisper": 0,
}


def configuration(model: KnownModel) -> Any:
    """Of transformers. Nothing is fetched, and no code of a folder is run."""
    transformers = need("transformers", f"hf:{model.name}")
    settings = {key: value for key, value in model.settings.items() if key != "auto_map"}
    if settings.get("model_type") not in transformers.CONFIG_MAPPING:
        raise Refused(
            f"transformers {transformers.__version__} has no model of type "
            f"{settings.get('model_type')!r}, which hf:{model.name} is.",
            "Install a newer transformers, or write a function that builds it: docs/your-model.md.",
        )
    kind = transformers.CONFIG_MAPPING[settings["model_type"]]
    try:
        return kind.from_dict({**settings, "quantization_config": None})
    except Exception as error:  # whatever a configuration of another version may hold
        raise Refused(
            f"transformers {transformers.__version__} does not take the configuration of "
            f"hf:{model.name}: {type(error).__name__}: {error}.",
            f"It comes from {model.source}.",
        ) from None


def tasks_of(config: Any) -> list[str]:
    """What transformers has a model of this configuration for."""
    import transformers

    found = [
        name
        for name, task in TASKS.items()
        if task.maker not in ("", "AutoModel")
        and type(config) in getattr(transformers, task.maker)._model_mapping
    ]
    is_contrastive = BY_TYPE.get(config.model_type) == "contrastive"
    return [*found, "contrastive"] if is_contrastive else found


def model_class(model: KnownModel, config: Any, task: str) -> Any:
    """The class of transformers that is trained for the task."""
    import transformers

    having = tasks_of(config)
    if task not in having:
        raise Refused(
            f"hf:{model.name} is of type {model.type}, which has no model for task={task}.",
            f"It has {', '.join(having) or 'none that vramcast knows'}.",
        )
    return getattr(transformers, TASKS[task].maker)._model_mapping[type(config)]


def longest(config: Any) -> int | None:
    """The longest sequence that a model takes; None where nothing stops it."""
    text = config.get_text_config()
    kept = LEARNED_POSITIONS.get(text.model_type)
    if kept is None:
        return None
    # Whisper names them otherwise
    return int(getattr(text, "max_target_positions", None) or text.max_position_embeddings) - kept
