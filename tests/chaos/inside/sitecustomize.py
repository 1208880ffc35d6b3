"""Trouble inside a process under test, at an instant that is counted in what it does to files, not in seconds.

Python imports this at its start where this folder is on PYTHONPATH. All processes of a command count together: each
event is one byte more in the file CHAOS_COUNT. At event CHAOS_AT the command, its group or the process itself is
killed; or all calls from then on fail, as on a full disk or a read-only one.
"""

import errno
import os
import signal
import sys

CHANGING = {"os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate"}
STARTING = {"fcntl.lockf", "os.fork", "os.forkpty", "subprocess.Popen", "os.posix_spawn"}
FAILING = {"full": errno.ENOSPC, "read-only": errno.EROFS, "broken": errno.EIO}
at, what, main = int(os.environ["CHAOS_AT"]), os.environ["CHAOS_WHAT"], int(os.environ["CHAOS_MAIN"] or os.getpid())
count = os.open(os.environ["CHAOS_COUNT"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
os.set_inheritable(count, False)
os.environ["CHAOS_MAIN"] = str(main)


def counted(event: str, given: tuple[object, ...]) -> bool:
    """Whether an event changes something, or starts something."""
    if event == "open":
        path, _, flags = given
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
        return bool(writes) and not str(path).startswith(("/dev/", "/proc/")) and "__pycache__" not in str(path)
    return (event in CHANGING and "__pycache__" not in str(given[0])) or event in STARTING


def happens(event: str, given: tuple[object, ...]) -> None:
    """Count an event, and do what is to be done there."""
    if not counted(event, given):
        return
    os.write(count, b".")
    number = os.fstat(count).st_size
    if what in FAILING:
        if number >= at and event not in STARTING and event not in ("os.remove", "os.rmdir"):
            raise OSError(FAILING[what], os.strerror(FAILING[what]))
    elif number == at:
        whom = os.getpid() if what == "self" else main
        (os.killpg if what == "group" else os.kill)(whom, signal.SIGKILL)


if at:
    sys.addaudithook(happens)
