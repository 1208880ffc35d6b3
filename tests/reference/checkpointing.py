"""A plain simulation of checkpointed training, second by second: slow, and written from the rules alone."""

from dataclasses import dataclass, field


@dataclass
class Reference:
    """State and accounts; all times are whole seconds."""

    depth: int
    most: int
    preparation: int
    reconfiguration: int
    checkpoint: int
    iteration: dict[int, int]
    extend: bool = False
    state: dict[int, str] = field(default_factory=dict)
    since: dict[int, int] = field(default_factory=dict)
    ready_at: dict[int, int] = field(default_factory=dict)
    mode: str = "stalled"
    done: int = 0
    saved: int = 0
    high: int = 0
    executed: int = 0
    into_iteration: int = 0
    writing: tuple[int, int] | None = None  # seconds left, iteration
    left: int = 0  # of the reconfiguration
    began: int = 0  # the reconfiguration
    steps: list[tuple[int, int, str, int]] = field(default_factory=list)
    reconfigured: int = 0
    seconds: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("training", "redoing", "reconfiguring", "stalled"), 0)
    )

    def nodes(self, state: str) -> list[int]:
        return sorted((node for node, is_ in self.state.items() if is_ == state), key=lambda n: (self.since[n], n))

    @property
    def world(self) -> int:
        return len(self.nodes("active"))

    def form(self) -> None:
        standby = self.nodes("standby")
        room = min(len(standby), self.most) // self.depth * self.depth
        for node in standby[:room]:
            self.state[node] = "active"
        self.mode = "training" if room else "stalled"
        self.into_iteration, self.writing = 0, None

    def open(self, nodes: list[int]) -> None:
        for node in nodes:
            self.state[node], self.since[node] = "standby", 0
        self.form()

    def finish_work(self, now: int) -> None:
        """What is complete just now: a checkpoint, then an iteration, which may start the next checkpoint."""
        if self.writing is not None and self.writing[0] == 0:
            self.saved, self.writing = self.writing[1], None
        if self.into_iteration == self.iteration[self.world]:
            self.into_iteration = 0
            self.done += 1
            self.executed += 1
            self.high = max(self.high, self.done)
            self.steps.append((self.world, now, "step", self.done))
            if self.writing is None:
                if self.checkpoint == 0:
                    self.saved = self.done
                else:
                    self.writing = (self.checkpoint, self.done)

    def instant(self, now: int, joined: list[int], gone: list[int]) -> None:
        if self.mode == "training":
            self.finish_work(now)
        for node in [n for n, is_ in self.state.items() if is_ == "preparing" and self.ready_at[n] <= now]:
            self.state[node], self.since[node] = "standby", now
        if self.mode == "reconfiguring" and self.left == 0:
            self.form()
            self.reconfigured += 1
            self.steps.append((self.world, self.began, "reconfig", self.reconfigured))
        lost = [self.state.pop(node) for node in gone]
        for node in joined:
            self.state[node], self.ready_at[node] = "preparing", now + self.preparation
            if self.preparation == 0:
                self.state[node], self.since[node] = "standby", now
        if self.mode == "reconfiguring":
            if "standby" in lost:
                self.left = (self.left if self.extend else 0) + self.reconfiguration
            return
        can_grow = len(self.nodes("standby")) >= self.depth and self.world + self.depth <= self.most
        if "active" in lost or can_grow:
            for node in self.nodes("active"):
                self.state[node] = "standby"
            self.done, self.mode, self.left = self.saved, "reconfiguring", self.reconfiguration
            self.began = now

    def second(self) -> None:
        if self.mode == "training":
            self.seconds["redoing" if self.done + 1 <= self.high else "training"] += 1
            self.into_iteration += 1
            if self.writing is not None:
                self.writing = (self.writing[0] - 1, self.writing[1])
        else:
            self.seconds[self.mode] += 1
            self.left -= self.mode == "reconfiguring"


def run(reference: Reference, rows: dict[int, tuple[list[int], list[int]]], span: int, cold: bool = False) -> Reference:
    """Rows of (joined, left) by second; what happens at 0 opens the window."""
    reference.open([] if cold else rows.get(0, ([], []))[0])
    reference.steps.append((reference.world, 0, "step", 0))
    for now in range(span + 1):
        joined, gone = ([], []) if now == 0 and not cold else rows.get(now, ([], []))
        reference.instant(now, joined, gone)
        # No reconfiguration time: it is over at the instant at which it began.
        while reference.mode == "reconfiguring" and reference.left == 0:
            reference.instant(now, [], [])
        if now < span:
            reference.second()
    return reference
