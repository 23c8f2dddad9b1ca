"""`tagmask run` as a process of its own, and how far it is.

The studio starts the command that a person would type, reads what it prints, and stops it with an
interrupt; started again, it resumes. So whatever holds on the command line holds here.
"""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tagmask.progress import INTERVAL

LOG_LINES = 400
# of the process whose bars are read
_SURROUNDINGS = {"PYTHONIOENCODING": "utf-8", "COLUMNS": "100", INTERVAL: "0.2"}
# "  train    to do      40 images      about 2 min" is a line of the plan
_PLAN = re.compile(r"^  (\w+) +(?:to do|resume|redo)\b.*?(\d+ \w+)?(?: +about (.+))?$")
_TOGETHER = re.compile(r"^  together about (.+)$")
# "[2/7] seeds: redo (…)" opens a stage
_STAGE = re.compile(r"^\[(\d+)/(\d+)\] (\w+)(?:: (.*))?$")
# "seeds:  45%|███▌  | 54/120 [00:10<00:12,  5.1image/s]"
_BAR = re.compile(r"^([\w ]+): +\d+%\|.*?\| (\d+)/(\d+) \[([\d:]+)<([\d:?]+)")


class Job:
    """One run at a time.

    Args:
        tell: Called with the state whenever it changes.
        ended: Called when the process has ended well.
    """

    def __init__(
        self, tell: Callable[[dict[str, Any]], None], ended: Callable[[], None] = lambda: None
    ) -> None:
        self._tell = tell
        self._ended = ended
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self.state: dict[str, Any] = {"state": "idle", "log": [], "stages": [], "plan": []}

    @property
    def is_running(self) -> bool:
        """Return True while the process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self, words: Sequence[str | Path]) -> None:
        """Start ``tagmask`` with arguments, unless it runs already.

        Args:
            words: The command line after ``tagmask``.
        """
        with self._lock:
            if self.is_running:
                return
            self.state = {
                "state": "running",
                "log": [],
                "stages": [],
                "plan": [],
                "together": "",
                "why": "",
            }
            command = [sys.executable, "-u", "-m", "tagmask", *map(str, words)]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env={**os.environ, **_SURROUNDINGS},
                # Ctrl-C in the terminal ends the studio, which then stops it
                start_new_session=True,
                preexec_fn=_hear_interrupts,
            )
            threading.Thread(target=self._follow, args=(self._process,), daemon=True).start()
        self._tell(self.state)

    def stop(self) -> None:
        """Interrupt the run; what it has finished stays."""
        process = self._process
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)

    def end(self) -> None:
        """Stop the run and wait for it, a while."""
        self.stop()
        if self._process is not None:
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()

    def _follow(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        # a carriage return ends a line too: every state of a progress bar is one
        for line in process.stdout:
            self._read(line.rstrip("\n"))
        code = process.wait()
        state = "done" if code == 0 else "stopped" if code in (130, -signal.SIGINT) else "failed"
        why = "" if code == 0 else _reason(self.state["log"])
        self.state = {**self.state, "state": state, "why": why}
        if code == 0:
            self._ended()
        self._tell(self.state)

    def _read(self, line: str) -> None:
        """Take a line of output into the state."""
        bar = _BAR.match(line)
        stage = _STAGE.match(line)
        stages = [dict(row) for row in self.state["stages"]]
        if bar and stages:
            left = "" if "?" in bar[5] else bar[5]
            stages[-1] |= {"done": int(bar[2]), "total": int(bar[3]), "left": left}
            self.state = {**self.state, "stages": stages}
        elif stage:
            if stages:
                stages[-1]["is_done"] = True
            is_done = (stage[4] or "").startswith("done")
            row = {"name": stage[3], "number": int(stage[1]), "of": int(stage[2])}
            stages.append({**row, "note": stage[4] or "", "is_done": is_done})
            self.state = {**self.state, "stages": stages}
        elif line.strip():
            log = [*self.state["log"], line][-LOG_LINES:]
            self.state = {**self.state, "log": log}
            if not stages:
                self._read_plan(line)
        else:
            return
        self._tell(self.state)

    def _read_plan(self, line: str) -> None:
        """Take a line of the plan into the state: what each stage has to do, and how long."""
        together = _TOGETHER.match(line)
        planned = _PLAN.match(line)
        if together:
            self.state = {**self.state, "together": together[1]}
        elif planned:
            row = {"name": planned[1], "amount": planned[2] or "", "about": planned[3] or ""}
            self.state = {**self.state, "plan": [*self.state["plan"], row]}


def _hear_interrupts() -> None:
    """Let the process hear Ctrl-C even if the studio was started in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _reason(log: Sequence[str]) -> str:
    """Return the sentence with which the run ended."""
    errors = [line.removeprefix("error: ") for line in log if line.startswith("error: ")]
    return errors[-1] if errors else (log[-1] if log else "it ended without a word.")
