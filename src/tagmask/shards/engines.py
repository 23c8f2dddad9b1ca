"""Who works on shards: processes of this machine, or the actors of a Ray cluster.

Whoever does it, each process has one network and, on a CPU, one thread: the last digits of a
network's numbers depend on the number of threads, and the files are to be the same.
"""

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from tagmask.config import parse_shard
from tagmask.errors import TagmaskError
from tagmask.models.device import gpu
from tagmask.progress import Bar
from tagmask.runs.images import list_skipped
from tagmask.runs.processes import each, launched_shard
from tagmask.shards.work import Job, Outcome

_SHOWN = 10  # images and shards that are named
_STARTS = 3  # attempts to start Ray on this machine


def run_job(
    job: Job,
    *,
    title: str,
    shard: str | None = None,
    processes: int | None = None,
    engine: str = "none",
    ray_address: str | None = None,
) -> str:
    """Do all shards of a job, or a part of them, and return a summary.

    Args:
        job: what is done.
        title: of the progress bar.
        shard: part i of n, as "i/n"; default: all, or the part of a launched process.
        processes: how many work at a time; default: one for each core, or one on a GPU.
        engine: "none" or "ray".
        ray_address: that of a cluster.

    Raises:
        TagmaskError: some shards cannot be used; the others are done.
    """
    part, count = (parse_shard(shard) if shard else None) or launched_shard()
    numbers = range(part, len(job.shards), count)
    job.claim()
    outcomes: list[Outcome] = []
    with Bar(len(numbers), title, "shard", quiet=part > 0 and shard is None) as bar:
        if engine == "ray":
            results = _by_ray(job, numbers, processes, ray_address)
        else:
            results = _by_processes(job, numbers, processes, bar)
        for outcome in results:
            outcomes.append(outcome)
            bar.update()
            bar.set_postfix_str(_counts(outcomes))
    return _summary(job, outcomes)


def _by_processes(
    job: Job, numbers: Sequence[int], processes: int | None, bar: Bar
) -> Iterator[Outcome]:
    """Yield what became of shards, in order."""
    wanted = processes or (1 if gpu() is not None else os.cpu_count() or 1)
    # of an address in memory every process has its own
    folders = [job.to, *(getattr(shard, "folder", job.to) for shard in job.shards[:1])]
    if not all(folder.is_shared for folder in folders):
        wanted = 1
    count = max(1, min(wanted, len(numbers)))
    if count > 1:
        yield from each(job.do, numbers, count)
        return
    with one_thread():
        for number in numbers:
            images = 0

            def tell() -> None:
                nonlocal images
                images += 1
                if images % 10 == 0:
                    bar.set_postfix_str(f"{images:,} images of this shard")

            yield job.do(number, tell)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Worker:
    """An actor of Ray Data: one network, one shard at a time.

    Args:
        job: what is done.
    """

    def __init__(self, job: Job) -> None:
        torch.set_num_threads(1)
        self._job = job
        job.task.prepare()

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Do the shards of a batch, and return what became of them."""
        rows: dict[str, list[Any]] = {"outcome": []}
        for number in batch["number"]:
            rows["outcome"].append(self._attempt(int(number)))
        return rows

    def _attempt(self, number: int) -> dict[str, Any]:
        """Do a shard; an error that would be the same again is told, not raised."""
        try:
            outcome = self._job.do(number)
        except TagmaskError as error:
            outcome = Outcome(self._job.shards[number].name, error=str(error))
        # a column of tables takes lists, not dictionaries of any keys
        why = list(outcome.why.items())[:_SHOWN]
        return {**vars(outcome), "why": [f"{key}\n{reason}" for key, reason in why]}


def _by_ray(
    job: Job, numbers: Sequence[int], actors: int | None, address: str | None
) -> Iterator[Outcome]:
    """Yield what became of shards, as they are done by the actors of a cluster."""
    # before it is imported: nothing is sent to its makers
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
    try:
        ray: Any = importlib.import_module("ray")
        ray_data: Any = importlib.import_module("ray.data")
    except ImportError:
        raise TagmaskError(
            "--engine ray needs Ray: pip install 'tagmask[ray]'; without it, --shard i/n shares "
            "the shards out to any number of commands."
        ) from None
    if not job.to.is_shared:
        raise TagmaskError(
            f"--to {job.to} is the memory of this process, which actors do not share; "
            "choose another address for --engine ray."
        )
    was_running = ray.is_initialized()
    if not was_running:
        _start(ray, address)
    ray_data.DataContext.get_current().enable_progress_bars = False
    # the machine that asks need not have a GPU itself
    resources = ray.cluster_resources()
    gpus = 1 if resources.get("GPU") else 0
    most = int(resources.get("GPU" if gpus else "CPU", 1))
    count = max(1, min(actors or most, len(numbers)))
    items = [{"number": number} for number in numbers]
    table = ray_data.from_items(items, override_num_blocks=max(1, len(items)))
    done = table.map_batches(
        Worker,
        fn_constructor_args=(job,),
        batch_size=1,
        concurrency=count,
        num_cpus=1,
        num_gpus=gpus,
    )
    try:
        for row in done.iter_rows():
            fields = dict(row["outcome"])
            pairs = [line.partition("\n") for line in fields.pop("why")]
            yield Outcome(**fields, why={key: reason for key, _, reason in pairs})
    finally:
        if not was_running:
            ray.shutdown()


def _start(ray: Any, address: str | None) -> None:
    """Connect to a cluster, or start Ray on this machine alone."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "warning"}
    if address is None:
        options["include_dashboard"] = False
    else:
        options["address"] = address
    for attempt in range(1, _STARTS + 1):
        try:
            ray.init(**options)
            return
        except Exception as error:  # Ray's own are of many kinds
            # Ray waits half a minute for its parts, which a busy machine may not start in time
            ray.shutdown()
            if address is None and attempt < _STARTS:
                continue
            place = "on this machine" if address is None else f"at {address}"
            raise TagmaskError(
                f"Ray cannot be reached {place} ({error}); check --ray-address, or leave it out."
            ) from None


def _counts(outcomes: Sequence[Outcome]) -> str:
    images = sum(outcome.images for outcome in outcomes)
    failed = sum(outcome.failed for outcome in outcomes)
    return f"{images:,} images" + (f", {failed:,} failed" if failed else "")


def _summary(job: Job, outcomes: Sequence[Outcome]) -> str:
    """Return what was done, in sentences; raise them if shards cannot be used."""
    lines: list[str] = []
    failed: dict[str, str] = {}
    for outcome in outcomes:
        for key, why in outcome.why.items():
            failed[f"{outcome.name}/{key}"] = why
    lines += list_skipped(failed)
    errors = [outcome for outcome in outcomes if outcome.error]
    made = [outcome for outcome in outcomes if not outcome.kept and not outcome.error]
    kept = [outcome for outcome in outcomes if outcome.kept]
    images = sum(outcome.images for outcome in made)
    total = sum(outcome.failed for outcome in [*made, *kept])
    if total:
        lines.append(f"{total:,} images failed in all; the notes of their shards name them.")
    lines.append(
        f"{job.task.what}: {len(made):,} shards made ({images:,} images), "
        f"{len(kept):,} already there, in {job.to}"
    )
    if errors:
        shown = [f"  {outcome.error}" for outcome in sorted(errors, key=lambda of: of.name)]
        more = [f"  … and {len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else []
        heading = (
            f"{len(errors):,} of {len(outcomes):,} shards cannot be used; the others are done:"
        )
        raise TagmaskError("\n".join([*lines, heading, *shown[:_SHOWN], *more]))
    return "\n".join(lines)
