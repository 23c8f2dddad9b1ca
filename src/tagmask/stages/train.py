"""Train the tag classifier, or fit it without training.

With few photos training does harm: tags that exclude each other can be told apart by the
backgrounds, and then the maps show those. So a preset may ask for a number of photos from which
on to train (``train_from``), and a training may have to earn its place (``earn``): it starts from
the head that fits the untouched backbone, and is kept only if held-out tags are told better and
the maps stay on the objects.
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from torch.utils.data import default_collate

from tagmask import layout
from tagmask.config import TrainSettings
from tagmask.data.catalog import Catalog
from tagmask.data.open import open_catalog
from tagmask.errors import TagmaskError
from tagmask.features.cache import TokenStore
from tagmask.features.photo import photo_features
from tagmask.files import write_json, write_text
from tagmask.inference.linear import cross_validate
from tagmask.inference.tagcheck import TagFinding, check_tags, suspects_of
from tagmask.models.classifier import Classifier
from tagmask.models.device import on_device
from tagmask.models.kinds import load_classifier
from tagmask.notes import Parts
from tagmask.runs.images import list_skipped, split_tags
from tagmask.runs.processes import launched_shard
from tagmask.runs.record import IMAGES, places
from tagmask.runs.run import Run
from tagmask.runs.timing import Probe, time_step, timed
from tagmask.runs.tokens import keep_together
from tagmask.training.checkpoint import read_state
from tagmask.training.classifier import ClassifierTask, build_classifier
from tagmask.training.earning import Judge
from tagmask.training.loop import Loop, Trained, total_steps
from tagmask.training.objects import (
    PhotoVectors,
    check_fittable,
    fit_head,
    fit_objects,
    memory_of_fit,
)
from tagmask.training.start import fit_heads, read_heads

CHECK_STRENGTH = 0.1  # of the regression that checks the tags; from 0.03 on its scores are level
POORLY_LEARNED = 0.15  # of the way from chance to perfection
FITS_COST = 1.15  # the fits take about this much of the time of the tokens


@dataclass
class Fitted:
    """What is left behind where a backbone stays as it is."""

    folder: Path
    notes: tuple[str, ...]
    broken: dict[str, str]  # photo: why it could not be read
    findings: list[TagFinding]
    metrics: dict[str, float]

    def summary(self) -> str:
        """Say what was fitted, and what is suspicious about the tags."""
        lines = [*self.notes, *list_skipped(self.broken), *tag_lines(self.findings)]
        return "\n".join([*lines, f"classifier: {self.folder / layout.MODEL}"])


def train(run: Run, settings: TrainSettings) -> Trained | Fitted:
    """Train a classifier, or resume a training that was stopped, or fit one without training.

    Args:
        run: the run.
        settings: those of the stage.
    """
    whole = run.catalog
    if not len(whole):
        raise TagmaskError("there is no image to train on; check the data settings.")
    if is_only_fitted(settings, len(whole)):
        return _fit_only(run, settings)
    if settings.val_split is not None:
        training = whole
        val = open_catalog(run.settings.with_data({"split": settings.val_split}), run.out)
    else:
        training, val = whole.split(settings.val_fraction, settings.seed)
    if not len(training):
        raise TagmaskError("there is no image to train on; check the data settings.")
    identity: Parts = {
        **run.made_from("train", settings),
        **places(settings, run.settings),
        IMAGES[0]: training.fingerprint(),
    }
    task = ClassifierTask(training, val, settings, run.settings)
    if settings.objects:
        check_fittable(task.classifier, settings.object_blocks)
    folder = run.out / layout.CLASSIFIER
    is_new = settings.restart or read_state(folder) is None
    if settings.head_first and is_new:
        keep_together(run.team, task.store, training)
        fit_heads(on_device(task.classifier), settings.freeze, task.store, training)
    judge = Judge(task, folder) if settings.earn else None
    if judge is not None and is_new and launched_shard()[0] == 0:
        judge.keep_start()
    loop = Loop(task, settings, folder, identity)
    if loop.is_main:
        run.keep(settings)
    trained = loop.train(training, whole.notes)
    if judge is not None and loop.is_main:
        trained.notes += judge.decide()
    classifier = task.classifier
    if settings.objects and run.team.count > 1:
        # the first process may have chosen another state of the training than its end
        run.team.wait()
        if not run.team.is_first:
            classifier = on_device(load_classifier(folder))
        _keep_features(run, settings, classifier)
    if settings.objects and loop.is_main:
        vectors = _fit_objects(run, settings, classifier)
        classifier.save(folder)
        findings = _check_tags(vectors, whole, folder)
        trained.notes += tuple(tag_lines(findings))
    return trained


def check_start(run: Run, settings: TrainSettings) -> None:
    """Refuse weights that do not fit the backbone, and stuff that is no tag.

    Args:
        run: the run.
        settings: those of the stage.

    Raises:
        TagmaskError: if a training or fit could not begin with them.
    """
    _stuff(settings, run.catalog)
    if settings.weights is not None:
        build_classifier(settings, run.catalog)


def is_only_fitted(settings: TrainSettings, photos: int) -> bool:
    """Return True if there are too few photos to train with these settings.

    Args:
        settings: those of the stage.
        photos: how many there are.
    """
    return photos < settings.train_from


def _fit_only(run: Run, settings: TrainSettings) -> Fitted:
    """Fit the head, and with ``objects`` the finder, on the untouched backbone.

    It takes a second once the tokens are there, so one that was stopped starts over. The processes
    of a launch compute the tokens together, and the first one fits.
    """
    folder = run.out / layout.CLASSIFIER
    catalog = run.catalog
    classifier = build_classifier(settings, catalog)
    size = settings.size or classifier.native_size
    classifier.crop_size = size
    if settings.fixed_views:
        classifier.fixed_views = (size, settings.freeze)
    classifier = on_device(classifier).eval().requires_grad_(False)
    if settings.objects:
        check_fittable(classifier, settings.object_blocks)
        _keep_features(run, settings, classifier)
    if not run.team.is_first:
        return Fitted(folder, (), {}, [], {})
    run.keep(settings)
    findings: list[TagFinding] = []
    broken: dict[str, str] = {}
    if settings.objects:
        vectors = _fit_objects(run, settings, classifier)
        fit_head(classifier, vectors)
        findings = _check_tags(vectors, catalog, folder)
        broken = vectors.broken
    else:
        place = run.settings
        store = TokenStore.of(classifier, run.out, place.tokens_limit, place.tokens)
        fit_heads(classifier, settings.freeze, store, catalog)
    classifier.save(folder)
    reason = (
        f"no training: {len(catalog)} photos are fewer than {settings.train_from}, from which on "
        "it is worth a try; the head is fitted and the backbone stays as it is."
    )
    metrics = _metrics(findings)
    write_text(folder / layout.LOG, json.dumps({"step": 0, **metrics}) + "\n")
    return Fitted(folder, (*catalog.notes, reason), broken, findings, metrics)


def _fit_objects(run: Run, settings: TrainSettings, classifier: Classifier) -> PhotoVectors:
    """Give the classifier its object finder."""
    return fit_objects(
        classifier.eval(),
        _features(run, settings, classifier),
        run.catalog,
        blocks=settings.object_blocks,
        size=settings.object_size,
        method=settings.object_method,
        stuff=_stuff(settings, run.catalog),
    )


def _features(run: Run, settings: TrainSettings, classifier: Classifier) -> TokenStore:
    """Return the cache of what the object finder reads."""
    return TokenStore.features_of(
        classifier,
        settings.object_blocks,
        settings.object_size,
        run.out,
        run.settings.tokens_limit,
    )


def _keep_features(run: Run, settings: TrainSettings, classifier: Classifier) -> None:
    """Let the processes of a launch compute what the object finder reads."""
    keep_together(run.team, _features(run, settings, classifier.eval()), run.catalog)


def _stuff(settings: TrainSettings, catalog: Catalog) -> list[int]:
    """Return the numbers of the tags that are no objects."""
    numbers = []
    for name in split_tags(settings.stuff, "--stuff") or []:
        if name not in catalog.classes:
            known = ", ".join(catalog.classes)
            raise TagmaskError(f"--stuff {name} is no tag of these photos; they have: {known}.")
        numbers.append(catalog.classes.index(name))
    return sorted(set(numbers))


def _check_tags(vectors: PhotoVectors, catalog: Catalog, folder: Path) -> list[TagFinding]:
    """Look at the tags by scores of models that have not seen the photo, and write tags.json."""
    pooled = vectors.pooled[:, 0]  # (N, F): the foreground of each photo
    spread = pooled.std(0, unbiased=False).clamp(min=1e-6)
    features = (pooled - pooled.mean(0)) / spread
    logits = cross_validate(features, vectors.targets, CHECK_STRENGTH, balanced=True)
    names = [catalog.name(i) for i in vectors.indices]
    findings = check_tags(logits, vectors.targets, catalog.classes, names)
    rows = [dataclasses.asdict(finding) for finding in findings]
    write_json(folder / layout.TAGS, {"tags": rows})
    return findings


def _metrics(findings: list[TagFinding]) -> dict[str, float]:
    """Return the mean average precision of held-out scores, where there are any."""
    known = [finding.average_precision for finding in findings if finding.photos]
    return {"map": sum(known) / len(known)} if known else {}


def tag_lines(findings: list[TagFinding], most: int = 5) -> list[str]:
    """Return sentences on tags that are suspicious, the worst first.

    Args:
        findings: one per tag.
        most: how many suspicious photos are named.
    """
    lines = []
    for mean in _metrics(findings).values():
        lines.append(f"held-out mAP of the tags {mean:.3f} (each photo scored unseen)")
    for finding in sorted(findings, key=lambda finding: finding.learned):
        if finding.photos and finding.learned < POORLY_LEARNED:
            lines.append(
                f'"{finding.tag}" can hardly be told from these photos (held-out precision '
                f"{finding.average_precision:.2f}, {finding.by_chance:.2f} by chance); add photos."
            )
    suspects = suspects_of(findings)
    if suspects:
        named = [f"{suspect.photo} ({suspect.words()})" for suspect in suspects[:most]]
        more = f" and {len(suspects) - most} more" if len(suspects) > most else ""
        is_one = len(suspects) == 1
        what = "the tags of 1 photo look" if is_one else f"the tags of {len(suspects)} photos look"
        lines.append(
            f"{what} wrong: {', '.join(named)}{more}; check {'it' if is_one else 'them'} "
            f"(all in {layout.CLASSIFIER}/{layout.TAGS})."
        )
    return lines


def estimate(probe: Probe) -> float:
    """Return the seconds of a training step, or of a photo where nothing is trained."""
    settings = probe.training
    task = probe.task
    probe.unseen.append(probe.shared["classifier"])
    if is_only_fitted(settings, len(probe.catalog)):
        return _estimate_fit(probe)
    part = settings.batch // settings.accumulate
    photos = len(probe.catalog)
    samples = [task.dataset[(k, k % photos)] for k in range(part)]
    batch = getattr(task.dataset, "collate", default_collate)(samples)
    batch.pop("broken")
    seconds = time_step(task.module, batch, probe.unseen) * settings.accumulate
    steps = total_steps(settings, _training_photos(settings, photos))
    if settings.fixed_views:  # the tokens of every photo are computed once
        once = timed(lambda: task.dataset[(0, 0)])
        if settings.head_first:  # and are seen once before the first step
            once += timed(
                lambda: read_heads(task.classifier, settings.freeze, task.store, probe.catalog, [0])
            )
        seconds += once * len(probe.catalog) / steps
    if settings.objects:
        seconds += _estimate_fit(probe) * len(probe.catalog) / steps
    return seconds


def _estimate_fit(probe: Probe) -> float:
    """Return the seconds of one photo: its tokens, and its share in the fits."""
    settings = probe.training
    if not settings.objects:
        return timed(lambda: probe.task.dataset[(0, 0)])
    model = probe.task.classifier.eval()
    blocks = settings.object_blocks
    size = settings.object_size
    check_fittable(model, blocks)
    return timed(lambda: photo_features(model, blocks, size, probe.image)) * FITS_COST


def amount(settings: TrainSettings, photos: int) -> tuple[int, str]:
    """Return how much there is to do, and in which unit.

    Args:
        settings: those of the stage.
        photos: how many there are.
    """
    if is_only_fitted(settings, photos):
        return photos, "images"
    return total_steps(settings, _training_photos(settings, photos)), "steps"


def _training_photos(settings: TrainSettings, photos: int) -> int:
    """Return how many of the photos are learned from; the others judge the training."""
    if settings.val_split is not None:
        return photos
    return round(photos * (1 - settings.val_fraction))


def memory(probe: Probe, one: float) -> float:
    """Return the bytes of the stage.

    Args:
        probe: Settings and an image.
        one: Bytes of a process that does a step, or one photo.
    """
    settings = probe.training
    if not settings.objects:
        return one
    model = probe.task.classifier
    tokens = photo_features(model.eval(), settings.object_blocks, settings.object_size, probe.image)
    return one + memory_of_fit(tokens.values[0], len(probe.catalog))


def disk(probe: Probe) -> float:
    """Return the bytes that kept tokens take."""
    settings = probe.training
    per_photo = 0.0
    if settings.objects:
        model = probe.task.classifier.eval()
        tokens = photo_features(model, settings.object_blocks, settings.object_size, probe.image)
        per_photo += float(tokens.values.numel() * 2)
    if settings.fixed_views and not (
        settings.objects and is_only_fitted(settings, len(probe.catalog))
    ):
        per_photo += float(probe.task.dataset[(0, 0)]["tokens"].numel() * 2)
    return per_photo * len(probe.catalog)
