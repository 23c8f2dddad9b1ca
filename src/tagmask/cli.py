"""The command line: parse, call, print. Each command imports what it needs when it runs."""

import dataclasses
import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tagmask import __version__
from tagmask.config import (
    SEED_PRESETS,
    TRAIN_PRESETS,
    DataSettings,
    PhotoSettings,
    ScoreSettings,
    SeedSettings,
    TrainSettings,
    read_toml,
    read_values,
)
from tagmask.errors import TagmaskError

Settings = TypeVar("Settings", bound=DataSettings)

USAGE = """\
tagmask: images that carry only tags go in, segmentation masks come out.

  tagmask demo      everything on built-in pictures, in minutes on a laptop
  tagmask train     train a tag classifier with all-pairs consistency
  tagmask seeds     localisation maps of tagged images, or of one photo
  tagmask score     how well the maps agree with masks

  tagmask COMMAND --help    settings and examples of one command
  tagmask --version
"""

TRAIN_EXAMPLES = """\
Train a tag classifier with all-pairs consistency (ACR). Stopped anywhere and typed again, it goes on.

examples:
  tagmask train --preset scenes --out run
  tagmask train --data folder --images photos --tags tags.csv --backbone deit_small_patch16_224 --pretrained --out run
  tagmask train --preset voc --root VOCdevkit/VOC2012 --out run
  tagmask train --preset coco --images train2014 --annotations annotations/instances_train2014.json --out run
  accelerate launch --num_processes 8 -m tagmask train --preset voc --root VOCdevkit/VOC2012 --batch 8 --out run

also: --preset NAME   start from a named recipe: scenes, voc, voc-deit-s, coco
      --config FILE   start from the [train] section of a run's config.toml
"""

SEED_EXAMPLES = """\
Make localisation maps ("seeds") of all images of a run, or of one photo. Stopped and typed again, it goes on.

examples:
  tagmask seeds --out run                                  the images and the model of the run
  tagmask seeds --out run --data voc --root VOC2012 --split val
  tagmask seeds --out run --scales 0.75 1 1.25 --shard 0/4
  tagmask seeds photo.jpg --model run/1_classifier --tags dog,sofa --show out.png
  tagmask seeds photo.jpg --model run/1_classifier         the classes the model itself sees

also: --preset scenes  the blocks whose affinity is object-like in the small backbone of the built-in scenes
"""

