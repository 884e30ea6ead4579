"""A publisher that a device would recognise: it numbers its messages, sends each at QoS 1 until that is acknowledged,
and connects again, anywhere behind the Service, when its connection ends."""

import threading
import time
from collections.abc import Callable

from harness import Client

ACKNOWLEDGE_S = 10.0
"""How long one acknowledgement may take before the message is sent again on another connection."""
PAUSE_S = 0.02


class Publisher:
    """Publishes to `topic` from a thread of its own, between entering and leaving the context."""

    def __init__(self, connect: Callable[[], Client], topic: str) -> None:
        self.acknowledged: list[int] = []
        """The numbers that were acknowledged, in order."""
        self.reconnects = 0
        self._connect = connect
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"publisher {topic}")

    def __enter__(self) -> "Publisher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait_for_more(self, count: int, timeout_s: float) -> None:
        """Until `count` more messages than now are acknowledged."""
        goal = len(self.acknowledged) + count
        deadline = time.monotonic() + timeout_s
        while len(self.acknowledged) < goal:
            assert time.monotonic() < deadline, (
                f"after {timeout_s} s, of {count} messages {goal - len(self.acknowledged)} are not acknowledged"
            )
            time.sleep(0.1)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                with self._connect() as client:
                    while not self._stop.is_set():
                        client.publish(self._topic, str(number), qos=1, timeout_s=ACKNOWLEDGE_S)
                        self.acknowledged.append(number)
                        number += 1
                        self._stop.wait(PAUSE_S)
            except ConnectionError:
                self.reconnects += 1
                self._stop.wait(0.5)
