"""The training loop on accelerate: steps, accumulation, schedule, validation, logs, resuming.

Each step's randomness is seeded from (seed, step, part, process) and each image's from its position
in the stream, so a training that is stopped anywhere and resumed ends with the same weights.
"""

import gc
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from tagmask import layout
from tagmask.config import LoopSettings
from tagmask.config.launch import launched_part
from tagmask.data.catalog import Catalog
from tagmask.errors import OutputError, TagmaskError, first_of, message_of
from tagmask.files import read_text, unwritable, write_json, write_text
from tagmask.models.storage import StoredNetwork, check_finite
from tagmask.notes import refuse_changes
from tagmask.progress import Bar, logger
from tagmask.training.checkpoint import load_resume, read_state, save_resume
from tagmask.training.loading import loader
from tagmask.training.optim import build_optimizer, decay, set_lr
from tagmask.training.stream import Stream


class Task:
    """What differs between the networks that are trained."""

    name: str
    what: str  # the network
    unusable: str  # why an image may not be used: "could not be read"
    new_layers: tuple[str, ...]
    metric = metric_title = ""  # the validation value of which more is better
    network: StoredNetwork  # what is saved
    module: nn.Module  # forward(**batch) -> {"loss": …, other parts to log}
    dataset: (
        Any  # of images, by (position, image index) -> sample; its "broken" entry lists bad images
    )

    def validate(self, accelerator: Accelerator) -> dict[str, float]:
        """Values of the network as it is; none where there is nothing to compare with."""
        del accelerator
        return {}


@dataclass
class Trained:
    """Hold what a training left behind."""

    task: Task
    folder: Path
    metrics: dict[str, float]
    best: dict[str, float]
    broken: list[str]  # names of images that could not be used
    notes: tuple[str, ...]
    is_main: bool  # False in all processes of a launch but one

    def summary(self) -> str:
        """Return what a user wants to know at the end."""
        lines, name = list(self.notes), self.task.metric
        if self.broken:
            lines.append(
                f"{len(self.broken)} images {self.task.unusable} and were skipped: "
                f"{first_of(self.broken)} (all in {self.folder / layout.BROKEN})."
            )
        if name in self.best and name in self.metrics:
            best = f"(best {self.best[name]:.3f} at step {self.best['step']:.0f})"
            lines.append(f"{self.task.metric_title} {self.metrics[name]:.3f} {best}")
        return "\n".join([*lines, f"{self.task.what}: {self.folder / layout.MODEL}"])


def total_steps(settings: LoopSettings, images: int) -> int:
    """Return the number of steps of a training, from steps or epochs.

    Args:
        settings: Steps, or epochs and batch size.
        images: Number of training images.
    """
    return settings.steps or max(1, math.floor(settings.epochs * images / settings.batch + 0.5))


def uneven_batch(settings: LoopSettings, processes: int) -> str:
    """Return a sentence if the batch cannot be split evenly; empty if it can.

    Args:
        settings: Batch, and the parts that it is accumulated of.
        processes: How many train together.
    """
    parts = processes * settings.accumulate
    if settings.batch % parts == 0:
        return ""
    return (
        f"--batch {settings.batch} cannot be split evenly: {processes} processes × "
        f"{settings.accumulate} parts; use a multiple of {parts}."
    )


