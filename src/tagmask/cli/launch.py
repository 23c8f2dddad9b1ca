"""`tagmask run --gpus`: the same command once for each GPU of this machine, by torchrun's means."""

import logging
import os
import sys
import uuid

from tagmask.errors import TagmaskError, Told


def launch_on_gpus(asked: str, arguments: list[str]) -> bool:
    """Start the run once for each of several GPUs, and wait until all processes have ended.

    Args:
        asked: "all", or a number of GPUs.
        arguments: What follows `tagmask run` on the command line, without --gpus.

    Returns:
        False if there are no several GPUs to use: the run is to be done as usual.

    Raises:
        TagmaskError: There are fewer GPUs than asked for, or a process was killed.
        Told: A process has said what is wrong.
    """
    from tagmask.runs.processes import launched_shard

    if launched_shard()[1] > 1:
        raise TagmaskError("--gpus starts a launch by itself; leave it out under a launcher.")
    count = _count(asked)
    if count < 2:
        return False
    _start(count, ["-m", "tagmask", "run", *arguments])
    return True


def gpus_here() -> int:
    """Return how many GPUs this machine has for torch."""
    import torch

    return int(torch.accelerator.device_count()) if torch.accelerator.is_available() else 0


def _count(asked: str) -> int:
    """Return how many GPUs are to be used; say so if they are not several."""
    here = gpus_here()
    if asked == "all":
        wanted = here
    elif asked.isdecimal() and int(asked) > 0:
        wanted = int(asked)
    else:
        raise TagmaskError(f"--gpus {asked} must be all, or a number of GPUs, e.g. 4.")
    if wanted > max(here, 1):
        raise TagmaskError(
            f"--gpus {asked}: torch finds {here} here; use --gpus all, or check the drivers and "
            "CUDA_VISIBLE_DEVICES."
        )
    if here < 2:
        what = "one GPU" if here else "no GPU"
        print(f"there is {what} here, so --gpus {asked} changes nothing.", flush=True)
    return wanted


def _start(count: int, words: list[str]) -> None:
    """Start processes and wait for them; if one fails, the others are ended."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # processes that share the cores: each would take all of them
    cores = os.cpu_count() or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // count)))
    # it logs every failure, which the process itself has told the user
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.2,
    )
    try:
        elastic_launch(config, sys.executable)(*words)
    except ChildFailedError as error:
        codes = [failure.exitcode for failure in error.failures.values()]
        if min(codes) < 0 and all(code <= 0 for code in codes):
            raise TagmaskError(
                "a process of the launch was killed, perhaps because memory ran out; "
                "start the same command again to continue."
            ) from None
        raise Told("a process of the launch has said why.") from None