SCORE_EXAMPLES = """\
Compare the maps of a run with masks: IoU over all thresholds in one reading, and thresholds chosen without masks.

examples:
  tagmask score --out run
  tagmask score --out run --data voc --root VOC2012 --split val --processes 4
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command; mistakes of the user end with a sentence, not with a traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(arguments)
    except TagmaskError as error:
        code = _complain(str(error))
    except KeyboardInterrupt:
        print("\nstopped; type the same command again to go on.", file=sys.stderr)
        code = 130
    except BrokenPipeError:  # the reader of our output (head, less) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        if error.errno not in _DISK:
            raise
        code = _complain(f"{error.filename or 'the output'}: {_DISK[error.errno]}")
    sys.exit(code)


_DISK = {
    errno.ENOSPC: "the disk is full; free some space and type the same command again to go on.",
    errno.EDQUOT: "the disk quota is used up; free some space and type the same command again to go on.",
    errno.EROFS: "the disk is read-only; choose another --out.",
    errno.EACCES: "permission denied; choose another path or change its permissions.",
}


def _dispatch(arguments: list[str]) -> int:
    commands: dict[str, Callable[[list[str]], None]] = {
        "demo": _demo,
        "train": _train,
        "seeds": _seeds,
        "score": _score,
    }
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    if arguments[0] == "--version":
        print(f"tagmask {__version__}")
        return 0
    if arguments[0] not in commands:
        raise TagmaskError(f"there is no command {arguments[0]!r}; choose from {', '.join(commands)}.")
    commands[arguments[0]](arguments[1:])
    return 0


def _complain(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 1


def _parse(
    kind: type[Settings], arguments: list[str], command: str, description: str, presets: Mapping[str, Mapping[str, Any]]
) -> Settings:
    """Settings from flags, on top of --preset and --config."""
    import tyro

    start: dict[str, Any] = {}
    preset = _take(arguments, "--preset")
    if preset is not None:
        if preset not in presets:
            raise TagmaskError(f"there is no preset {preset!r}; choose from {', '.join(presets)}.")
        start |= presets[preset]
    config = _take(arguments, "--config")
    if config is not None:
        start |= read_toml(Path(config)).get(command, {})
    elif command != "train":
        start |= _data_of_run(arguments)
    ready = read_values(kind, start, config or f"preset {preset}")
    required = [field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING]
    default = kind(**{**dict.fromkeys(required, tyro.MISSING), **ready})
    return tyro.cli(kind, args=arguments, prog=f"tagmask {command}", description=description, default=default)


def _take(arguments: list[str], flag: str) -> str | None:
    """Remove ``flag VALUE`` or ``flag=VALUE`` from the arguments and return the value."""
    for place, argument in enumerate(arguments):
        if argument == flag:
            if place + 1 == len(arguments):
                raise TagmaskError(f"{flag} needs a value; see --help.")
            value = arguments[place + 1]
            del arguments[place : place + 2]
            return value
        if argument.startswith(flag + "="):
            del arguments[place]
            return argument.split("=", 1)[1]
    return None


def _train(arguments: list[str]) -> None:
    settings = _parse(TrainSettings, arguments, "train", TRAIN_EXAMPLES, TRAIN_PRESETS)
    _calm_libraries()
    if not settings.pretrained and settings.weights is None and settings.backbone != "tagmask_tiny":
        print(f"{settings.backbone} starts from scratch; --pretrained or --weights give better maps.", flush=True)
    from tagmask.training.classifier import train

    trained = train(settings)
    if trained.is_main:
        print(trained.summary())


def _data_of_run(arguments: list[str]) -> dict[str, Any]:
    """Data settings of the run in --out, so that later stages need not repeat them; newer stages win."""
    places = [i for i, argument in enumerate(arguments[:-1]) if argument == "--out"]
    file = Path(arguments[places[-1] + 1]) / "config.toml" if places else None
    if "--data" in arguments or file is None or not file.exists():
        return {}
    names = {field.name for field in dataclasses.fields(DataSettings)}
    whole = read_toml(file)
    section = whole.get("seeds", whole.get("train", {}))
    return {name: value for name, value in section.items() if name in names}


def _seeds(arguments: list[str]) -> None:
    if arguments and not arguments[0].startswith("-"):
        _one_photo(arguments)
        return
    settings = _parse(SeedSettings, arguments, "seeds", SEED_EXAMPLES, SEED_PRESETS)
    _calm_libraries()
    from tagmask.stages.seeds import seed_catalog

    print(seed_catalog(settings).summary())


def _one_photo(arguments: list[str]) -> None:
    import tyro

    settings = tyro.cli(PhotoSettings, args=["--photo", *arguments], prog="tagmask seeds", description=SEED_EXAMPLES)
    from tagmask.stages.photo import seed_photo

    print(seed_photo(settings))


def _score(arguments: list[str]) -> None:
    settings = _parse(ScoreSettings, arguments, "score", SCORE_EXAMPLES, {})
    from tagmask.stages.score import score_seeds

    print(score_seeds(settings).summary(settings.out))


def _demo(arguments: list[str]) -> None:
    import tyro

    from tagmask.demo import DemoSettings

    settings = tyro.cli(DemoSettings, args=arguments, prog="tagmask demo")
    _calm_libraries()
    from tagmask.demo import run_demo

    run_demo(settings)


def _calm_libraries() -> None:
    """No chatter of libraries between the progress lines, and threads that wait without burning the core.

    Spinning threads make training many times slower on a laptop that does anything else; must be set before torch.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
