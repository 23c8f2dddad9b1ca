"""Messages to every open page, as server-sent events: what changed, and how far work is."""

import json
import queue
import threading
from collections.abc import Iterator
from typing import Any

# seconds between signs of life, by which a closed page is noticed
HEARTBEAT = 10.0
# messages that wait for a page that does not read them; then it is let go and asks again
MOST_WAITING = 1000
MOST_PAGES = 40


class Events:
    """Hands messages to every page that listens."""

    def __init__(self) -> None:
        self._pages: set[queue.Queue[bytes]] = set()
        self._lock = threading.Lock()

    def send(self, kind: str, data: Any) -> None:
        """Tell every page.

        Args:
            kind: Name of the event.
            data: Anything that JSON can hold.
        """
        message = f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()
        with self._lock:
            for page in [*self._pages]:
                try:
                    page.put_nowait(message)
                except queue.Full:
                    self._pages.discard(page)

    def listen(self, stopped: threading.Event) -> Iterator[bytes]:
        """Yield the messages of one page as bytes, until the studio ends.

        Args:
            stopped: Set when the studio ends.
        """
        page: queue.Queue[bytes] = queue.Queue(MOST_WAITING)
        with self._lock:
            if len(self._pages) >= MOST_PAGES:
                return
            self._pages.add(page)
        try:
            yield b"retry: 1000\n\n"
            silent = 0.0
            while not stopped.is_set() and page in self._pages:
                try:
                    yield page.get(timeout=0.5)
                    silent = 0.0
                except queue.Empty:
                    silent += 0.5
                    if silent >= HEARTBEAT:
                        silent = 0.0
                        yield b": still here\n\n"
        finally:
            with self._lock:
                self._pages.discard(page)