class Loop:
    """Train ``task`` into ``folder``. A resume needs the same ``identity``."""

    def __init__(
        self, task: Task, settings: LoopSettings, folder: Path, identity: Mapping[str, Any]
    ) -> None:
        self.task, self.settings, self.folder, self.identity = (
            task,
            settings,
            folder,
            dict(identity),
        )
        # the processes of a whole run stay together after the training
        self._joins = not torch.distributed.is_initialized()
        self.accelerator = make_accelerator(settings, folder)
        _leave_cores_to_workers(settings.workers)
        self.total = total_steps(settings, len(task.dataset))
        world = self.accelerator.num_processes
        uneven = uneven_batch(settings, world)
        if uneven:
            raise TagmaskError(uneven)
        optimizer = build_optimizer(task.module, settings, task.new_layers)
        self.module, self.optimizer = self.accelerator.prepare(task.module, optimizer)
        self.average = (
            {n: v.detach().clone() for n, v in task.module.state_dict().items()}
            if settings.ema
            else None
        )
        self.step = 0
        self.best: dict[str, float] = {}
        self.broken: set[int] = set()
        self._resume()

    @property
    def is_main(self) -> bool:
        """Return True in one process of a launch, the one that writes."""
        return bool(self.accelerator.is_main_process)

    def _resume(self) -> None:
        """Continue from the resume point in the folder, if there is one of the same training."""
        state = None if self.settings.restart else read_state(self.folder)
        self.accelerator.wait_for_everyone()
        if state is not None:
            refuse_changes(state["identity"], self.identity, self.folder, "a training")
            load_resume(self.folder, self.task.module, self.optimizer, self.average)
            self.step, self.best, self.broken = state["step"], state["best"], set(state["broken"])
        elif self.is_main:  # a restart that is killed must not resume from the old point
            (self.folder / layout.RESUME).unlink(missing_ok=True)
        if self.is_main:
            _keep_log_until(self.folder / layout.LOG, self.step)

    def train(self, catalog: Catalog, notes: tuple[str, ...] = ()) -> Trained:
        """Train to the end; with the last step the network is validated and saved.

        Args:
            catalog: Names the images that could not be used.
            notes: Sentences for the end of the training.

        Returns:
            What the training left behind.
        """
        metrics: dict[str, float] = dict(self.best)
        if self.step < self.total:
            metrics = self._train()
        elif self.is_main:
            logger.info("%s is trained already (%d steps); nothing to do.", self.folder, self.total)
        self._leave()
        broken = [catalog.name(i) for i in sorted(self.broken)]
        if self.is_main and broken:
            write_json(self.folder / layout.BROKEN, broken)
        return Trained(self.task, self.folder, metrics, self.best, broken, notes, self.is_main)

    def _leave(self) -> None:
        """Free the wrapped network, then leave the process group if the training has joined it.

        If the wrapper is the last to hold the group, it waits for the group's thread while holding
        Python's lock, which that thread needs: a deadlock in about one of a hundred trainings
        (torch 2.13).
        """
        self.module = self.task.module
        if self.accelerator.num_processes > 1:
            self.accelerator.free_memory()
            gc.collect()  # the wrapper refers to itself
        if self._joins:
            self.accelerator.end_training()
            return
        for tracker in self.accelerator.trackers:
            tracker.finish()

    def _train(self) -> dict[str, float]:
        settings, metrics = self.settings, {}
        every = max(1, round(settings.val_every * len(self.task.dataset) / settings.batch))
        recent: list[dict[str, float]] = []
        began = time.monotonic()
        bar = Bar(self.total, self.task.name, "step", self.step, quiet=not self.is_main)
        batches = iter(self._loader())
        for step in range(self.step, self.total):
            recent.append(self._one_step(step, batches))
            self.step = step + 1
            bar.update()
            last = self.step == self.total
            if self.step % settings.log_every == 0 or last:
                row = {name: float(np.mean([r[name] for r in recent])) for name in recent[0]}
                bar.set_postfix_str(
                    " ".join(f"{name} {value:.4g}" for name, value in row.items() if name != "lr")
                )
                self._log({**row, "seconds": round(time.monotonic() - began, 2)})
                recent = []
            validates, saves = (
                self.step % often == 0 or last for often in (every, settings.save_every)
            )
            if validates or saves:
                check_finite(self.task.module.state_dict())
            if validates:
                metrics = self._validate()
            if saves:
                self._save(last)
        bar.close()
        return metrics

    def _loader(self) -> Any:
        settings, accelerator = self.settings, self.accelerator
        steps, process = (
            (self.step, self.total),
            (accelerator.process_index, accelerator.num_processes),
        )
        stream = Stream(
            len(self.task.dataset),
            settings.seed,
            settings.batch,
            *steps,
            settings.accumulate,
            *process,
        )
        collate = getattr(
            self.task.dataset, "collate", None
        )  # of kept tokens, which need no processes to load them
        return loader(
            self.task.dataset,
            settings.workers if collate is None else 0,
            batch_sampler=stream,
            collate_fn=collate,
        )

    def _one_step(self, step: int, batches: Any) -> dict[str, float]:
        """Forward and backward of every part of the batch, then one update."""
        settings, accelerator = self.settings, self.accelerator
        factor = decay(step, self.total, settings)
        set_lr(self.optimizer, factor)
        self.module.train()
        values: dict[str, float] = {}
        for part in range(settings.accumulate):
            batch = {
                name: to_device(value, accelerator.device) for name, value in next(batches).items()
            }
            self.broken.update(int(i) for i in batch.pop("broken") if i >= 0)
            randomness = np.random.SeedSequence(
                [settings.seed, step, part, accelerator.process_index]
            )
            torch.manual_seed(int(randomness.generate_state(1)[0]))
            last = part == settings.accumulate - 1  # only with it, processes exchange gradients
            with nullcontext() if last else accelerator.no_sync(self.module):
                with accelerator.autocast():
                    losses: dict[str, Tensor] = self.module(**batch)
                accelerator.backward(losses["loss"] / settings.accumulate)
            for name, value in losses.items():
                values[name] = values.get(name, 0.0) + float(value.detach()) / settings.accumulate
        if not np.isfinite(values["loss"]):
            raise TagmaskError(
                f"the loss is {values['loss']} at step {step}; "
                f"lower --lr (now {settings.lr}) or add --clip 1."
            )
        if settings.clip:
            accelerator.clip_grad_norm_(self.module.parameters(), settings.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._update_average()
        return {**values, "lr": settings.lr * factor}

    @torch.no_grad()
    def _update_average(self) -> None:
        if self.average is None:
            return
        current = self.task.module.state_dict()
        floats = [name for name, value in current.items() if value.is_floating_point()]
        blend = get_ema_multi_avg_fn(self.settings.ema)
        blend([self.average[name] for name in floats], [current[name] for name in floats], None)
        for name in current.keys() - set(floats):
            self.average[name].copy_(current[name])

    def _averaged(self, use: Callable[[], Any]) -> Any:
        """Call ``use`` with the averaged weights in place, where there are any."""
        if self.average is None:
            return use()
        current = {name: value.clone() for name, value in self.task.module.state_dict().items()}
        self.task.module.load_state_dict(self.average)
        try:
            return use()
        finally:
            self.task.module.load_state_dict(current)

    def _validate(self) -> dict[str, float]:
        metrics: dict[str, float] = self._averaged(lambda: self.task.validate(self.accelerator))
        if not metrics:
            return {}
        self._log(metrics)
        if self.is_main:
            values = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
            logger.info("step %d: %s", self.step, values)
        if metrics[self.task.metric] > self.best.get(self.task.metric, -np.inf):
            self.best = {**metrics, "step": self.step}
            if self.is_main:
                self._averaged(lambda: self.task.network.save(self.folder / layout.BEST))
        return metrics

    def _save(self, last: bool) -> None:
        if self.accelerator.num_processes > 1:
            self.broken = set().union(*gather_object([self.broken]))
        if not self.is_main:
            return
        if last:
            self._averaged(lambda: self.task.network.save(self.folder))
        state = {
            "step": self.step,
            "best": self.best,
            "broken": sorted(self.broken),
            "identity": self.identity,
        }
        save_resume(self.folder, self.task.module, self.optimizer, self.average, state)

    def _log(self, row: Mapping[str, float]) -> None:
        if not self.is_main:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / layout.LOG
        why = unwritable(log)
        if why:
            raise OutputError(why)
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": self.step, **row}) + "\n")
        if self.settings.tensorboard:
            self.accelerator.log(dict(row), step=self.step)


def make_accelerator(settings: LoopSettings, folder: Path) -> Accelerator:
    """Return the accelerator of a training; TensorBoard only where asked for.

    Args:
        settings: Precision and TensorBoard.
        folder: Folder of the training.

    Raises:
        TagmaskError: If fp16 is asked for without a GPU, TensorBoard is not installed, or the
            processes of a launch cannot be joined.
    """
    if settings.precision == "fp16" and not torch.cuda.is_available():
        raise TagmaskError("--precision fp16 needs a GPU; use bf16 or leave it out.")
    # an earlier training in this process may have had another precision
    AcceleratorState._reset_state()
    # without a GPU, accelerate joins the processes into one training only with cpu=True
    options: dict[str, Any] = {
        "mixed_precision": settings.precision,
        "cpu": not torch.accelerator.is_available(),
    }
    if not settings.tensorboard:
        return _joined(**options)
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        raise TagmaskError(
            "--tensorboard needs a package; install it with: pip install 'tagmask[tensorboard]'"
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    accelerator = _joined(**options, log_with="tensorboard", project_dir=str(folder))
    accelerator.init_trackers("tensorboard")
    return accelerator


def _joined(**options: Any) -> Accelerator:
    """Return an accelerator, which joins this process with the others of a launch."""
    try:
        return Accelerator(**options)
    except (ValueError, RuntimeError) as error:
        rank, count = launched_part()
        if count == 1:
            raise
        raise TagmaskError(
            f"process {rank} of {count} cannot join the others ({message_of(error)}); "
            "start them with torchrun or accelerate launch. Without them: unset RANK WORLD_SIZE."
        ) from None


def _leave_cores_to_workers(workers: int) -> None:
    """Leave cores to the loading processes.

    On the CPU, threads and loading processes that share a core slow each other down far more than
    twofold.
    """
    if workers and not torch.accelerator.is_available():
        torch.set_num_threads(max(1, min(torch.get_num_threads(), (os.cpu_count() or 1) - workers)))


def to_device(value: Any, device: torch.device) -> Any:
    """Return a tensor, or each of a list of tensors, on a device.

    Args:
        value: A tensor or a list of tensors.
        device: The device.
    """
    return [tensor.to(device) for tensor in value] if isinstance(value, list) else value.to(device)


def _keep_log_until(path: Path, step: int) -> None:
    """Drop the lines of the log that a resumed training will write again."""
    if path.exists():
        rows = read_text(path, errors="replace").splitlines()
        kept = [row for row in rows if _step_of(row) <= step and step > 0]
        write_text(path, "".join(row + "\n" for row in kept))


def _step_of(row: str) -> float:
    try:
        return float(json.loads(row)["step"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return np.inf  # a line cut off by a kill
