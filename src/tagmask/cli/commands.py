"""One function per command: parse, call, print."""

import os
from collections.abc import Callable, Mapping

from tagmask.cli import examples
from tagmask.cli.parse import parse
from tagmask.config import (
    PREDICT_PRESETS,
    PSEUDO_PRESETS,
    SEED_PRESETS,
    SEGMENT_PRESETS,
    TRAIN_PRESETS,
    ExportSettings,
    PhotoSettings,
    PredictPhotoSettings,
    PredictSettings,
    PseudoSettings,
    ReportSettings,
    ScoreSettings,
    SeedSettings,
    SegmentSettings,
    TrainSettings,
)


def demo(arguments: list[str]) -> None:
    import tyro

    from tagmask.demo import DemoSettings

    settings = tyro.cli(DemoSettings, args=arguments, prog="tagmask demo")
    _calm_libraries()
    from tagmask.demo import run_demo

    run_demo(settings)


def run(arguments: list[str]) -> None:
    from tagmask.pipeline_command import run_command

    run_command(arguments)


def train(arguments: list[str]) -> None:
    settings = parse(TrainSettings, arguments, "train", examples.TRAIN_EXAMPLES, TRAIN_PRESETS)
    _calm_libraries()
    if not settings.pretrained and settings.weights is None and settings.backbone != "tagmask_tiny":
        print(f"{settings.backbone} starts from scratch; --pretrained or --weights give better maps.", flush=True)
    from tagmask.training.classifier import train

    trained = train(settings)
    if trained.is_main:
        print(trained.summary())


def seeds(arguments: list[str]) -> None:
    if _is_photo(arguments):
        import tyro

        photo = tyro.cli(
            PhotoSettings, args=["--photo", *arguments], prog="tagmask seeds", description=examples.SEED_EXAMPLES
        )
        from tagmask.stages.photo import seed_photo

        print(seed_photo(photo))
        return
    settings = parse(SeedSettings, arguments, "seeds", examples.SEED_EXAMPLES, SEED_PRESETS)
    _calm_libraries()
    from tagmask.stages.seeds import seed_catalog

    print(seed_catalog(settings).summary())


def score(arguments: list[str]) -> None:
    settings = parse(ScoreSettings, arguments, "score", examples.SCORE_EXAMPLES, {})
    from tagmask.stages.score_run import score_run

    print(score_run(settings).summary(settings.out))


def pseudo(arguments: list[str]) -> None:
    settings = parse(PseudoSettings, arguments, "pseudo", examples.PSEUDO_EXAMPLES, PSEUDO_PRESETS)
    _calm_libraries()
    from tagmask.stages.pseudo import make_pseudo

    print(make_pseudo(settings).summary())


def segment(arguments: list[str]) -> None:
    settings = parse(SegmentSettings, arguments, "segment", examples.SEGMENT_EXAMPLES, SEGMENT_PRESETS)
    _calm_libraries()
    from tagmask.training.segmenter import train_segmenter

    trained = train_segmenter(settings)
    if trained.is_main:
        print(trained.summary())


def predict(arguments: list[str]) -> None:
    if _is_photo(arguments):
        import tyro

        photo = tyro.cli(
            PredictPhotoSettings,
            args=["--photo", *arguments],
            prog="tagmask predict",
            description=examples.PREDICT_EXAMPLES,
        )
        from tagmask.stages.predict_photo import predict_photo

        print(predict_photo(photo))
        return
    settings = parse(PredictSettings, arguments, "predict", examples.PREDICT_EXAMPLES, PREDICT_PRESETS)
    _calm_libraries()
    from tagmask.stages.predict import predict_catalog

    print(predict_catalog(settings).summary())


def report(arguments: list[str]) -> None:
    settings = parse(ReportSettings, arguments, "report", examples.REPORT_EXAMPLES, {})
    from tagmask.stages.report import write_report

    print(f"report: {write_report(settings)}")


def export(arguments: list[str]) -> None:
    settings = parse(ExportSettings, arguments, "export", examples.EXPORT_EXAMPLES, {})
    from tagmask.stages.export import export_run

    print(export_run(settings))


def paper(arguments: list[str]) -> None:
    from tagmask.cli.paper import paper as run_table

    _calm_libraries()
    run_table(arguments)


COMMANDS: Mapping[str, Callable[[list[str]], None]] = {
    "demo": demo,
    "run": run,
    "train": train,
    "seeds": seeds,
    "score": score,
    "pseudo": pseudo,
    "segment": segment,
    "predict": predict,
    "report": report,
    "export": export,
    "paper": paper,
}


def _is_photo(arguments: list[str]) -> bool:
    """Whether the first argument is a photo instead of a flag."""
    return bool(arguments) and not arguments[0].startswith("-")


def _calm_libraries() -> None:
    """No chatter of libraries between the progress lines, and threads that wait without burning the core.

    Spinning threads make training many times slower on a laptop that does anything else; must be set before torch.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
